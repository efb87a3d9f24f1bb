"""Nodes that are deleted and registered again, and their pods."""

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows

UP_S = 30.0
COLLECTION_S = 85.0
"""Longer than the longest quarantine of an orphan."""


@needs(nodes=3, faulted=2, duration_s="120")
def test_reregistered_node_keeps_pods_unless_quarantine_expired(lab: Lab, claim: Expectations) -> None:
    """Two kubelets register again when they start: one at once, the other one when its pods are removed."""
    reregistration_drains = claim("registration.reregistration-drains")
    node, short_absence = lab.targets
    lab.run(actions.wait_podgc_quarantine(node, short_absence))
    pod, short_absence_pod = lab.run(actions.run_pod(on=node)), lab.run(actions.run_pod(on=short_absence))
    node_removed, short_absence_removed = node.removed, short_absence.removed
    node_back = moments.first_after(node.created, after=node_removed)
    short_absence_back = moments.first_after(short_absence.created, after=short_absence_removed)
    failed = short_absence_pod.became({"status": {"phase": "Failed"}})

    with lab.record():
        with lab.inject(faults.unit_down(short_absence)) as short:
            lab.run(actions.kubectl("delete", "node", short_absence))
        reregistration_drains.expect(short_absence_back, within=UP_S, after=short.healing_at)
        with lab.inject(faults.unit_down(node)) as long:
            lab.run(actions.kubectl("delete", "node", node))
            reregistration_drains.expect(pod.removal, within=windows.quarantine(), after=node_removed)
        reregistration_drains.expect(node_back, within=UP_S, after=long.healing_at)
        for event in (short_absence_pod.deletion, failed):
            reregistration_drains.never(event, throughout=COLLECTION_S, after=short_absence_removed)
        lab.wait_until_ready(short_absence, short)
        lab.wait_until_ready(node, long)
