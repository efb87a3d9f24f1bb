"""A node that is cut off from the control plane, and its pods."""

from collections.abc import Sequence
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, PRESENT, UNREACHABLE, Pod
from nodeproof.scenario.types import Injection, Observation

REASON, MESSAGE = "NodeStatusUnknown", "Kubelet stopped posting node status."

MANAGER = "kube-controller-manager"
SIZE, UNHEALTHY, HEALTH = (
    f"node_collector_{name}" for name in ("zone_size", "unhealthy_nodes_in_zone", "zone_health")
)


@needs(nodes=2, faulted=1, duration_s="G + 2P + 80")
def test_pods_of_partitioned_node_are_evicted_after_toleration(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unreachable, not_ready = (node.taint(key).added for key in (UNREACHABLE, NOT_READY))
    dated = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": PRESENT}

    with lab.record(status_of=pod):
        with lab.inject(faults.partition(node)) as fault:
            half = windows.absence(lab.configuration["G"] / 2)
            lab.wait_for(node.unknown.never_after(fault.injected_at, half))
            silent = lab.observe(probes.field_of(f"/api/v1/nodes/{node}", "status.conditions"))
            lab.wait_until_lost(node, fault)
            claim("monitoring.detection-time").expect_later(
                node.unknown, within=windows.detection(), after=node.last_heartbeat(before=node.unknown)
            )
            unknown = moments.condition_reported(node, "Ready", "Unknown", REASON, MESSAGE)
            claim("monitoring.unknown-reason").expect_later(unknown, after=fault.injected_at)
            expect_time_of_loss(lab, claim, silent, pod)
            claim("taints.unreachable-noexecute").expect(
                unreachable, within=windows.taint_pass(), after=node.unknown
            )
            claim("taints.unreachable-noexecute").expect_later(
                node.became({"spec": {"taints": [dated]}}), within=windows.taint_pass(), after=node.unknown
            )
            no_other_taint = checks.counted(not_ready, 0, 0, **fault.span)
            claim("taints.unreachable-noexecute").expect_later(no_other_taint)
            claim("eviction.toleration-seconds-override").expect(
                pod.deletion, within=windows.toleration(lab.toleration_s), after=unreachable
            )
            expect_terminating(claim, pod, fault)
        lab.wait_until_ready(node, fault)
        expect_taints_removed(lab, claim)


def expect_time_of_loss(lab: Lab, claim: Expectations, silent: Observation, pod: Pod) -> None:
    """Expect that the loss of a node is a transition, and that nothing counts as its heartbeat.

    `silent` are its conditions before its loss, so long after its last report that none is under way.
    """
    node, times = lab.target, claim("conditions.times")
    ready = next(condition for condition in silent.value if condition["type"] == "Ready")
    lab.check_in_time(ready["status"] == "True", otherwise=f"{node} was lost before its conditions were read")
    lost = ready_with(status="Unknown", lastTransitionTime={"$not": ready["lastTransitionTime"]})
    reported = node.became(ready_with(lastHeartbeatTime={"$not": ready["lastHeartbeatTime"]}))
    times.expect_later(node.became(lost), within=1.0, after=node.unknown)
    # A node that is healed reports at once: a count until then would have that report within its slack.
    times.expect_none(reported, after=silent.completed, until=pod.deletion)


def ready_with(**fields: Any) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", **fields}]}}


@needs(nodes=2, faulted=1, duration_s="G + 6P + 10")
def test_gauges_of_a_zone_count_its_lost_node(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    zone = next(entry.zone for entry in lab.nodes() if entry.name == node)
    nodes = [entry.name for entry in lab.nodes() if entry.zone == zone]
    zone_key = f":\x00:{zone}"
    # The gauges show the state of the last pass.
    one_pass = windows.absence(lab.configuration["P"] + 1.0)

    with lab.record():
        lab.wait_for(node.unknown.never_after(moments.recording_began(), one_pass))
        unhealthy = count_not_ready(lab, nodes)
        gauge = lab.observe(probes.metric(MANAGER, UNHEALTHY, zone=zone_key))
        claim("zones.metrics").expect_value(gauge, unhealthy)
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(node.ready.never_after(node.unknown, one_pass))
            expect_gauges(lab, claim, zone_key, size=len(nodes), unhealthy=unhealthy + 1)


def count_not_ready(lab: Lab, nodes: Sequence[str]) -> int:
    """Count the nodes that are not Ready by their Nodes: none, unless the lab has quarantined nodes."""
    nodes_conditions = [
        lab.observe(probes.field_of(f"/api/v1/nodes/{node}", "status.conditions")).value for node in nodes
    ]
    is_ready = [
        ("Ready", "True") in {(condition["type"], condition["status"]) for condition in conditions}
        for conditions in nodes_conditions
    ]
    return is_ready.count(False)


def expect_gauges(lab: Lab, claim: Expectations, zone_key: str, *, size: int, unhealthy: int) -> None:
    gauges = {SIZE: size, UNHEALTHY: unhealthy, HEALTH: 100 * (size - unhealthy) / size}
    for name, value in gauges.items():
        gauge = lab.observe(probes.metric(MANAGER, name, zone=zone_key))
        claim("zones.metrics").expect_value(gauge, value)


def expect_terminating(claim: Expectations, pod: Pod, fault: Injection) -> None:
    """Expect the pod to be Terminating until the fault is healed, never Unknown or removed."""
    shown = checks.shown_throughout(probes.STATUS, pod.name, "Terminating", pod.deletion, fault.healing_at)
    claim("partition.terminating").expect_later(shown)
    for status in ({"reason": "NodeLost"}, {"phase": "Unknown"}):
        change = pod.became({"status": status})
        none = checks.counted(change, 0, 0, **fault.span)
        claim("partition.unknown-state").expect_later(none)
    claim("partition.unknown-state").expect_later(
        checks.not_listed(probes.STATUS, pod.name, "Unknown", until=fault.healing_at)
    )
    claim("partition.terminating").never(pod.removal, throughout=windows.pod_gc_pass(), after=pod.deletion)


def expect_taints_removed(lab: Lab, claim: Expectations) -> None:
    removed_on_recovery = claim("taints.removed-on-recovery")
    node = lab.target
    no_schedule, no_execute = (node.taint(UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute"))
    removed_on_recovery.expect(no_schedule.removed, within=2, after=node.ready)
    removed_on_recovery.expect(no_execute.removed, within=windows.monitor_pass(), after=node.ready)
    for taint in (no_schedule, no_execute):
        removed_on_recovery.never(taint.added, throughout=windows.pod_gc_pass(), after=taint.removed)
