"""What a Node tells of its machine, beside what the machine says of itself."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    PRESENT,
    Stage,
    became,
    changed,
    claims,
    field_of,
    file_of,
    huge_pages,
    kubelet_at,
    kubelet_field,
    kubelet_from_outside,
    machine_facts,
    needs,
    next_of,
    other_file,
    resources_of,
    restart_kubelet,
    shows,
    windows,
)

NODES, ENVIRONMENT = "/api/v1/nodes", "/etc/default/kubelet"
ANSWERS, RESTARTED_S = "answers", 60
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
}
HUGE, MANY = "hugepages-2Mi", 16
ROOM = ("cpu", "memory", "pods")


def of_type(type_: str, addresses: list[dict[str, str]]) -> list[str]:
    return [each["address"] for each in addresses if each["type"] == type_]


@claims(
    *(f"info.{name}" for name in ("kernel-os-runtime", "kubelet-version")),
    *(f"info.{name}" for name in ("kube-proxy-version", "machine-ids")),
    *(f"addresses.{name}" for name in ("internal-ip", "external-ip-absent", "internal-ip-only-inside")),
    *("capacity.fields", "conditions.ready-true-shape"),
)
@needs(nodes=2, features=("systemd",), lasts="15")
def test_a_node_tells_what_machine_it_is(lab: Stage, judge: Judge) -> None:
    node = lab.target

    def told(field: str) -> Any:
        return lab.look(field_of(f"{NODES}/{node}", f"status.{field}"))

    with lab.record():
        machine = lab.look(machine_facts(node))
        info, addresses, conditions = (told(each) for each in ("nodeInfo", "addresses", "conditions"))
        room, most = lab.look(resources_of(node)), lab.look(kubelet_field(node, "maxPods"))
        inside = of_type("InternalIP", addresses.value)
        reached = [lab.look(kubelet_at(node, address)) for address in inside]
        from_outside = [lab.look(kubelet_from_outside(node, address)) for address in inside]

    itself = machine.value
    for claim, as_it_is in (
        (
            "info.kernel-os-runtime",
            {
                "kernelVersion": itself["kernel"],
                "osImage": itself["distribution"],
                "operatingSystem": itself["os"],
                "architecture": itself["architecture"],
                "containerRuntimeVersion": f"containerd://{itself['runtime']}",
            },
        ),
        ("info.kubelet-version", {"kubeletVersion": itself["kubelet"]}),
        ("info.kube-proxy-version", {"kubeProxyVersion": ""}),
        (
            "info.machine-ids",
            {
                "machineID": itself["machine_id"],
                "systemUUID": itself["system_uuid"],
                "bootID": itself["boot_id"],
            },
        ),
    ):
        judge(claim, shows(info, as_it_is))
    judge("addresses.internal-ip", shows(addresses, [{"type": "InternalIP"}]))
    for address in inside:
        judge("addresses.internal-ip", shows(machine, {"addresses": [address]}))
    for answer in reached:
        judge("addresses.internal-ip", shows(answer, ANSWERS))
    for answer in from_outside:
        judge("addresses.internal-ip-only-inside", shows(answer, ANSWERS))
    judge("addresses.external-ip-absent", shows(addresses, [{"type": "InternalIP"}]))
    judge("addresses.external-ip-absent", shows(addresses, {"$not": [{"type": "ExternalIP"}]}))
    has = {"cpu": 1000 * itself["cpus"], "memory": itself["memory"], "pods": most.value}
    for what, amounts in (("capacity", has), ("allocatable", dict.fromkeys(ROOM, PRESENT))):
        judge("capacity.fields", shows(room, {what: amounts}))
    judge("conditions.ready-true-shape", shows(conditions, [READY]))


@claims("addresses.hostname")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="60")
def test_a_kubelet_that_is_given_no_name_takes_its_machines(lab: Stage, judge: Judge) -> None:
    node = lab.target
    given, none = (f"--hostname-override={name}" for name in (node, ""))
    reports = changed("nodes", node, "status.conditions[].lastHeartbeatTime")

    def start_anew() -> None:
        restart = restart_kubelet(node)
        lab.do(restart)
        lab.wait_for(next_of(reports, after=restart.ended).after(restart.ended, windows.prompt(RESTARTED_S)))

    with lab.record():
        environment = lab.look(file_of(node, ENVIRONMENT)).value
        with lab.inject(other_file(node, ENVIRONMENT, f"{environment.replace(given, none)}\n")):
            start_anew()
            machine = lab.look(machine_facts(node))
            addresses = lab.look(field_of(f"{NODES}/{node}", "status.addresses"))
        start_anew()
    unnamed = given not in machine.value["command"].split()
    lab.expect(unnamed, "one whose kubelet can go without a name", f"see {ENVIRONMENT} of {node}")

    own_name = {"type": "Hostname", "address": machine.value["hostname"].lower()}
    judge("addresses.hostname", shows(addresses, [own_name]))


@claims("capacity.updates-live")
@needs(nodes=2, faulted=1, features=("systemd", "swap"), lasts="60")
def test_a_kubelet_that_starts_anew_tells_what_its_machine_has_become(lab: Stage, judge: Judge) -> None:
    """Huge pages are a resource of their own, and their memory is no other pod's."""
    node = lab.target
    kept, given_back = (
        became("nodes", node, {"status": {"capacity": {HUGE: amount}}}) for amount in (f"{2 * MANY}Mi", "0")
    )
    reports = next_of(changed("nodes", node, "status.conditions[].lastHeartbeatTime"), after=kept)
    first, second = restart_kubelet(node), restart_kubelet(node)

    with lab.record():
        before = lab.look(resources_of(node))
        with lab.inject(huge_pages(node, MANY)):
            lab.do(first)
            follows = [lab.wait_for(kept.after(first.begun, windows.prompt(RESTARTED_S)))]
            # What it registers comes before its first status, and says nothing of memory.
            lab.wait_for(reports.after(kept, windows.prompt(RESTARTED_S)))
            after = lab.look(resources_of(node))
        lab.do(second)
        follows.append(lab.wait_for(given_back.after(second.begun, windows.prompt(RESTARTED_S))))

    size = MANY << 21
    pages = {HUGE: size}
    left = before.value["allocatable"]["memory"] - size
    for check in (
        *follows,
        shows(after, {"capacity": pages, "allocatable": {**pages, "memory": left}}),
        shows(before, {"capacity": {HUGE: 0}}),
    ):
        judge("capacity.updates-live", check)
