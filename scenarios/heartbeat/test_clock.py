"""Heartbeats of a node whose clock is wrong."""

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, windows

CLOCK_STEP_S = 600
"""Far more than any grace period: by the times in its Lease, this node would be lost."""
SELDOM = "1h"
"""Interval of unchanged status reports: none comes during the scenario."""


@needs(nodes=2, faulted=1, features=("systemd",), lasts="5G + 60")
def test_node_with_slow_clock_stays_ready_by_increasing_renew_times(lab: Lab, claim: Expectations) -> None:
    """After the step, renewals do not count until the controller has observed the Lease again."""
    node, configuration = lab.target, lab.configuration
    local_clock, grace_s = claim("heartbeat.local-clock"), configuration["G"]
    renewals = int(grace_s / configuration["R"] / 2)

    with lab.record(), lab.inject(faults.kubelet_settings(node, nodeStatusReportFrequency=SELDOM)) as restart:
        # A kubelet that has just started reports its changes at once.
        lab.wait_for(node.unknown.never_after(restart.injected_at, windows.absence(grace_s)))
        with lab.inject(faults.clock(node, -CLOCK_STEP_S)) as fault:
            unknown = moments.first_after(node.unknown, after=fault.injected_at)
            ready = moments.first_after(node.ready, after=unknown)
            unknown_again = moments.first_after(node.unknown, after=ready)
            local_clock.expect(unknown, within=windows.detection_from_fault(), after=fault.injected_at)
            lab.wait_for(ready.after(unknown, windows.prompt(3 * configuration["U"])))
            local_clock.never(unknown_again, throughout=windows.absence(2 * grace_s), after=ready)

    local_clock.expect_later(
        checks.counted(node.lease_renewal, renewals, 99, after=fault.injected_at, until=unknown)
    )
    local_clock.expect_later(
        checks.counted(node.lease_renewal, 2 * renewals, 999, after=ready, until=fault.healing_at)
    )
