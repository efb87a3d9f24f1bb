"""Pods of a node whose kubelet is short of memory from its start."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, NOT_READY, UNREACHABLE, Node, Pod, tolerates, unique
from nodeproof.scenario.types import Moment

SHORT = Node("short-of-memory")
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
BODY = {"metadata": {"name": SHORT, "labels": {HOSTNAME_LABEL: SHORT}}, "status": {"capacity": CAPACITY}}
"""The kubelet admits its first pods by the capacity that the Node has before the kubelet reports it."""
SIGNAL = "memory.available"
SETTINGS: Any = {"evictionSoft": {SIGNAL: "99%"}, "evictionSoftGracePeriod": {SIGNAL: "8s"}}
"""No machine has so much memory available. In the grace period all containers start: the kubelet would first
evict a pod without statistics.
"""
PRESSURE = ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
PRIORITIES = (-10, 1000, 100_000)
UP_S, REJECTED_S = 150.0, 25.0
NEXT_S = 40.0
"""The kubelet compares every 10 s (evictionMonitoringPeriod in pkg/kubelet/kubelet.go), and after an eviction
once the pod has ended, or 30 s later (podCleanupTimeout in pkg/kubelet/eviction/eviction_manager.go).
"""
REQUEST = {"requests": {"memory": "1Mi"}}
FOR_EVER = [tolerates(UNREACHABLE), tolerates(NOT_READY)]
"""The Node has no kubelet at first, for as long as its machine takes to boot."""


@needs(nodes=2, duration_s="50")
def test_kubelet_short_of_memory_evicts_pods_in_order_of_priority(lab: Lab, claim: Expectations) -> None:
    """All pods are bound before the kubelet starts, so that it has them when it first compares."""
    report = moments.condition_reported(SHORT, "MemoryPressure", "True", *PRESSURE)
    order = claim("conditions.memory-pressure-evicts")

    with lab.record():
        lab.run(actions.send_request("POST", "/api/v1/nodes", BODY))
        *pods, critical = run_pods(lab)
        lab.run(actions.join(SHORT, **SETTINGS))
        lab.wait_for(report.after(moments.booted(SHORT), UP_S))
        expect_admission(lab, claim)
        ends = [evicted(pod) for pod in pods]
        order.expect(ends[0], within=UP_S, after=moments.booted(SHORT))
        for previous, end in pairwise(ends):
            order.expect(end, within=windows.afterwards(NEXT_S), after=previous)
        order.expect(critical.running, within=UP_S, after=moments.booted(SHORT))
        order.never(evicted(critical), throughout=lab.quiet_s, after=ends[-1])


def run_pods(lab: Lab) -> Sequence[Pod]:
    """Create pods that are bound to the node, in the order of their priority; the last one is critical."""
    classes = [actions.priority_class(value) for value in PRIORITIES]
    for entry in classes:
        lab.run(entry.make)
    below_default, *others = (entry.name for entry in classes)
    names = (below_default, "", *others, "system-node-critical")
    return [create_pod(lab, REQUEST, priorityClassName=name) for name in names]


def create_pod(lab: Lab, resources: Any, **fields: Any) -> Pod:
    """Create a pod that is bound to the node, and return it."""
    pod = Pod("nodeproof", unique("under-pressure"), SHORT)
    container = {"name": "main", "image": "nodeproof.local/pause:1", "resources": resources}
    lab.run(actions.create_pod(pod, containers=[container], tolerations=FOR_EVER, **fields))
    return pod


def evicted(pod: Pod) -> Moment:
    """Return the moment when the kubelet evicted a pod.

    Its phase does not last in a fake container runtime: containers exit with 0 at once, and the kubelet
    overwrites Failed with Succeeded.
    """
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    return pod.became({"status": {"conditions": [condition]}})


def expect_admission(lab: Lab, claim: Expectations) -> None:
    """Expect that the kubelet rejects a pod that requests nothing, and admits the other, which it evicts."""
    admission = claim("conditions.memory-pressure-admission")
    best_effort, burstable = create_pod(lab, {}), create_pod(lab, REQUEST)
    rejected = {"phase": "Failed", "message": {"$contains": "node had condition: [MemoryPressure]"}}
    rejection = best_effort.became({"status": rejected})
    admission.expect(rejection, within=REJECTED_S, after=best_effort.created)
    admission.expect(evicted(burstable), within=UP_S + NEXT_S, after=burstable.created)
