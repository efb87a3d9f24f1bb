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
from tests.acceptance.altered import SLACK_S, Cluster, requests_denied
from tests.waiting import eventually, pause, throughout

COMMAND_TIMEOUT_S = 60.0
KUBELET_CONFIG, KUBELET_ENVIRONMENT = "/etc/kubernetes/kubelet.json", "/etc/default/kubelet"
KILL_WITNESSES = "for p in $(pgrep -f nodeproof/witness); do [ $p = $$ ] || kill -KILL $p; done"


def run_script(lab: LabHandle, script: str) -> None:
    """Run a script on the target node."""
    machine = lab.fleet.machine(lab.fleet.node_names()[0])
    # The scenarios run in another process, so the node may have booted since the last call.
    machine.close()
    process = machine.run(["sh", "-c", script], timeout_s=COMMAND_TIMEOUT_S)
    assert process.status == 0, process.stderr


def admission_rule(resource: str, operation: str, group: str) -> Json:
    """Return the rule of an admission policy about an operation on a resource."""
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}


@contextmanager
def kubelet_denied(
    cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = ""
) -> Iterator[None]:
    """Make the API server deny one kind of request of the target's kubelet."""
    rule = admission_rule(resource, operation, group)
    own = {"name": "own", "expression": f"request.userInfo.username == 'system:node:{cluster.target}'"}
    with requests_denied(cluster, [rule], [own]):
        yield


def deny_kubelet(cluster: Cluster, resource: str, *, operation: str = "UPDATE", group: str = "") -> None:
    """Make the API server deny one kind of request of the target's kubelet until the scenarios end."""
    with kubelet_denied(cluster, resource, operation=operation, group=group):
        cluster.scenarios_ended.wait()


