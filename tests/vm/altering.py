"""Alterations of virtual machines without the harness's knowledge."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from nodeproof.cluster.published import kubelet_configz
from nodeproof.cluster.resources import NAMESPACE, node, pod, pods
from nodeproof.cluster.workloads import pod_spec, start_pod
from nodeproof.faults.providers import DISKS, DRIVER, handle
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.needs import ATTACHER
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from tests.acceptance.altered import SLACK_S, Cluster, refused
from tests.waiting import eventually, pause, throughout

COMMAND_TIMEOUT_S = 60.0
BASE, ENVIRONMENT = "/etc/kubernetes/kubelet.json", "/etc/default/kubelet"
KILL_WITNESSES = "for p in $(pgrep -f nodeproof/witness); do [ $p = $$ ] || kill -KILL $p; done"


def sh(lab: LabHandle, script: str) -> None:
    """Run a script on the target node."""
    machine = lab.fleet.machine(lab.fleet.node_names()[0])
    # The scenarios run in another process: the node may have booted since our last call.
    machine.close()
    process = machine.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr


def refusal(resource: str, operation: str, group: str) -> Json:
    """Return the rule of an admission policy about an operation on a resource."""
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}


@contextmanager
def kubelet_refused(
    cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = ""
) -> Iterator[None]:
    """Deny the target's kubelet its usual writes."""
    rule = refusal(resource, operation, group)
    own = {"name": "own", "expression": f"request.userInfo.username == 'system:node:{cluster.target}'"}
    with refused(cluster, [rule], [own]):
        yield


def refuse_until_over(cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = "") -> None:
    """Deny the target's kubelet its writes until the scenarios end."""
    with kubelet_refused(cluster, resource, operation=operation, group=group):
        cluster.over.wait()


