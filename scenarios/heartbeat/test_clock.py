"""Heartbeats of a node whose clock is wrong."""

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs

CLOCK_STEP_S = 600
"""Far more than any grace period: by the times in its Lease, this node would be lost."""
SELDOM = "1h"
"""Interval of unchanged status reports: none comes during the scenario."""


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="4G + 60")
def test_node_with_slow_clock_stays_ready_by_increasing_renew_times(lab: Lab, claim: Expectations) -> None:
    """The kubelet starts after the step: with its status report, the controller observes the Lease again."""
    node, configuration = lab.target, lab.configuration
    local_clock, grace_s = claim("heartbeat.local-clock"), configuration["G"]
    settings = faults.kubelet_settings(node, nodeStatusReportFrequency=SELDOM)
    renewals = int(grace_s / configuration["R"])

    with lab.record(), lab.inject(faults.clock(node, -CLOCK_STEP_S)) as fault, lab.inject(settings):
        report = moments.first_after(node.status_report, after=fault.injected_at)
        unknown = moments.first_after(node.unknown, after=report)
        # A kubelet that has just started reports more changes, in less than a grace period.
        local_clock.never(unknown, throughout=3 * grace_s, after=report)

    span = {"after": report, "until": fault.healing_at}
    local_clock.expect_later(checks.counted(node.lease_renewal, renewals, 999, **span))
