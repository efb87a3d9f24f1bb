"""Cancelled shutdowns: pods end as in any other shutdown, and the machine stays up to report."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import NOT_READY, Node, Pod, Witness
from nodeproof.scenario.marks import standing
from nodeproof.scenario.types import Injection, Moment

TOTAL_S, CRITICAL_S, SHORT_GRACE_S = 30, 10, 5
REGULAR_S = TOTAL_S - CRITICAL_S
LONG_GRACE_S = 300
"""Grace period of the pods, and their toleration of a node that is not ready."""
HIGHEST_USER_PRIORITY = 1_000_000_000
SOON = windows.up_to(15)
"""Ends before the next phase."""
FIRST_PHASE, BOTH_PHASES = (
    windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + slack")
    for seconds in (REGULAR_S, TOTAL_S)
)
"""Counted from the event, which is created up to some time before it arrives; a busy runtime is slow to
signal.
"""
STARTED, ENDED = (f"kubelet_graceful_shutdown_{which}_time_seconds" for which in ("start", "end"))
TERMINATED = ("Terminated", "Pod was terminated in response to imminent node shutdown.")


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="120")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriod=f"{TOTAL_S}s",
    shutdownGracePeriodCriticalPods=f"{CRITICAL_S}s",
)
def test_cancelled_shutdown_still_ends_pods(lab: Lab, claim: Expectations) -> None:
    """All pods ignore SIGTERM, so each reports when it was signalled and when it was killed."""
    node, pods = lab.target, run_pods(lab)
    regular, short, critical = pods

    with lab.record(status_of=regular):
        by_priority = lab.observe(probes.kubelet_field(node, "shutdownGracePeriodByPodPriority"))
        claim("priority-shutdown.no-config").expect_value(by_priority, {"$in": [None]})
        for name in (STARTED, ENDED):
            exists = checks.shows(lab.observe(probes.metric(node, name)), {"$not": None})
            claim("shutdown-metrics.exist").expect_later(exists)
        clock = lab.observe(probes.wall_clock(node))
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            expect_event(claim, node, fault)
            expect_phases(claim, node, regular, short, critical)
            expect_heartbeats(claim, node, interval_s=lab.configuration["R"])
            waiting_pod = expect_no_new_pods(lab, claim, node)
            expect_cancellation(claim, node, fault)
            expect_lost_pods(claim, fault, pods)
            binding_window, cancellation = (
                windows.up_to(15 + windows.BIND_S),
                shutdown_event(node, "cancellation"),
            )
            scheduler_stops = claim("graceful-shutdown.scheduler-stops")
            scheduler_stops.expect(waiting_pod.bound, within=binding_window, after=cancellation)
            start_time, end_time = (lab.observe(probes.metric(node, name)) for name in (STARTED, ENDED))
            lab.collect(*pods)

    values = claim("shutdown-metrics.values")
    values.expect_later(checks.grew(clock, start_time, -1, 20))
    values.expect_later(checks.grew(start_time, end_time, TOTAL_S - 4, 1.4 * TOTAL_S))


def run_pods(lab: Lab) -> Sequence[Pod]:
    """Run a regular pod, one with a short grace period and the highest user priority, and a critical one."""
    high = actions.priority_class(HIGHEST_USER_PRIORITY)
    lab.run(high.make)
    critical = "system-cluster-critical"
    graces = ((LONG_GRACE_S, ""), (SHORT_GRACE_S, high.name), (LONG_GRACE_S, critical))
    witnesses = (
        Witness(
            grace_s, ignores_sigterm=True, priority_class=name, toleration_s=LONG_GRACE_S, host_network=True
        )
        for grace_s, name in graces
    )
    return lab.run(actions.run_witnesses(*witnesses, on=lab.target))


def expect_event(claim: Expectations, node: Node, fault: Injection) -> None:
    """Expect the event of a shutdown, on which the other claims depend, and Ready=False."""
    check = claim("graceful-shutdown.event").expect(
        shutdown_event(node, "event"), within=SOON, after=fault.requested_at
    )
    for expectation in (
        claim("graceful-shutdown.example-30-10"),
        claim("graceful-shutdown.pod-grace-is-minimum"),
        claim("graceful-shutdown.critical-definition"),
        claim("priority-shutdown.no-config"),
        claim("heartbeat.continues-in-shutdown"),
    ):
        expectation.expect_later(check)
    claim("graceful-shutdown.cancelled-ready").expect(
        not_ready_report(node), within=SOON, after=fault.requested_at
    )


def expect_phases(claim: Expectations, node: Node, regular: Pod, short: Pod, critical: Pod) -> None:
    """Expect critical pods to be ended after all others, each pod within its grace period."""
    example = claim("graceful-shutdown.example-30-10")
    minimum = claim("graceful-shutdown.pod-grace-is-minimum")
    definition = claim("graceful-shutdown.critical-definition")
    no_config = claim("priority-shutdown.no-config")
    event = shutdown_event(node, "event")
    for expectation in (example, definition, no_config):
        expectation.expect_later(regular.sigterm, within=SOON, after=event)
        expectation.expect_later(critical.sigterm, within=FIRST_PHASE, after=event)
    for expectation in (minimum, definition, no_config):
        expectation.expect_later(short.sigterm, within=SOON, after=event)

    for expectation, pod, grace_s in (
        (example, regular, REGULAR_S),
        (example, critical, CRITICAL_S),
        (minimum, regular, REGULAR_S),
        (minimum, short, SHORT_GRACE_S),
    ):
        expectation.expect_later(pod.last_sign, within=windows.grace_period(grace_s), after=pod.sigterm)


def expect_heartbeats(claim: Expectations, node: Node, interval_s: float) -> None:
    """Expect renewals of the Lease at about the usual interval (s) throughout the shutdown."""
    event, cancellation = shutdown_event(node, "event"), shutdown_event(node, "cancellation")
    low, high = int(0.6 * TOTAL_S / interval_s), int(1.4 * (TOTAL_S / interval_s))
    renewals = checks.counted(node.lease_renewal, low, high, after=event, until=cancellation)
    claim("heartbeat.continues-in-shutdown").expect_later(renewals)


def expect_no_new_pods(lab: Lab, claim: Expectations, node: Node) -> Pod:
    """Expect that new pods are not bound or are rejected, and return one that waits for the scheduler."""
    scheduler_stops = claim("graceful-shutdown.scheduler-stops")
    taint = node.taint(NOT_READY, "NoSchedule")
    scheduler_stops.expect(taint.added, within=5, after=not_ready_report(node))
    toleration = {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}
    pod = lab.run(actions.pending_pod(only_on=node))
    tolerant = lab.run(actions.pending_pod(only_on=node, tolerations=[toleration]))
    direct = lab.run(actions.bound_pod(to=node))
    scheduler_stops.expect(pod.unschedulable, within=5, after=pod.created)
    scheduler_stops.never(pod.bound, throughout=10, after=pod.created)
    claim("graceful-shutdown.admission-rejects").expect(rejection(direct), within=SOON, after=direct.bound)
    claim("graceful-shutdown.admission-rejects-tolerating").expect(
        rejection(tolerant), within=SOON, after=tolerant.bound
    )
    return pod


def expect_cancellation(claim: Expectations, node: Node, fault: Injection) -> None:
    """Expect the cancellation after both phases, and then Ready=True."""
    event, cancellation = shutdown_event(node, "event"), shutdown_event(node, "cancellation")
    check = claim("graceful-shutdown.event").expect(cancellation, within=BOTH_PHASES, after=event)
    claim("graceful-shutdown.example-30-10").expect_later(check)
    claim("graceful-shutdown.cancelled-ready").expect_later(check)
    for moment in (event, cancellation):
        once = checks.counted(moment, 1, 1, after=fault.requested_at, until=fault.healing_at)
        claim("graceful-shutdown.event").expect_later(once)
    claim("graceful-shutdown.cancelled-ready").expect(node.ready, within=SOON, after=cancellation)


def expect_lost_pods(claim: Expectations, fault: Injection, pods: Sequence[Pod]) -> None:
    """Expect that the pods are Failed, and neither run again nor are removed."""
    lost, kept = claim("graceful-shutdown.cancelled-pods-lost"), claim("graceful-shutdown.failed-pods-kept")
    kubectl_get = claim("graceful-shutdown.kubectl-get")
    failures = [lost.expect(pod_failure(pod), within=90, after=fault.requested_at) for pod in pods]
    for failure in failures:
        kept.expect_later(failure)
    kubectl_get.expect_later(failures[0])
    # kubectl prints this for a killed container, whatever the pod's own reason.
    shown = pods[0].name, "Error", pod_failure(pods[0]), fault.healing_at
    kubectl_get.expect_later(checks.shown_throughout(probes.STATUS, *shown))
    for pod in pods:
        lost.never(pod.running, throughout=10, after=pod_failure(pod))
        kept.never(pod.removal, throughout=10, after=pod_failure(pod))


def pod_failure(pod: Pod) -> Moment:
    return moments.pod_failed(pod.namespace, pod.name, *TERMINATED)


def rejection(pod: Pod) -> Moment:
    return pod.became({"status": {"phase": "Failed", "reason": "NodeShutdown"}})


def shutdown_event(node: str, what: str) -> Moment:
    return moments.event_reported("Shutdown", "Node", node, f"Shutdown manager detected shutdown {what}")


def not_ready_report(node: str) -> Moment:
    return moments.condition_reported(node, "Ready", "False", "KubeletNotReady", "node is shutting down")