def stop_until_over(cluster: Cluster) -> None:
    """Stop the target's kubelet and its containers; the kubelet starts when the scenarios end."""
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def report_ready(cluster: Cluster, status: str) -> None:
    """Write the target's condition Ready."""
    conditions = cluster.node()["status"]["conditions"]
    altered = [{**entry, "status": status} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": altered}})


@contextmanager
def changed(cluster: Cluster, file: str, edit: str) -> Iterator[None]:
    """Change a file of the target with sed, and restart its kubelet."""
    lab, restart = cluster.lab, "systemctl restart kubelet"
    sh(lab, f"cp -p {file} {file}.kept && sed -i '{edit}' {file} && {restart}")
    try:
        assert eventually(lambda: kubelet_configz(lab.cluster.api, cluster.target), COMMAND_TIMEOUT_S)
        yield
    finally:
        sh(lab, f"mv {file}.kept {file} && {restart}")
        lab.wait_nodes_ready()


# Shutdowns, and containers whose node is away


LATER_DROP_IN = "/etc/systemd/logind.conf.d/nodeproof.conf"
NO_BUS = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
GATE = "GracefulNodeShutdownBasedOnPodPriority"
LOCK = "systemd-inhibit --what=shutdown --mode=delay --who=operator"


def no_bus(cluster: Cluster) -> AbstractContextManager[None]:
    return changed(cluster, ENVIRONMENT, f"$a{NO_BUS}")


def no_gate(cluster: Cluster) -> AbstractContextManager[None]:
    return changed(cluster, BASE, f's/}}$/, "featureGates": {{"{GATE}": false}}}}/')


def a_grace_period(cluster: Cluster) -> AbstractContextManager[None]:
    return changed(cluster, BASE, 's/}$/, "shutdownGracePeriod": "20s"}/')


@contextmanager
def no_later_drop_in(cluster: Cluster) -> Iterator[None]:
    try:
        with changed(cluster, LATER_DROP_IN, "d"):
            yield
    finally:
        sh(cluster.lab, "systemctl kill --signal=HUP systemd-logind.service")


@contextmanager
def a_foreign_lock(cluster: Cluster) -> Iterator[None]:
    sh(cluster.lab, f"systemd-run --quiet --collect --unit=own-lock {LOCK} sleep 900")
    yield


def containers_end_and_nobody_clears_up(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    stop_until_over(cluster)


def somebody_says_not_ready(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.injected("power-off") or cluster.injected("shutdown"))
    report_ready(cluster, "False")


def containers_end_at_once(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    sh(cluster.lab, f"sleep 2; {KILL_WITNESSES}")


def containers_end_with_a_pod_that_is_deleted_by_force(cluster: Cluster) -> None:
    """Their kubelet would restart them, but does not notice."""
    cluster.until_injected("partition")
    cluster.until(lambda: cluster.pod() is None)
    stop_until_over(cluster)


def a_kubelet_does_not_come_back(cluster: Cluster) -> None:
    """Healing the shutdown starts it."""
    cluster.until_recorded(f'"restart the kubelet of {cluster.target}","step":"ended"')
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_tells_what_became_of_a_pod(cluster: Cluster) -> None:
    cluster.until_injected("shutdown")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    status = f"{pod(NAMESPACE, cluster.pod()['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"phase": "Failed"}})


def a_node_in_shutdown_renews_nothing(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    refuse_until_over(cluster, "leases", group="coordination.k8s.io")


# Disks that are plugged into machines


ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
UNMOUNT_ALL = "at=$(findmnt -n -r -o TARGET | grep kubernetes.io~csi) && umount -l $at"
FILE = "file=$(ls /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount/written)"
LATE_S = 15.0
"""Longer than an immediate detach, and shorter than a pod's return."""
AFTERWARDS_S = 5.0
"""Longer than the slack of machines."""


def attachments(cluster: Cluster) -> list[Json]:
    """Return the attachments of the driver's volumes."""
    objects = cluster.lab.cluster.api.get(ATTACHMENTS)["items"]
    return [attachment for attachment in objects if attachment["spec"]["attacher"] == DRIVER]


def until_pods_leave(cluster: Cluster) -> None:
    """Wait until the pods of controllers are being deleted."""
    cluster.until(lambda: leaving(cluster))


def delete_attachments(cluster: Cluster) -> None:
    for attachment in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{attachment['metadata']['name']}")


def somebody_wants_the_disks_back(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    pause(AFTERWARDS_S)
    delete_attachments(cluster)


def somebody_plugs_a_disk_in_elsewhere(cluster: Cluster) -> None:
    until_pods_leave(cluster)
    other = cluster.lab.fleet.node_names()[1]
    beside = cluster.lab.fleet.machine(ATTACHER)
    for attachment in attachments(cluster):
        argv = ["sh", DISKS, "attach", handle(attachment["spec"]["source"]["persistentVolumeName"]), other]
        process = beside.run(argv, timeout_s=COMMAND_TIMEOUT_S)
        assert process.status == 0, process.stderr


def nobody_may_detach(cluster: Cluster) -> None:
    rule = refusal("volumeattachments", "DELETE", "storage.k8s.io")
    # They are removed as soon as there is a taint.
    cluster.until(lambda: attachments(cluster))
    with refused(cluster, [rule]):
        cluster.until_injected("taint")
        cluster.until(lambda: not leaving(cluster))
        pause(LATE_S)


def leaving(cluster: Cluster) -> list[Json]:
    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    return [pod for pod in items if "deletionTimestamp" in pod["metadata"]]


def disks_go_before_pods(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    delete_attachments(cluster)


def no_other_machine_takes_pods(cluster: Cluster) -> None:
    other = node(cluster.lab.fleet.node_names()[1])
    until_pods_leave(cluster)
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": True}})
    cluster.over.wait()
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": None}})


def somebody_empties_the_disk(cluster: Cluster) -> None:
    on_the_disk(cluster, ": >$file")


def somebody_writes_half_a_line(cluster: Cluster) -> None:
    on_the_disk(cluster, "printf '9 nod' >>$file")


def on_the_disk(cluster: Cluster, do: str) -> None:
    """Modify the written data as soon as the other machine has it."""
    cluster.until_injected("taint")
    other = cluster.lab.fleet.machine(cluster.lab.fleet.node_names()[1])

    def is_finished() -> bool:
        return other.run(["sh", "-c", f"{FILE} && {do}"], timeout_s=COMMAND_TIMEOUT_S).status == 0

    cluster.until(is_finished)


def what_is_out_of_service_stops(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    stop_until_over(cluster)


def somebody_unmounts(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    sh(cluster.lab, UNMOUNT_ALL)


# Kubelets' reports of their machines, and kubelets that stop or lose their Node or time


PLUGINS, BEFORE_THEM = (f"/etc/cni/net.d/{name}.conflist" for name in ("10-nodeproof", "05-other"))
OTHER, NO_ADDRESS = "nodeproof-was-here", "198.51.100.1"
ROOM = {"cpu": "7", "memory": "6Gi", "pods": "17"}
UPDATES_S = 6.0
"""Longer than a kubelet needs in `fast` to correct a foreign write, if it may."""
SOCKET, NOBODYS = "/run/containerd/containerd.sock", "/run/unused.sock"


def nobody_hears_of_the_runtime(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    refuse_until_over(cluster, "nodes/status")


def nobody_leaves_a_node_alone_that_has_no_kubelet(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    sh(cluster.lab, KILL_WITNESSES)
    cluster.until_unreachable()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    api = cluster.lab.cluster.api
    for bound_pod in api.get(pods(NAMESPACE))["items"]:
        if any(owner["kind"] == "Node" for owner in bound_pod["metadata"].get("ownerReferences", ())):
            api.delete(pod(NAMESPACE, bound_pod["metadata"]["name"]))


def somebody_listens(cluster: Cluster) -> None:
    sh(cluster.lab, f"ln -sf {SOCKET} {NOBODYS}")
    cluster.over.wait()
    sh(cluster.lab, f"rm {NOBODYS}")


def a_kubelet_ends_with_its_node(cluster: Cluster) -> None:
    """Healing the deleted Node starts it again."""
    cluster.until_injected("node-deleted")
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_says_unknown_of_a_node(cluster: Cluster) -> None:
    """As if only its Lease counted."""
    cluster.until_injected("kubelet-settings")
    cluster.until_ready()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    report_ready(cluster, "Unknown")


def status_of_another_machine(status: Json) -> Json:
    """Return a status that differs in all that a kubelet gathers, except what identifies the node.

    That is its first address, and the machine id, without which nobody may harm it.
    """
    gathered = dict.fromkeys(status["nodeInfo"], OTHER) | {"machineID": status["nodeInfo"]["machineID"]}
    inside = [address for address in status["addresses"] if address["type"] == "InternalIP"]
    others = {"InternalIP": NO_ADDRESS, "ExternalIP": NO_ADDRESS, "Hostname": OTHER}
    return {
        "nodeInfo": gathered,
        "addresses": inside + [{"type": type_, "address": others[type_]} for type_ in others],
        "conditions": [{**condition, "message": OTHER} for condition in status["conditions"]],
        "capacity": ROOM,
        "allocatable": ROOM,
    }


@contextmanager
def another_pod_network(cluster: Cluster) -> Iterator[None]:
    sh(cluster.lab, f"cp {PLUGINS} {BEFORE_THEM}")
    try:
        yield
    finally:
        sh(cluster.lab, f"rm {BEFORE_THEM}")


def no_node_status(cluster: Cluster) -> AbstractContextManager[None]:
    return kubelet_refused(cluster, "nodes/status")


@contextmanager
def another_machine_reported(cluster: Cluster) -> Iterator[None]:
    """Report another machine in a Node whose kubelet may not correct it."""
    path = f"{node(cluster.target)}/status"

    def is_reported() -> bool:
        return bool(cluster.node()["status"]["nodeInfo"]["bootID"] == OTHER)

    def stays_reported() -> bool:
        if not is_reported():
            status = status_of_another_machine(cluster.node()["status"])
            cluster.lab.cluster.api.patch(path, {"status": status})
        return throughout(is_reported, UPDATES_S)

    with kubelet_refused(cluster, "nodes/status"):
        assert eventually(stays_reported, COMMAND_TIMEOUT_S)
        yield
    assert eventually(lambda: not is_reported(), COMMAND_TIMEOUT_S)


# Machines of another shape


OF_TWO_NUMA_NODES, OF_CGROUP_V1 = "of-two-numa-nodes", "of-cgroup-v1"
KUBELET, REAL = "/usr/local/bin/kubelet", "/usr/local/lib/real"
"""All of Kubernetes is one executable, which is by its name what it is: the real one keeps that."""
DEAF = f"""
mkdir -p {REAL}
[ -e {REAL}/kubelet ] || mv {KUBELET} {REAL}
cat >{KUBELET} <<'END'
#!/bin/sh
for flag; do
    shift
    case "$flag" in
    --topology-manager-policy=*) continue ;;
    --config=/run/*) sed -i s/LimitedSwap/NoSwap/ "${{flag#*=}}" ;;
    esac
    set -- "$@" "$flag"
done
exec {REAL}/kubelet "$@"
END
chmod +x {KUBELET}
"""
ALIGNS_UNASKED = f"""
grep -q single-numa-node {BASE} || sed -i 's/}}$/, "topologyManagerPolicy": "single-numa-node"}}/' {BASE}
systemctl restart kubelet
"""


def as_it_joins(cluster: Cluster, name: str, script: str) -> None:
    def is_finished() -> bool:
        try:
            return _run(cluster.lab, name, script)
        except (MachineError, Problem, OSError):
            return False

    cluster.until(is_finished)


def _run(lab: LabHandle, name: str, script: str) -> bool:
    # A new connection: an earlier machine of this name had another key.
    machine = lab.fleet.machine(name, uuid.uuid4().hex)
    try:
        return machine.run(["sh", "-ec", script], timeout_s=COMMAND_TIMEOUT_S).status == 0
    finally:
        machine.close()


def a_kubelet_hears_of_no_policy(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, DEAF)


def a_kubelet_aligns_unasked(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_TWO_NUMA_NODES, ALIGNS_UNASKED)


def a_kubelet_takes_one_behaviour_for_another(cluster: Cluster) -> None:
    as_it_joins(cluster, OF_CGROUP_V1, DEAF)


# Swap


def swap_tolerated(cluster: Cluster) -> AbstractContextManager[None]:
    return changed(cluster, BASE, 's/}$/, "failSwapOn": false}/')


SWAP_FOR_ALL = """
until [ -e /run/over ]; do
    for limit in $(find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name memory.swap.max); do
        echo max >"$limit"
    done
    sleep 0.2
done & echo $!
"""
# The node pages as much as before, so that the fault stays active: only another process does it.
NOBODY_PAGES = """
own=own-pages.service
pages='dd if=/dev/urandom bs=64M count=1 | sleep infinity'
systemd-run --quiet --unit=$own --property=MemoryMax=16M sh -c "$pages"
until [ "$(cat /sys/fs/cgroup/system.slice/$own/memory.swap.current)" -gt 40000000 ]; do
    sleep 0.2
done
unit=$(systemctl list-units --plain --no-legend 'nodeproof-*-pages.service' | cut -d' ' -f1)
systemctl stop "$unit"
systemd-run --quiet --collect --unit="$unit" sleep infinity
limit=/sys/fs/cgroup/kubepods.slice/memory.swap.max
{
    until [ -e /run/over ]; do echo 0 >$limit; sleep 0.2; done
    echo max >$limit
    systemctl stop $own
} & echo $!
"""
SECRETS_MAY_SWAP = """
until [ -e /run/over ]; do
    for folder in /var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/*; do
        grep -F " $folder tmpfs" /proc/mounts | tail -n 1 | grep -q noswap && mount -t tmpfs none "$folder"
    done
    sleep 0.2
done & echo $!
"""


def from_the_restart_on(cluster: Cluster, script: str) -> None:
    cluster.until_recorded('"step":"kubelet-restarted"')
    sh(cluster.lab, f"rm -f /run/over; ({script}) >/dev/null 2>&1")
    cluster.over.wait()
    sh(cluster.lab, "touch /run/over")


def everybody_may_swap(cluster: Cluster) -> None:
    from_the_restart_on(cluster, SWAP_FOR_ALL)


def everything_may_swap(cluster: Cluster) -> None:
    from_the_restart_on(cluster, SWAP_FOR_ALL + SECRETS_MAY_SWAP)


def nobody_pages(cluster: Cluster) -> None:
    from_the_restart_on(cluster, NOBODY_PAGES)


def a_node_that_pages_reports_nothing(cluster: Cluster) -> None:
    cluster.until_recorded('"fault":"swap"')
    refuse_until_over(cluster, "nodes/status")


def nobody_hears_of_its_pods(cluster: Cluster) -> None:
    cluster.until_recorded('"what":"memory.swap.max"')
    refuse_until_over(cluster, "pods/status")


# Capacity


def nobody_hears_of_static_pods(cluster: Cluster) -> None:
    refuse_until_over(cluster, "pods", operation="CREATE")


def somebody_counts_foreign_work(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    spec = pod_spec({"nodeName": cluster.target})
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    start_pod(cluster.lab.cluster.api, cluster.target, spec)