def stop_kubelet_and_containers(cluster: Cluster) -> None:
    """Stop the target's kubelet and kill its containers; start the kubelet when the scenarios end."""
    run_script(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.scenarios_ended.wait()
    run_script(cluster.lab, "systemctl start kubelet")


def patch_ready_condition(cluster: Cluster, status: str) -> None:
    """Write a status into the target's condition Ready."""
    conditions = cluster.node()["status"]["conditions"]
    altered = [{**entry, "status": status} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": altered}})


@contextmanager
def kubelet_restarted_with(cluster: Cluster, file: str, edit: str) -> Iterator[None]:
    """Change a file of the target with sed, and restart its kubelet."""
    lab, restart = cluster.lab, "systemctl restart kubelet"
    run_script(lab, f"cp -p {file} {file}.kept && sed -i '{edit}' {file} && {restart}")
    try:
        assert eventually(lambda: kubelet_configz(lab.cluster.api, cluster.target), COMMAND_TIMEOUT_S)
        yield
    finally:
        run_script(lab, f"mv {file}.kept {file} && {restart}")
        lab.wait_nodes_ready()


# Shutdowns, and containers of lost nodes


LOGIND_DROP_IN = "/etc/systemd/logind.conf.d/nodeproof.conf"
INVALID_DBUS_ADDRESS = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
PRIORITY_GATE = "GracefulNodeShutdownBasedOnPodPriority"
DELAY_LOCK = "systemd-inhibit --what=shutdown --mode=delay --who=operator"


def kubelet_has_no_dbus(cluster: Cluster) -> AbstractContextManager[None]:
    return kubelet_restarted_with(cluster, KUBELET_ENVIRONMENT, f"$a{INVALID_DBUS_ADDRESS}")


def priority_shutdown_gate_is_off(cluster: Cluster) -> AbstractContextManager[None]:
    edit = f's/}}$/, "featureGates": {{"{PRIORITY_GATE}": false}}}}/'
    return kubelet_restarted_with(cluster, KUBELET_CONFIG, edit)


def shutdown_grace_period_is_set(cluster: Cluster) -> AbstractContextManager[None]:
    return kubelet_restarted_with(cluster, KUBELET_CONFIG, 's/}$/, "shutdownGracePeriod": "20s"}/')


@contextmanager
def logind_drop_in_is_empty(cluster: Cluster) -> Iterator[None]:
    try:
        with kubelet_restarted_with(cluster, LOGIND_DROP_IN, "d"):
            yield
    finally:
        run_script(cluster.lab, "systemctl kill --signal=HUP systemd-logind.service")


@contextmanager
def foreign_delay_lock_is_held(cluster: Cluster) -> Iterator[None]:
    run_script(cluster.lab, f"systemd-run --quiet --collect --unit=own-lock {DELAY_LOCK} sleep 900")
    yield


def deletion_stops_kubelet_and_containers(cluster: Cluster) -> None:
    cluster.until_pod_is_terminating()
    stop_kubelet_and_containers(cluster)


def lost_node_is_reported_not_ready(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.injected("power-off") or cluster.injected("shutdown"))
    patch_ready_condition(cluster, "False")


def containers_are_killed_during_shutdown(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    run_script(cluster.lab, f"sleep 2; {KILL_WITNESSES}")


def force_deletion_stops_kubelet_and_containers(cluster: Cluster) -> None:
    """Kill the containers of the deleted pod; the stopped kubelet does not restart them."""
    cluster.until_injected("partition")
    cluster.until(lambda: cluster.pod() is None)
    stop_kubelet_and_containers(cluster)


def restarted_kubelet_is_stopped(cluster: Cluster) -> None:
    """Stop the kubelet after its restart; healing the shutdown starts it."""
    cluster.until_recorded(f'"restart the kubelet of {cluster.target}","step":"ended"')
    run_script(cluster.lab, "systemctl stop kubelet")


def pod_phase_is_set_to_failed(cluster: Cluster) -> None:
    cluster.until_injected("shutdown")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    status = f"{pod(NAMESPACE, cluster.pod()['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"phase": "Failed"}})


def lease_renewals_are_denied_during_shutdown(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    deny_kubelet(cluster, "leases", group="coordination.k8s.io")


# Volumes that are attached to machines


ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
WRITTEN_FILE = "file=$(ls /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount/written)"
DETACH_DELAY_S = 15.0
"""Longer than an immediate detach, and shorter than the start of the pod on the other node."""
AFTER_DELETION_S = 5.0
"""Longer than the slack on machines."""


def attachments(cluster: Cluster) -> list[Json]:
    """Return the attachments of the driver's volumes."""
    objects = cluster.lab.cluster.api.get(ATTACHMENTS)["items"]
    return [attachment for attachment in objects if attachment["spec"]["attacher"] == DRIVER]


def until_pods_are_terminating(cluster: Cluster) -> None:
    """Wait until a pod has its deletion timestamp."""
    cluster.until(lambda: terminating_pods(cluster))


def delete_attachments(cluster: Cluster) -> None:
    for attachment in attachments(cluster):
        cluster.lab.cluster.api.delete(f"{ATTACHMENTS}/{attachment['metadata']['name']}")


def attachments_of_terminating_pods_are_deleted(cluster: Cluster) -> None:
    until_pods_are_terminating(cluster)
    pause(AFTER_DELETION_S)
    delete_attachments(cluster)


def disks_are_attached_to_another_machine(cluster: Cluster) -> None:
    until_pods_are_terminating(cluster)
    other = cluster.lab.fleet.node_names()[1]
    attacher = cluster.lab.fleet.machine(ATTACHER)
    for attachment in attachments(cluster):
        argv = ["sh", DISKS, "attach", handle(attachment["spec"]["source"]["persistentVolumeName"]), other]
        process = attacher.run(argv, timeout_s=COMMAND_TIMEOUT_S)
        assert process.status == 0, process.stderr


def volume_detach_is_denied(cluster: Cluster) -> None:
    rule = admission_rule("volumeattachments", "DELETE", "storage.k8s.io")
    # The controller deletes attachments as soon as there is a taint.
    cluster.until(lambda: attachments(cluster))
    with requests_denied(cluster, [rule]):
        cluster.until_injected("taint")
        cluster.until(lambda: not terminating_pods(cluster))
        pause(DETACH_DELAY_S)


def terminating_pods(cluster: Cluster) -> list[Json]:
    """Return the pods that have a deletion timestamp."""
    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    return [pod for pod in items if "deletionTimestamp" in pod["metadata"]]


def attachments_are_deleted_before_pods(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    delete_attachments(cluster)


def other_node_is_cordoned(cluster: Cluster) -> None:
    other = node(cluster.lab.fleet.node_names()[1])
    until_pods_are_terminating(cluster)
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": True}})
    cluster.scenarios_ended.wait()
    cluster.lab.cluster.api.patch(other, {"spec": {"unschedulable": None}})


def written_file_is_truncated(cluster: Cluster) -> None:
    change_written_file(cluster, ": >$file")


def partial_line_is_appended(cluster: Cluster) -> None:
    change_written_file(cluster, "printf '9 nod' >>$file")


def change_written_file(cluster: Cluster, command: str) -> None:
    """Run a command on the pod's file as soon as its volume is mounted on the other machine."""
    cluster.until_injected("taint")
    other = cluster.lab.fleet.machine(cluster.lab.fleet.node_names()[1])

    def is_finished() -> bool:
        argv = ["sh", "-c", f"{WRITTEN_FILE} && {command}"]
        return other.run(argv, timeout_s=COMMAND_TIMEOUT_S).status == 0

    cluster.until(is_finished)


def taint_stops_kubelet_and_containers(cluster: Cluster) -> None:
    cluster.until_injected("taint")
    stop_kubelet_and_containers(cluster)


# Node status, and kubelets that stop, lose their Node or have another clock


CNI_CONFIG, EARLIER_CNI_CONFIG = (f"/etc/cni/net.d/{name}.conflist" for name in ("10-nodeproof", "05-other"))
OTHER_TEXT, OTHER_ADDRESS = "nodeproof-was-here", "198.51.100.1"
OTHER_CAPACITY = {"cpu": "7", "memory": "6Gi", "pods": "17"}
STATUS_UPDATE_S = 6.0
"""Longer than a kubelet needs in `fast` to overwrite a foreign status, if it may."""
RUNTIME_SOCKET, MISSING_SOCKET = "/run/containerd/containerd.sock", "/run/unused.sock"


def node_status_is_denied_without_runtime(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    deny_kubelet(cluster, "nodes/status")


def containers_and_mirror_pods_are_deleted(cluster: Cluster) -> None:
    cluster.until_injected("unit-down")
    run_script(cluster.lab, KILL_WITNESSES)
    cluster.until_unreachable()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    api = cluster.lab.cluster.api
    for bound_pod in api.get(pods(NAMESPACE))["items"]:
        if any(owner["kind"] == "Node" for owner in bound_pod["metadata"].get("ownerReferences", ())):
            api.delete(pod(NAMESPACE, bound_pod["metadata"]["name"]))


def missing_runtime_socket_is_created(cluster: Cluster) -> None:
    run_script(cluster.lab, f"ln -sf {RUNTIME_SOCKET} {MISSING_SOCKET}")
    cluster.scenarios_ended.wait()
    run_script(cluster.lab, f"rm {MISSING_SOCKET}")


def node_deletion_stops_kubelet(cluster: Cluster) -> None:
    """Stop the kubelet of a deleted Node; healing the deletion starts it."""
    cluster.until_injected("node-deleted")
    run_script(cluster.lab, "systemctl stop kubelet")


def ready_node_is_reported_unknown(cluster: Cluster) -> None:
    """Report Ready as Unknown, as if only the Lease counted."""
    cluster.until_injected("kubelet-settings")
    cluster.until_ready()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    patch_ready_condition(cluster, "Unknown")


def status_of_another_machine(status: Json) -> Json:
    """Return a status that differs in all that a kubelet reports, except what identifies the node.

    That is its first address and its machine ID, which the guard compares before a fault.
    """
    node_info = dict.fromkeys(status["nodeInfo"], OTHER_TEXT) | {"machineID": status["nodeInfo"]["machineID"]}
    internal = [address for address in status["addresses"] if address["type"] == "InternalIP"]
    others = {"InternalIP": OTHER_ADDRESS, "ExternalIP": OTHER_ADDRESS, "Hostname": OTHER_TEXT}
    return {
        "nodeInfo": node_info,
        "addresses": internal + [{"type": type_, "address": others[type_]} for type_ in others],
        "conditions": [{**condition, "message": OTHER_TEXT} for condition in status["conditions"]],
        "capacity": OTHER_CAPACITY,
        "allocatable": OTHER_CAPACITY,
    }


@contextmanager
def second_cni_config_is_present(cluster: Cluster) -> Iterator[None]:
    run_script(cluster.lab, f"cp {CNI_CONFIG} {EARLIER_CNI_CONFIG}")
    try:
        yield
    finally:
        run_script(cluster.lab, f"rm {EARLIER_CNI_CONFIG}")


def node_status_updates_are_denied(cluster: Cluster) -> AbstractContextManager[None]:
    return kubelet_denied(cluster, "nodes/status")


@contextmanager
def node_reports_another_machine(cluster: Cluster) -> Iterator[None]:
    """Write the status of another machine into the Node; its kubelet may not overwrite it."""
    path = f"{node(cluster.target)}/status"

    def is_reported() -> bool:
        return bool(cluster.node()["status"]["nodeInfo"]["bootID"] == OTHER_TEXT)

    def stays_reported() -> bool:
        if not is_reported():
            status = status_of_another_machine(cluster.node()["status"])
            cluster.lab.cluster.api.patch(path, {"status": status})
        return throughout(is_reported, STATUS_UPDATE_S)

    with kubelet_denied(cluster, "nodes/status"):
        assert eventually(stays_reported, COMMAND_TIMEOUT_S)
        yield
    assert eventually(lambda: not is_reported(), COMMAND_TIMEOUT_S)


# Nodes that join: two NUMA nodes, cgroup v1


NUMA_NODE, CGROUP_V1_NODE = "of-two-numa-nodes", "of-cgroup-v1"
KUBELET, ORIGINALS = "/usr/local/bin/kubelet", "/usr/local/lib/real"
"""All components are one executable that acts by its file name, so the original keeps its name."""
IGNORES_SETTINGS = f"""
mkdir -p {ORIGINALS}
[ -e {ORIGINALS}/kubelet ] || mv {KUBELET} {ORIGINALS}
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
exec {ORIGINALS}/kubelet "$@"
END
chmod +x {KUBELET}
"""
ALIGNS_BY_DEFAULT = f"""
config={KUBELET_CONFIG}
grep -q single-numa-node $config || sed -i 's/}}$/, "topologyManagerPolicy": "single-numa-node"}}/' $config
systemctl restart kubelet
"""


def run_on_joining_node(cluster: Cluster, name: str, script: str) -> None:
    """Run a script on a node as soon as its machine answers."""

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


def kubelet_ignores_topology_policy(cluster: Cluster) -> None:
    run_on_joining_node(cluster, NUMA_NODE, IGNORES_SETTINGS)


def kubelet_aligns_by_default(cluster: Cluster) -> None:
    run_on_joining_node(cluster, NUMA_NODE, ALIGNS_BY_DEFAULT)


def kubelet_ignores_limited_swap(cluster: Cluster) -> None:
    run_on_joining_node(cluster, CGROUP_V1_NODE, IGNORES_SETTINGS)


# Swap


def fail_swap_on_is_false(cluster: Cluster) -> AbstractContextManager[None]:
    return kubelet_restarted_with(cluster, KUBELET_CONFIG, 's/}$/, "failSwapOn": false}/')


UNLIMITED_SWAP = """
until [ -e /run/over ]; do
    for limit in $(find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*' -name memory.swap.max); do
        echo max >"$limit"
    done
    sleep 0.2
done & echo $!
"""
# Another process pages as much instead, so that the fault stays injected.
NO_SWAP_FOR_PODS = """
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
SWAPPABLE_VOLUMES = """
until [ -e /run/over ]; do
    for folder in /var/lib/kubelet/pods/*/volumes/kubernetes.io~secret/* \\
        /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/*; do
        grep -F " $folder tmpfs" /proc/mounts | tail -n 1 | grep -q noswap && mount -t tmpfs none "$folder"
    done
    sleep 0.2
done & echo $!
"""


def run_after_kubelet_restart(cluster: Cluster, script: str) -> None:
    """Run a script in the background from the kubelet's restart until the scenarios end."""
    cluster.until_recorded('"step":"kubelet-restarted"')
    run_script(cluster.lab, f"rm -f /run/over; ({script}) >/dev/null 2>&1")
    cluster.scenarios_ended.wait()
    run_script(cluster.lab, "touch /run/over")


def containers_get_unlimited_swap(cluster: Cluster) -> None:
    run_after_kubelet_restart(cluster, UNLIMITED_SWAP)


def containers_and_volumes_may_swap(cluster: Cluster) -> None:
    run_after_kubelet_restart(cluster, UNLIMITED_SWAP + SWAPPABLE_VOLUMES)


def pods_get_no_swap(cluster: Cluster) -> None:
    run_after_kubelet_restart(cluster, NO_SWAP_FOR_PODS)


def node_status_is_denied_during_swap(cluster: Cluster) -> None:
    cluster.until_recorded('"fault":"swap"')
    deny_kubelet(cluster, "nodes/status")


def pod_status_updates_are_denied(cluster: Cluster) -> None:
    cluster.until_recorded('"what":"memory.swap.max"')
    deny_kubelet(cluster, "pods/status")


# Capacity


def mirror_pod_creation_is_denied(cluster: Cluster) -> None:
    deny_kubelet(cluster, "pods", operation="CREATE")


def pod_with_cpu_request_is_started(cluster: Cluster) -> None:
    cluster.until_injected("unit-up")
    spec = pod_spec({"nodeName": cluster.target})
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    start_pod(cluster.lab.cluster.api, cluster.target, spec)
