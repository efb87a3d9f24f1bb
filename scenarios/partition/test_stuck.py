"""A pod of an unreachable node that is Terminating, and whether anybody removes it."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    STATUS,
    UNREACHABLE,
    Stage,
    audit,
    claims,
    condition_became,
    counted,
    needs,
    partition,
    pod_deletion,
    pod_gone,
    run_pod,
    shown_throughout,
    taint_added,
    windows,
)

STUCK_S = 85
"""Longer than the pod garbage collector takes for anything: an orphan's quarantine and two of its passes."""


@claims("partition.no-force-delete")
@needs(nodes=2, faulted=1, lasts=f"G + 2P + {STUCK_S} + 25")
def test_the_control_plane_removes_no_pod_by_force_as_long_as_its_node_is_unreachable(
    lab: Stage, judge: Judge
) -> None:
    """It asks for the deletion once, and leaves the pod to its kubelet."""
    node = lab.target
    pod = lab.do(run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unknown, unreachable = (
        condition_became(node, "Ready", "Unknown"),
        taint_added(node, UNREACHABLE, "NoExecute"),
    )
    deletion, removal = pod_deletion(pod.namespace, pod.name), pod_gone(pod.namespace, pod.name)
    by_others = {"verb": "delete", "user": {"$not": f"system:node:{node}"}}
    deleted = audit(**by_others, resource="pods", namespace=pod.namespace, name=pod.name)

    with lab.record(status_of=pod):
        with lab.inject(partition(node)) as cut:
            lab.wait_for(unknown.after(cut.began, windows.detection_from_fault()))
            asked = lab.wait_for(deletion.after(unreachable, windows.toleration(lab.toleration_s)))
            stays = lab.wait_for(removal.never_after(deletion, windows.absence(STUCK_S)))
        lab.wait_for(removal.after(cut.healing, windows.recovery()))
        lab.hear(deleted)

    once = counted(deleted.request, 1, 1, after=cut.began, until=cut.healing)
    throughout = shown_throughout(STATUS, pod.name, "Terminating", deletion, cut.healing)
    for check in (asked, stays, once, throughout):
        judge("partition.no-force-delete", check)
