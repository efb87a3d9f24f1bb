"""A node that is cut off from the control plane, and what becomes of its pods."""

from collections.abc import Sequence

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    NOT_READY,
    STATUS,
    UNREACHABLE,
    Stage,
    became,
    claims,
    condition_became,
    condition_said,
    counted,
    field_of,
    last_heartbeat,
    metric,
    needs,
    not_listed,
    partition,
    pod_deletion,
    pod_gone,
    recording_began,
    run_pod,
    shown_throughout,
    shows,
    taint_added,
    taint_removed,
    windows,
)

WHY = ("NodeStatusUnknown", "Kubelet stopped posting node status.")

MANAGER = "kube-controller-manager"
SIZE, UNHEALTHY, HEALTH = (
    f"node_collector_{name}" for name in ("zone_size", "unhealthy_nodes_in_zone", "zone_health")
)


def not_ready(lab: Stage, nodes: Sequence[str]) -> int:
    """How many of them are not Ready, by their Nodes: none, but where a lab has quarantined nodes."""
    told = (lab.look(field_of(f"/api/v1/nodes/{node}", "status.conditions")).value for node in nodes)
    ready = [("Ready", "True") in {(said["type"], said["status"]) for said in each} for each in told]
    return ready.count(False)


@claims(
    "monitoring.detection-time",
    "monitoring.unknown-reason",
    "taints.unreachable-noexecute",
    "eviction.toleration-seconds-override",
    "partition.terminating",
    "partition.unknown-state",
    "taints.removed-on-recovery",
    "zones.metrics",
)
@needs(nodes=2, faulted=1, lasts="G + 2P + 80")
def test_pods_leave_a_partitioned_node_after_their_own_toleration(lab: Stage, judge: Judge) -> None:
    node = lab.target
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unknown = condition_became(node, "Ready", "Unknown")
    said = condition_said(node, "Ready", "Unknown", *WHY)
    ready_again = condition_became(node, "Ready", "True")
    unreachable = taint_added(node, UNREACHABLE, "NoExecute")
    zone = next(entry.zone for entry in lab.nodes() if entry.name == node)
    there = [entry.name for entry in lab.nodes() if entry.zone == zone]
    size = len(there)
    exports = {name: metric(MANAGER, name, zone=f":\x00:{zone}") for name in (SIZE, UNHEALTHY, HEALTH)}
    deletion, removal = pod_deletion(pod.namespace, pod.name), pod_gone(pod.namespace, pod.name)

    with lab.record(status_of=pod):
        # The gauges are as old as the last pass.
        a_pass = windows.absence(lab.configuration["P"] + 1.0)
        lab.wait_for(unknown.never_after(recording_began(), a_pass))
        ill = not_ready(lab, there)
        before = lab.look(exports[UNHEALTHY])
        lost = ill + 1
        counts = {SIZE: size, UNHEALTHY: lost, HEALTH: 100 * (size - lost) / size}
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            tainted = lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
            evicted = lab.wait_for(deletion.after(unreachable, windows.toleration(lab.toleration_s)))
            exported = [(lab.look(exports[name]), value) for name, value in counts.items()]
            stays = lab.wait_for(removal.never_after(deletion, windows.pod_gc_pass()))
        lab.wait_for(ready_again.after(cut.healing, windows.recovery()))
        untainted = [
            lab.wait_for(taint_removed(node, UNREACHABLE, effect).after(ready_again, window))
            for effect, window in (("NoSchedule", windows.prompt(2)), ("NoExecute", windows.monitor_pass()))
        ]
        for effect in ("NoSchedule", "NoExecute"):
            back, gone = taint_added(node, UNREACHABLE, effect), taint_removed(node, UNREACHABLE, effect)
            untainted.append(lab.wait_for(back.never_after(gone, windows.pod_gc_pass())))

    judge("monitoring.detection-time", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    judge("monitoring.unknown-reason", said.after(cut.began, judge.window("monitoring.unknown-reason")))
    other = taint_added(node, NOT_READY, "NoExecute")
    for check in (tainted, counted(other, 0, 0, after=cut.began, until=cut.healing)):
        judge("taints.unreachable-noexecute", check)
    judge("eviction.toleration-seconds-override", evicted)
    judge("partition.terminating", shown_throughout(STATUS, pod.name, "Terminating", deletion, cut.healing))
    judge("partition.terminating", stays)
    never_said = (
        became("pods", pod.name, {"status": status}, pod.namespace)
        for status in ({"reason": "NodeLost"}, {"phase": "Unknown"})
    )
    for moment in never_said:
        judge("partition.unknown-state", counted(moment, 0, 0, after=cut.began, until=cut.healing))
    judge("partition.unknown-state", not_listed(STATUS, pod.name, "Unknown", until=cut.healing))
    for seen, value in ((before, ill), *exported):
        judge("zones.metrics", shows(seen, value))
    for effect_is_gone in untainted:
        judge("taints.removed-on-recovery", effect_is_gone)
