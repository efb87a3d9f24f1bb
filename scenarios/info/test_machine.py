"""Facts about a machine in its Node, compared with the machine's own."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes
from nodeproof.scenario.kubernetes import PRESENT
from nodeproof.scenario.types import Observation

NODES, ENVIRONMENT = "/api/v1/nodes", "/etc/default/kubelet"
ANSWERS, RESTART_S = "answers", 60
HUGE_PAGES, PAGES = "hugepages-2Mi", 16


@needs(nodes=2, features=("systemd",), duration_s="15")
def test_node_status_matches_facts_of_its_machine(lab: Lab, claim: Expectations) -> None:
    node = lab.target

    with lab.record():
        machine = lab.observe(probes.machine_facts(node))
        info = lab.observe(probes.node_field(node, "status.nodeInfo"))
        conditions = lab.observe(probes.node_field(node, "status.conditions"))
        resources = lab.observe(probes.resources_of(node))
        max_pods = lab.observe(probes.kubelet_field(node, "maxPods"))
        expect_versions_and_ids(claim, info, machine)

    size = {"cpu": 1000 * machine.value["cpus"], "memory": machine.value["memory"], "pods": max_pods.value}
    claim("capacity.fields").expect_value(resources, {"capacity": size})
    claim("capacity.fields").expect_value(resources, {"allocatable": dict.fromkeys(size, PRESENT)})
    healthy = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    ready = {"type": "Ready", "status": "True", **healthy}
    claim("conditions.ready-true-shape").expect_value(conditions, [ready])


@needs(nodes=2, features=("systemd",), duration_s="10")
def test_node_has_addresses_at_which_its_kubelet_answers(lab: Lab, claim: Expectations) -> None:
    """All of them are internal."""
    node = lab.target

    with lab.record():
        machine = lab.observe(probes.machine_facts(node))
        addresses = lab.observe(probes.node_field(node, "status.addresses"))
        expect_addresses(lab, claim, addresses, machine)


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="60")
def test_kubelet_without_hostname_override_reports_machine_hostname(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    name_flag, empty_flag = (f"--hostname-override={name}" for name in (node, ""))

    with lab.record():
        environment = lab.observe(probes.file_of(node, ENVIRONMENT)).value
        unnamed = f"{environment.replace(name_flag, empty_flag)}\n"
        with lab.inject(faults.replace_file(node, ENVIRONMENT, unnamed)):
            restart_kubelet_and_wait(lab)
            machine = lab.observe(probes.machine_facts(node))
            addresses = lab.observe(probes.node_field(node, "status.addresses"))
        restart_kubelet_and_wait(lab)
    is_unnamed = name_flag not in machine.value["command"].split()
    named, next_step = "the kubelet still has --hostname-override", f"see {ENVIRONMENT} of {node}"
    lab.require_lab(is_unnamed, otherwise=named, next_step=next_step)

    own_name = {"type": "Hostname", "address": machine.value["hostname"].lower()}
    claim("addresses.hostname").expect_value(addresses, [own_name])


@needs(nodes=2, faulted=1, features=("systemd", "swap"), duration_s="60")
def test_restarted_kubelet_reports_changed_huge_pages_and_memory(lab: Lab, claim: Expectations) -> None:
    """A restarted kubelet reports huge pages as a resource, and subtracts them from memory."""
    node, updates_live = lab.target, claim("capacity.updates-live")
    pages_added = node.became({"status": {"capacity": {HUGE_PAGES: f"{2 * PAGES}Mi"}}})
    pages_removed = node.became({"status": {"capacity": {HUGE_PAGES: "0"}}})
    restart, second_restart = actions.restart_kubelet(node), actions.restart_kubelet(node)

    with lab.record():
        before = lab.observe(probes.resources_of(node))
        with lab.inject(faults.huge_pages(node, PAGES)):
            lab.run(restart)
            updates_live.expect(pages_added, within=RESTART_S, after=restart.begun)
            # The registration precedes the first status and does not contain the memory.
            report = moments.first_after(node.status_report, after=pages_added)
            lab.wait_for(report.after(pages_added, RESTART_S))
            after = lab.observe(probes.resources_of(node))
        lab.run(second_restart)
        updates_live.expect(pages_removed, within=RESTART_S, after=second_restart.begun)

    pages = {HUGE_PAGES: PAGES << 21}
    memory = before.value["allocatable"]["memory"] - pages[HUGE_PAGES]
    updates_live.expect_value(before, {"capacity": {HUGE_PAGES: 0}})
    updates_live.expect_value(after, {"capacity": pages, "allocatable": {**pages, "memory": memory}})


def expect_versions_and_ids(claim: Expectations, info: Observation, machine: Observation) -> None:
    facts = machine.value
    machine_and_runtime = {
        "kernelVersion": facts["kernel"],
        "osImage": facts["distribution"],
        "operatingSystem": facts["os"],
        "architecture": facts["architecture"],
        "containerRuntimeVersion": f"containerd://{facts['runtime']}",
    }
    ids = {"machineID": facts["machine_id"], "systemUUID": facts["system_uuid"], "bootID": facts["boot_id"]}
    claim("info.kernel-os-runtime").expect_value(info, machine_and_runtime)
    claim("info.kubelet-version").expect_value(info, {"kubeletVersion": facts["kubelet"]})
    claim("info.kube-proxy-version").expect_value(info, {"kubeProxyVersion": ""})
    claim("info.machine-ids").expect_value(info, ids)


def expect_addresses(lab: Lab, claim: Expectations, addresses: Observation, machine: Observation) -> None:
    """Expect internal addresses of the machine at which its kubelet answers, and no external one."""
    node, has_internal = lab.target, checks.shows(addresses, [{"type": "InternalIP"}])
    internal_ip, no_external_ip = claim("addresses.internal-ip"), claim("addresses.external-ip-absent")
    ips = [entry["address"] for entry in addresses.value if entry["type"] == "InternalIP"]
    internal_ip.expect_later(has_internal)
    for ip in ips:
        internal_ip.expect_value(machine, {"addresses": [ip]})
        internal_ip.expect_value(lab.observe(probes.kubelet_at(node, ip)), ANSWERS)
    for ip in ips:
        from_outside = lab.observe(probes.kubelet_from_outside(node, ip))
        claim("addresses.internal-ip-only-inside").expect_value(from_outside, ANSWERS)
    no_external_ip.expect_later(has_internal)
    no_external_ip.expect_value(addresses, {"$not": [{"type": "ExternalIP"}]})


def restart_kubelet_and_wait(lab: Lab) -> None:
    """Restart the target's kubelet, and wait for its next status."""
    restart = actions.restart_kubelet(lab.target)
    lab.run(restart)
    report = moments.first_after(lab.target.status_report, after=restart.ended)
    lab.wait_for(report.after(restart.ended, RESTART_S))
