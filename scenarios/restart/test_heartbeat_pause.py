"""A node while its kubelet restarts, within the grace period."""

from nodeproof.scenario import Expectations, Lab, faults, moments, needs, windows

NO_HEARTBEAT = windows.formula("negative", "G/2 - 2", "2", "G/2")
"""From 2 s on: the last heartbeat before the stop may lie in the slack."""


@needs(nodes=2, faulted=1, duration_s="G/2 + 10")
def test_heartbeats_pause_until_the_kubelet_has_restarted(lab: Lab, claim: Expectations) -> None:
    node, heartbeats = lab.target, claim("kubelet-restart.heartbeats-pause")

    with lab.record():
        with lab.inject(faults.unit_down(node)) as fault:
            lab.wait_for(node.unknown.never_after(fault.injected_at, "G/2 + 1"))
        for heartbeat in (node.lease_renewal, node.status_report):
            heartbeats.expect_later(heartbeat.never_after(fault.injected_at, NO_HEARTBEAT))
            resumed = moments.first_after(heartbeat, after=fault.healing_at)
            heartbeats.expect(resumed, within=30.0, after=fault.healing_at)
