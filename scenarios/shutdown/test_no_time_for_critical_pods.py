"""A kubelet with time for regular pods only, on a partitioned node."""

from contextlib import ExitStack

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import unresponsive
from nodeproof.scenario.marks import standing

REGULAR_S = 8
REPORTS = "8s"
"""A report is tried five times, each for as long: longer than the partition lasts."""
AT_LEAST_S = 2
"""Minimum time from SIGTERM to the kill of a container (minimumGracePeriodInSeconds in
pkg/kubelet/kuberuntime/kuberuntime_manager.go).
"""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="90")
@standing(faults.kubelet_settings, shutdownGracePeriod=f"{REGULAR_S}s", nodeStatusUpdateFrequency=REPORTS)
def test_partitioned_node_ends_pods_at_shutdown_before_it_can_report(lab: Lab, claim: Expectations) -> None:
    node, activation = lab.target, claim("graceful-shutdown.activation")
    termination = claim("graceful-shutdown.termination-starts-with-condition")

    with lab.record(), ExitStack() as shutdown:
        witnesses = (unresponsive(), unresponsive("system-node-critical"))
        regular, critical = lab.run(actions.run_witnesses(*witnesses, on=node))
        lab.observe(probes.inhibitors(node))
        # The check that the shutdown is undone uses the node's network, which has to be back before.
        with lab.inject(faults.partition(node)) as fault:
            request = shutdown.enter_context(lab.inject(faults.cancelled_shutdown(node))).requested_at
            termination.never(node.shutting_down, throughout=2 * REGULAR_S, after=request)
        lab.wait_for(regular.ended_by_shutdown.after(fault.healing_at, windows.recovery()))
        lab.collect(regular, critical)

    first, second = regular.sigterm, critical.sigterm
    locked = (moments.recording_began(), request)
    activation.expect_later(checks.listed(probes.INHIBITORS, node, probes.KUBELET_LOCK, *locked))
    activation.expect_later(termination.expect_later(first, within=15, after=request))
    # Nothing can be reported before: the kubelet does not wait until it has reported.
    termination.expect_later(fault.healing_at, within=windows.afterwards(60), after=first)
    activation.expect_later(regular.last_sign, within=windows.grace_period(REGULAR_S), after=first)
    # From the request: the delay of a SIGTERM differs by seconds.
    activation.expect_later(second.never_after(request, REGULAR_S))
    activation.expect_later(second, within=1.5 * REGULAR_S + 2, after=first)
    activation.expect_later(critical.last_sign, within=2 * AT_LEAST_S, after=second)
