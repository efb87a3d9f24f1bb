"""A Terminating pod of an unreachable node, which only its kubelet may remove."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes, windows
from nodeproof.scenario.kubernetes import UNREACHABLE, Pod, tolerates
from nodeproof.scenario.sources import audit

STUCK_S = 85
"""Longer than anything that the pod garbage collector does: an orphan's quarantine and two passes (s)."""


@needs(nodes=2, faulted=1, duration_s=f"G + 2P + {STUCK_S} + 25")
def test_no_pod_is_force_deleted_while_its_node_is_unreachable(lab: Lab, claim: Expectations) -> None:
    """It requests the deletion once, and leaves the removal of the pod to its kubelet.

    For a moment, the API refuses that another pod is marked as not ready.
    """
    node, stuck = lab.target, claim("partition.no-force-delete")
    pod = lab.run(actions.run_pod(on=node, tolerates_unreachable_s=lab.toleration_s))
    tolerant = lab.run(actions.run_pod(on=node, tolerations=[tolerates(UNREACHABLE)]))
    unreachable = node.taint(UNREACHABLE).added
    by_others = {"verb": "delete", "user": {"$not": f"system:node:{node}"}}
    deletes = audit(**by_others, resource="pods", namespace=pod.namespace, name=pod.name)

    with lab.record(status_of=pod):
        binding = lab.run(actions.refuse("UPDATE", tolerant, "pods/status"))
        with lab.inject(faults.partition(node)) as fault:
            lab.wait_until_lost(node, fault)
            expect_second_marking(lab, claim, tolerant, binding)
            stuck.expect(pod.deletion, within=windows.toleration(lab.toleration_s), after=unreachable)
            stuck.never(pod.removal, throughout=STUCK_S, after=pod.deletion)
        lab.wait_for(pod.removal.after(fault.healing_at, windows.recovery()))
        lab.collect(deletes)
        stuck.expect_later(checks.counted(deletes.request, 1, 1, **fault.span))
        terminating = (pod.name, "Terminating", pod.deletion, fault.healing_at)
        stuck.expect_later(checks.shown_throughout(probes.STATUS, *terminating))


def expect_second_marking(lab: Lab, claim: Expectations, pod: Pod, binding: str) -> None:
    """Expect that the pod is marked as not ready once the API no longer refuses it."""
    # The controller reports the event even if the API refused the status.
    attempt = pod.event("NodeNotReady", "Node is not ready")
    permission = actions.kubectl("delete", "validatingadmissionpolicybinding", binding)
    lab.wait_for(attempt.after(lab.target.unknown, "P + 3"))
    patch = actions.dry_run("PATCH", f"{pod.path}/status", {"status": {"message": "nodeproof"}})
    is_refused = lab.run(patch).value["status"] != 200 and lab.find(pod.unready) is None
    lab.check_in_time(is_refused, otherwise=f"the policy had no effect when {pod.name} was marked")
    lab.check_in_time(lab.find(attempt) is not None, otherwise=f"no try to mark {pod.name} was seen")
    lab.run(permission)
    claim("conditions.pods-marked-not-ready").expect(pod.unready, within="P + 10", after=permission.begun)
