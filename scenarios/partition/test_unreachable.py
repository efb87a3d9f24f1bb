"""A node that is cut off from the control plane, and what becomes of its pods."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    STATUS,
    UNREACHABLE,
    Stage,
    became,
    claims,
    condition_became,
    condition_said,
    last_heartbeat,
    metric,
    needs,
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
    size = sum(entry.zone == zone for entry in lab.nodes())
    exports = {name: metric(MANAGER, name, zone=f":\x00:{zone}") for name in (SIZE, UNHEALTHY, HEALTH)}
    deletion, removal = pod_deletion(pod.namespace, pod.name), pod_gone(pod.namespace, pod.name)

    with lab.record(status_of=pod):
        # The gauges are as old as the last pass.
        a_pass = windows.absence(lab.configuration["P"] + 1.0)
        lab.wait_for(unknown.never_after(recording_began(), a_pass))
        lost = 1 + (lab.look(exports[UNHEALTHY]).value or 0)
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
    judge("taints.unreachable-noexecute", tainted)
    judge("eviction.toleration-seconds-override", evicted)
    judge("partition.terminating", shown_throughout(STATUS, pod.name, "Terminating", deletion, cut.healing))
    judge("partition.terminating", stays)
    never_said = (
        became("pods", pod.name, {"status": status}, pod.namespace)
        for status in ({"reason": "NodeLost"}, {"phase": "Unknown"})
    )
    for moment in never_said:
        judge("partition.unknown-state", moment.never_after(unreachable, windows.absence(lab.toleration_s)))
    for seen, value in exported:
        judge("zones.metrics", shows(seen, value))
    for effect_is_gone in untainted:
        judge("taints.removed-on-recovery", effect_is_gone)
