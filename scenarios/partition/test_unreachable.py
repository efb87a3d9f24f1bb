"""A node that is cut off from the control plane, and its pods."""

from collections.abc import Sequence
from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, PRESENT, UNREACHABLE, Pod
from nodeproof.scenario.types import Injection, Observation

REASON = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


@needs(nodes=2, faulted=1, duration_s="G + 2P + 80")
def test_pods_of_partitioned_node_are_evicted_after_toleration(lab: Lab, claim: Expectations) -> None:
    node, tainted = lab.target, claim("taints.unreachable-noexecute")
    override, toleration = claim("eviction.toleration-seconds-override"), windows.toleration(lab.toleration_s)
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unreachable, not_ready = (node.taint(key).added for key in (UNREACHABLE, NOT_READY))
    dated = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": PRESENT}

    with lab.record(status_of=pod):
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_for(node.unknown.never_after(fault.injected_at, lab.configuration["G"] / 2))
            silent = lab.observe(probes.node_field(node, "status.conditions"))
            lab.wait_until_lost(node, fault)
            claim("monitoring.detection-time").expect_later(node.detection)
            unknown = moments.condition_reported(node, "Ready", "Unknown", *REASON)
            claim("monitoring.unknown-reason").expect_later(unknown, after=fault.injected_at)
            expect_time_of_loss(lab, claim, silent, pod)
            tainted.expect(unreachable, within=windows.taint_pass(), after=node.unknown)
            with_date = node.became({"spec": {"taints": [dated]}})
            tainted.expect_later(with_date, within=windows.taint_pass(), after=node.unknown)
            tainted.expect_none(not_ready, **fault.span)
            override.expect(pod.deletion, within=toleration, after=unreachable)
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


@needs(nodes=2, faulted=1, duration_s="G + 8P + 1/E + 10")
def test_gauges_of_a_zone_count_its_lost_node(lab: Lab, claim: Expectations) -> None:
    """The taint of the node is removed by hand, and comes back."""
    node = lab.target
    zone = next(entry.zone for entry in lab.nodes() if entry.name == node)
    nodes = [entry.name for entry in lab.nodes() if entry.zone == zone]
    unhealthy_nodes = probes.zone_metric("unhealthy_nodes_in_zone", zone)
    # The gauges show the state of the last pass.
    one_pass_s = lab.configuration["P"] + 1.0
    unreachable = node.taint(UNREACHABLE)

    with lab.record():
        lab.wait_for(node.unknown.never_after(moments.recording_began(), one_pass_s))
        unhealthy = count_not_ready(lab, nodes)
        claim("zones.metrics").expect_value(lab.observe(unhealthy_nodes), unhealthy)
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            lab.wait_for(node.ready.never_after(node.unknown, one_pass_s))
            size, unhealthy = len(nodes), unhealthy + 1
            health = 100 * (size - unhealthy) / size
            gauges = {"zone_size": size, "unhealthy_nodes_in_zone": unhealthy, "zone_health": health}
            for name, value in gauges.items():
                claim("zones.metrics").expect_value(lab.observe(probes.zone_metric(name, zone)), value)
            lab.wait_for(unreachable.added.after(node.unknown, windows.taint_pass()))
            lab.run(actions.kubectl("taint", "node", node, f"{UNREACHABLE}:NoExecute-"))
            again = moments.first_after(unreachable.added, after=unreachable.removed)
            tainted = claim("taints.unreachable-noexecute")
            tainted.expect(again, within=windows.taint_pass(), after=unreachable.removed)


def count_not_ready(lab: Lab, nodes: Sequence[str]) -> int:
    """Count the nodes that are not Ready by their Nodes: none, unless the lab has quarantined nodes."""
    count = 0
    for node in nodes:
        conditions = lab.observe(probes.node_field(node, "status.conditions")).value
        count += ("Ready", "True") not in {(entry["type"], entry["status"]) for entry in conditions}
    return count


def expect_terminating(claim: Expectations, pod: Pod, fault: Injection) -> None:
    """Expect the pod to be Terminating until the fault is healed, never Unknown or removed."""
    terminating, never_unknown = claim("partition.terminating"), claim("partition.unknown-state")
    shown = checks.shown_throughout(probes.STATUS, pod.name, "Terminating", pod.deletion, fault.healing_at)
    terminating.expect_later(shown)
    for status in ({"reason": "NodeLost"}, {"phase": "Unknown"}):
        never_unknown.expect_none(pod.became({"status": status}), **fault.span)
    not_shown = checks.not_listed(probes.STATUS, pod.name, "Unknown", until=fault.healing_at)
    never_unknown.expect_later(not_shown)
    terminating.never(pod.removal, throughout=windows.pod_gc_pass(), after=pod.deletion)


def expect_taints_removed(lab: Lab, claim: Expectations) -> None:
    node, removed_on_recovery = lab.target, claim("taints.removed-on-recovery")
    no_schedule, no_execute = (node.taint(UNREACHABLE, effect) for effect in ("NoSchedule", "NoExecute"))
    removed_on_recovery.expect(no_schedule.removed, within=2, after=node.ready)
    removed_on_recovery.expect(no_execute.removed, within=windows.monitor_pass(), after=node.ready)
    for taint in (no_schedule, no_execute):
        removed_on_recovery.never(taint.added, throughout=windows.pod_gc_pass(), after=taint.removed)
