"""CPUs and memory of containers on a machine with two NUMA nodes."""

from collections.abc import Mapping
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes
from nodeproof.scenario.kubernetes import Node, Pod
from nodeproof.scenario.types import Shape

NODE = Node("of-two-numa-nodes")
CPUS, NUMA_NODES = 4, 2
EXCLUSIVE: Any = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "0",
    "systemReserved": {"memory": "350Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "450Mi"}}],
}
"""One CPU of the first NUMA node is reserved, and most of its memory."""
LARGER_THAN_A_NUMA_NODE = {"cpu": "3", "memory": "64Mi"}
ROOM_IN_ONE = {"cpu": "1", "memory": "200Mi"}
UP_S, CONTAINER_START_S, RESTART_S, REMOVAL_S = 120, 90, 60, 60
"""Times of an emulated machine."""


@needs(nodes=2, features=("shapes", "systemd", "real-pods"), duration_s="180")
def test_single_numa_node_policy_aligns_cpus_and_memory(lab: Lab, claim: Expectations) -> None:
    """The same pod runs before and is refused after; another one could get a CPU of either NUMA node."""
    aligning = actions.restart_joined(NODE, "--topology-manager-policy=single-numa-node")
    report = moments.first_after(NODE.status_report, after=aligning.ended)
    default, refuses = claim("topology.default-none"), claim("topology.policy-single-numa")

    with lab.record():
        lab.run(actions.join(NODE, shape=Shape(cpus=CPUS, numa_nodes=NUMA_NODES), **EXCLUSIVE))
        lab.wait_for(NODE.ready.after(moments.booted(NODE), UP_S))
        default.expect_value(lab.observe(probes.kubelet_field(NODE, "topologyManagerPolicy")), "none")
        _first, second = cpus_of_cells(lab)
        spread = bind_pod(lab, LARGER_THAN_A_NUMA_NODE)
        default.expect(spread.running, within=CONTAINER_START_S, after=spread.bound)
        delete_pod(lab, spread)

        lab.run(aligning)
        lab.wait_for(report.after(aligning.ended, RESTART_S))
        too_large = bind_pod(lab, LARGER_THAN_A_NUMA_NODE)
        refused = too_large.became({"status": {"phase": "Failed", "reason": "TopologyAffinityError"}})
        refuses.expect(refused, within=10, after=too_large.bound)
        delete_pod(lab, too_large)
        aligned = bind_pod(lab, ROOM_IN_ONE)
        lab.wait_for(aligned.running.after(aligned.bound, CONTAINER_START_S))
        cpus = lab.observe(probes.cgroup_file(aligned, "cpuset.cpus.effective"))
        memory = lab.observe(probes.cgroup_file(aligned, "cpuset.mems.effective"))
        claim("topology.hints-align").expect_value(memory, "1")
        claim("topology.hints-align").expect_value(cpus, {"$in": second})


def cpus_of_cells(lab: Lab) -> list[list[str]]:
    """Observe the CPUs of each NUMA node."""
    paths = [f"/sys/devices/system/node/node{cell}/cpulist" for cell in range(NUMA_NODES)]
    return [parse_cpu_list(lab.observe(probes.file_of(NODE, path)).value) for path in paths]


def parse_cpu_list(ranges: str) -> list[str]:
    """Return the CPUs of a kernel's CPU list, such as `0-1,3`."""
    ends = [(span.partition("-")[0], span.rpartition("-")[2]) for span in ranges.split(",")]
    return [str(cpu) for first, last in ends for cpu in range(int(first), int(last) + 1)]


def bind_pod(lab: Lab, limits: Mapping[str, str]) -> Pod:
    """Create a pod with these limits, and wait until it is bound to the node."""
    pod = lab.run(actions.pending_pod(only_on=NODE, limits=limits))
    lab.wait_for(pod.bound.after(pod.created, CONTAINER_START_S))
    return pod


def delete_pod(lab: Lab, pod: Pod) -> None:
    """Delete a pod, and wait until it is removed."""
    delete = actions.kubectl("delete", "pod", pod.name, "-n", pod.namespace, "--wait=false")
    lab.run(delete)
    lab.wait_for(pod.removal.after(delete.begun, REMOVAL_S))
