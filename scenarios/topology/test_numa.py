"""A machine of two NUMA nodes, and whose CPUs and memory its kubelet gives to one container."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Check,
    Pod,
    Shape,
    Stage,
    became,
    booted,
    cgroup_file,
    changed,
    claims,
    condition_became,
    file_of,
    join,
    kubectl,
    kubelet_field,
    needs,
    next_of,
    pending_pod,
    pod_bound,
    pod_created,
    pod_gone,
    shows,
    start_again,
    windows,
)

NAME = "of-two-numa-nodes"
CPUS, NUMA_NODES = 4, 2
POLICY = "topologyManagerPolicy"
EXCLUSIVE: Any = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "0",
    "systemReserved": {"memory": "350Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "450Mi"}}],
}
"""What is set aside is one CPU of the first NUMA node and most of its memory."""
LARGER_THAN_A_NUMA_NODE = {"cpu": "3", "memory": "64Mi"}
ROOM_IN_ONE = {"cpu": "1", "memory": "200Mi"}
UP_S, STARTS_S, RESTARTED_S, GONE_S, REFUSED_S = 120, 90, 60, 60, 10
"""An emulated machine takes so long."""
REFUSED = {"status": {"phase": "Failed", "reason": "TopologyAffinityError"}}
RUNS = {"status": {"phase": "Running"}}


def members(ranges: str) -> list[str]:
    """Each CPU of a list as the kernel tells it, `0-1,3`."""
    ends = [(each.partition("-")[0], each.rpartition("-")[2]) for each in ranges.split(",")]
    return [str(cpu) for first, last in ends for cpu in range(int(first), int(last) + 1)]


@claims("topology.default-none", "topology.policy-single-numa", "topology.hints-align")
@needs(nodes=2, features=("shapes", "systemd", "real-pods"), lasts="180")
def test_a_kubelet_aligns_what_it_gives_where_it_is_told_to(lab: Stage, judge: Judge) -> None:
    """The same pod before and after; one that could have a CPU of either node, and memory of one."""
    aligning = start_again(NAME, "--topology-manager-policy=single-numa-node")
    reports = next_of(changed("nodes", NAME, "status.conditions[].lastHeartbeatTime"), after=aligning.ended)

    def comes_to(pod: Pod, pattern: Any, within_s: float) -> Check:
        bound = pod_bound(pod.namespace, pod.name)
        lab.wait_for(bound.after(pod_created(pod.namespace, pod.name), windows.prompt(STARTS_S)))
        reached = became("pods", pod.name, pattern, pod.namespace)
        return lab.wait_for(reached.after(bound, windows.prompt(within_s)))

    def goes(pod: Pod) -> None:
        delete = kubectl("delete", "pod", pod.name, "-n", pod.namespace, "--wait=false")
        lab.do(delete)
        gone = pod_gone(pod.namespace, pod.name)
        lab.wait_for(gone.after(delete.begun, windows.prompt(GONE_S)))

    with lab.record():
        lab.do(join(NAME, shape=Shape(cpus=CPUS, numa_nodes=NUMA_NODES), **EXCLUSIVE))
        lab.wait_for(condition_became(NAME, "Ready", "True").after(booted(NAME), windows.prompt(UP_S)))
        before = lab.look(kubelet_field(NAME, POLICY))
        cells = [
            lab.look(file_of(NAME, f"/sys/devices/system/node/node{cell}/cpulist"))
            for cell in range(NUMA_NODES)
        ]
        spread = lab.do(pending_pod(only_on=NAME, limits=LARGER_THAN_A_NUMA_NODE))
        admitted = comes_to(spread, RUNS, STARTS_S)
        goes(spread)

        lab.do(aligning)
        lab.wait_for(reports.after(aligning.ended, windows.prompt(RESTARTED_S)))
        too_large = lab.do(pending_pod(only_on=NAME, limits=LARGER_THAN_A_NUMA_NODE))
        refused = comes_to(too_large, REFUSED, REFUSED_S)
        goes(too_large)
        aligned = lab.do(pending_pod(only_on=NAME, limits=ROOM_IN_ONE))
        comes_to(aligned, RUNS, STARTS_S)
        cpus, memory = (
            lab.look(cgroup_file(aligned, f"cpuset.{what}.effective")) for what in ("cpus", "mems")
        )

    _first, second = (members(each.value) for each in cells)
    for check in (shows(before, "none"), admitted):
        judge("topology.default-none", check)
    judge("topology.policy-single-numa", refused)
    for check in (shows(memory, "1"), shows(cpus, {"$in": second})):
        judge("topology.hints-align", check)
