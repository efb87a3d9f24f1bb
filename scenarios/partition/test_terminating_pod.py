"""A Terminating pod of an unreachable node, which only its kubelet may remove."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE
from nodeproof.scenario.sources import audit

STUCK_S = 85
"""Longer than anything that the pod garbage collector does: an orphan's quarantine and two passes (s)."""


@needs(nodes=2, faulted=1, duration_s=f"G + 2P + {STUCK_S} + 25")
def test_no_pod_is_force_deleted_while_its_node_is_unreachable(lab: Lab, claim: Expectations) -> None:
    """It requests the deletion once, and leaves the removal of the pod to its kubelet."""
    node, stuck = lab.target, claim("partition.no-force-delete")
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    unreachable = node.taint(UNREACHABLE, "NoExecute").added
    by_others = {"verb": "delete", "user": {"$not": f"system:node:{node}"}}
    deletes = audit(**by_others, resource="pods", namespace=pod.namespace, name=pod.name)

    with lab.record(status_of=pod):
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_for(node.unknown.after(fault.injected_at, windows.detection_from_fault()))
            stuck.expect(pod.deletion, within=windows.toleration(lab.toleration_s), after=unreachable)
            stuck.never(pod.removal, throughout=windows.absence(STUCK_S), after=pod.deletion)
        lab.wait_for(pod.removal.after(fault.healing_at, windows.recovery()))
        lab.collect(deletes)
        stuck.expect_later(checks.counted(deletes.request, 1, 1, **fault.span))
        stuck.expect_later(
            checks.shown_throughout(probes.STATUS, pod.name, "Terminating", pod.deletion, fault.healing_at)
        )
