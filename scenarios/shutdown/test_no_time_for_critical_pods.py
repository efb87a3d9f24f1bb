"""A kubelet with time for regular pods only, on a partitioned node."""

from contextlib import ExitStack

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Witness
from nodeproof.scenario.marks import standing

REGULAR_S, GRACE_S, TOLERATION_S, SOON_S = 8, 300, 300, 15
AT_LEAST_S = 2
"""Minimum time from SIGTERM to the kill of a container (minimumGracePeriodInSeconds in
pkg/kubelet/kuberuntime/kuberuntime_manager.go).
"""
LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
MARK = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
LATEST_S = 1.5 * REGULAR_S + 2


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="90")
@standing(faults.kubelet_settings, shutdownGracePeriod=f"{REGULAR_S}s")
def test_partitioned_node_ends_pods_at_shutdown_before_it_can_report(lab: Lab, claim: Expectations) -> None:
    node = lab.target
    not_ready = moments.condition_reported(node, "Ready", "False", "KubeletNotReady", "node is shutting down")
    activation = claim("graceful-shutdown.activation")
    termination = claim("graceful-shutdown.termination-starts-with-condition")

    with lab.record(), ExitStack() as shutdown:
        witnesses = map(unresponsive_pod, ("", "system-node-critical"))
        regular, critical = lab.run(actions.run_witnesses(*witnesses, on=node))
        lab.observe(probes.inhibitors(node))
        # The check that the shutdown is undone uses the node's network, which has to be back before.
        with lab.inject(faults.partition(node)) as fault:
            request = shutdown.enter_context(lab.inject(faults.cancelled_shutdown(node))).requested_at
            termination.never(not_ready, throughout=2 * REGULAR_S, after=request)
        pod_failure = moments.pod_failed(regular.namespace, regular.name, *MARK)
        lab.wait_for(pod_failure.after(fault.healing_at, windows.recovery()))
        lab.collect(regular, critical)

    first, second = regular.sigterm, critical.sigterm
    first_kill, second_kill = regular.last_sign, critical.last_sign
    sigterm_window = windows.up_to(SOON_S)
    activation.expect_later(checks.listed(probes.INHIBITORS, node, LOCK, moments.recording_began(), request))
    activation.expect_later(termination.expect_later(first, within=sigterm_window, after=request))
    activation.expect_later(first_kill, within=windows.grace_period(REGULAR_S), after=first)
    # From the request: the delay of a SIGTERM differs by seconds.
    activation.expect_later(second.never_after(request, REGULAR_S))
    activation.expect_later(second, within=LATEST_S, after=first)
    activation.expect_later(second_kill, within=2 * AT_LEAST_S, after=second)


def unresponsive_pod(class_name: str) -> Witness:
    """Return a pod that ignores SIGTERM and has a grace period longer than the scenario."""
    return Witness(
        GRACE_S, ignores_sigterm=True, priority_class=class_name, toleration_s=TOLERATION_S, host_network=True
    )
