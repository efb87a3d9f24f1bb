"""Cancelled shutdowns: pods end as in any other shutdown, and the machine stays up to report."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes, windows
from nodeproof.scenario.kubernetes import (
    HOSTNAME_LABEL,
    NOT_READY,
    Node,
    Pod,
    shutdown_periods,
    unresponsive,
)
from nodeproof.scenario.marks import standing
from nodeproof.scenario.types import Injection, Moment

TOTAL_S, CRITICAL_S, SHORT_GRACE_S = 30, 10, 5
REGULAR_S = TOTAL_S - CRITICAL_S
SOON_S = 15
"""Ends before the next phase."""
START_S = 90
"""A container takes a second to start, and much longer on an emulated machine."""
STARTED, ENDED = (f"kubelet_graceful_shutdown_{which}_time_seconds" for which in ("start", "end"))


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="120")
@standing(faults.kubelet_settings, **shutdown_periods(TOTAL_S, CRITICAL_S))
def test_cancelled_shutdown_still_ends_pods(lab: Lab, claim: Expectations) -> None:
    """All pods ignore SIGTERM, so each reports when it was signalled and when it was killed."""
    node, daemons = lab.target, daemon_set(lab.target)
    lab.run(daemons.make)
    pods = run_pods(lab)
    regular, short, critical = pods
    scheduler_stops, values = claim("graceful-shutdown.scheduler-stops"), claim("shutdown-metrics.values")

    with lab.record(status_of=regular):
        daemon = lab.run(actions.pod_of(daemons, on=node))
        by_priority = lab.observe(probes.kubelet_field(node, "shutdownGracePeriodByPodPriority"))
        claim("priority-shutdown.no-config").expect_value(by_priority, {"$in": [None]})
        for name in (STARTED, ENDED):
            figure = lab.observe(probes.metric(node, name))
            claim("shutdown-metrics.exist").expect_value(figure, {"$not": None})
        clock = lab.observe(probes.wall_clock(node))
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            expect_event(claim, node, fault)
            expect_phases(claim, node, regular, short, critical)
            expect_heartbeats(claim, node, interval_s=lab.configuration["R"])
            waiting_pod = expect_no_new_pods(lab, claim, node)
            expect_cancellation(claim, node, fault)
            expect_lost_pods(claim, fault, pods)
            bound, cancellation = waiting_pod.bound, node.shutdown_cancelled
            scheduler_stops.expect(bound, within=15 + windows.BIND_S, after=cancellation)
            cancelled_ready = claim("graceful-shutdown.cancelled-ready")
            cancelled_ready.never(rejection(waiting_pod), throughout=10, after=bound)
            cancelled_ready.expect(waiting_pod.running, within=START_S, after=bound)
            start_time, end_time = (lab.observe(probes.metric(node, name)) for name in (STARTED, ENDED))
            lab.collect(*pods)

    ended = daemon.became({"status": {"phase": {"$in": ["Failed", "Succeeded"]}}})
    claim("graceful-shutdown.detects").expect_later(ended, within=TOTAL_S, after=fault.requested_at)
    values.expect_later(checks.grew(clock, start_time, -1, 20))
    values.expect_later(checks.grew(start_time, end_time, TOTAL_S - 4, 1.4 * TOTAL_S))


def daemon_set(node: Node) -> actions.Workload:
    """Return a DaemonSet for one node; a slow machine starts a pod sooner on the host's network."""
    return actions.workload("DaemonSet", hostNetwork=True, nodeSelector={HOSTNAME_LABEL: node})


def run_pods(lab: Lab) -> Sequence[Pod]:
    """Run a regular pod, one with a short grace period and the highest user priority, and a critical one."""
    high = actions.priority_class(1_000_000_000)
    lab.run(high.make)
    short, critical = unresponsive(high.name, SHORT_GRACE_S), unresponsive("system-cluster-critical")
    return lab.run(actions.run_witnesses(unresponsive(), short, critical, on=lab.target))


def expect_event(claim: Expectations, node: Node, fault: Injection) -> None:
    """Expect the event of a shutdown, on which the other claims depend, and Ready=False."""
    event, cancelled_ready = claim("graceful-shutdown.event"), claim("graceful-shutdown.cancelled-ready")
    check = event.expect(node.shutdown_detected, within=SOON_S, after=fault.requested_at)
    for expectation in (
        claim("graceful-shutdown.example-30-10"),
        claim("graceful-shutdown.pod-grace-is-minimum"),
        claim("graceful-shutdown.critical-definition"),
        claim("priority-shutdown.no-config"),
        claim("heartbeat.continues-in-shutdown"),
    ):
        expectation.expect_later(check)
    cancelled_ready.expect(node.shutting_down, within=SOON_S, after=fault.requested_at)


def expect_phases(claim: Expectations, node: Node, regular: Pod, short: Pod, critical: Pod) -> None:
    """Expect critical pods to be ended after all others, each pod within its grace period."""
    example = claim("graceful-shutdown.example-30-10")
    minimum = claim("graceful-shutdown.pod-grace-is-minimum")
    definition = claim("graceful-shutdown.critical-definition")
    no_config = claim("priority-shutdown.no-config")
    event = node.shutdown_detected
    for expectation in (example, definition, no_config):
        expectation.expect_later(regular.sigterm, within=SOON_S, after=event)
        expectation.expect_later(critical.sigterm, within=after_phases(REGULAR_S), after=event)
    for expectation in (minimum, definition, no_config):
        expectation.expect_later(short.sigterm, within=SOON_S, after=event)

    for expectation, pod, grace_s in (
        (example, regular, REGULAR_S),
        (example, critical, CRITICAL_S),
        (minimum, regular, REGULAR_S),
        (minimum, short, SHORT_GRACE_S),
    ):
        expectation.expect_later(pod.last_sign, within=windows.grace_period(grace_s), after=pod.sigterm)


def expect_heartbeats(claim: Expectations, node: Node, interval_s: float) -> None:
    """Expect renewals of the Lease at about the usual interval (s) throughout the shutdown."""
    shutdown = {"after": node.shutdown_detected, "until": node.shutdown_cancelled}
    low, high = int(0.6 * TOTAL_S / interval_s), int(1.4 * (TOTAL_S / interval_s))
    renewals = checks.counted(node.lease_renewal, low, high, **shutdown)
    claim("heartbeat.continues-in-shutdown").expect_later(renewals)


def expect_no_new_pods(lab: Lab, claim: Expectations, node: Node) -> Pod:
    """Expect that new pods are not bound or are rejected, and return one that waits for the scheduler."""
    scheduler_stops = claim("graceful-shutdown.scheduler-stops")
    admission = claim("graceful-shutdown.admission-rejects")
    tolerating = claim("graceful-shutdown.admission-rejects-tolerating")
    taint = node.taint(NOT_READY, "NoSchedule")
    scheduler_stops.expect(taint.added, within=5, after=node.shutting_down)
    toleration = {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}
    pod = lab.run(actions.pending_pod(only_on=node))
    tolerant = lab.run(actions.pending_pod(only_on=node, tolerations=[toleration]))
    urgent = lab.run(
        actions.pending_pod(only_on=node, tolerations=[toleration], priorityClassName="system-node-critical")
    )
    direct = lab.run(actions.bound_pod(to=node))
    scheduler_stops.expect(pod.unschedulable, within=5, after=pod.created)
    scheduler_stops.never(pod.bound, throughout=10, after=pod.created)
    for rejected in (direct, urgent):
        admission.expect(rejection(rejected), within=SOON_S, after=rejected.bound)
    tolerating.expect(rejection(tolerant), within=SOON_S, after=tolerant.bound)
    return pod


def expect_cancellation(claim: Expectations, node: Node, fault: Injection) -> None:
    """Expect the cancellation after both phases, and then Ready=True."""
    shutdown, cancelled_ready = claim("graceful-shutdown.event"), claim("graceful-shutdown.cancelled-ready")
    event, cancellation = node.shutdown_detected, node.shutdown_cancelled
    check = shutdown.expect(cancellation, within=after_phases(TOTAL_S), after=event)
    claim("graceful-shutdown.example-30-10").expect_later(check)
    cancelled_ready.expect_later(check)
    for moment in (event, cancellation):
        once = checks.counted(moment, 1, 1, after=fault.requested_at, until=fault.healing_at)
        shutdown.expect_later(once)
    cancelled_ready.expect(node.ready, within=SOON_S, after=cancellation)


def expect_lost_pods(claim: Expectations, fault: Injection, pods: Sequence[Pod]) -> None:
    """Expect that the pods are Failed, and neither run again nor are removed."""
    lost, kept = claim("graceful-shutdown.cancelled-pods-lost"), claim("graceful-shutdown.failed-pods-kept")
    kubectl_get, pod = claim("graceful-shutdown.kubectl-get"), pods[0]
    disrupted = claim("graceful-shutdown.disruption-target")
    *regular, critical = pods
    # What never comes is certain only if the recording goes on: it waits longest for the last pod.
    within_s = dict.fromkeys(regular, REGULAR_S + 25) | {critical: 90}
    failures = [
        lost.expect(pod.ended_by_shutdown, within=within_s[pod], after=fault.requested_at) for pod in pods
    ]
    for failure in failures:
        kept.expect_later(failure)
    kubectl_get.expect_later(failures[0])
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    for marked in pods:
        disruption = marked.became({"status": {"conditions": [mark]}})
        disrupted.expect_later(disruption, within=5, after=marked.ended_by_shutdown)
    # kubectl prints this for a killed container, whatever the pod's own reason.
    shown = (pod.name, "Error", pod.ended_by_shutdown, fault.healing_at)
    kubectl_get.expect_later(checks.shown_throughout(probes.STATUS, *shown))
    for pod in pods:
        lost.never(pod.running, throughout=10, after=pod.ended_by_shutdown)
        kept.never(pod.removal, throughout=10, after=pod.ended_by_shutdown)


def rejection(pod: Pod) -> Moment:
    return pod.became({"status": {"phase": "Failed", "reason": "NodeShutdown"}})


def after_phases(seconds: int) -> windows.WindowSpec:
    """Return the window of the end of phases (s), counted from the event.

    The event is created up to some time before it arrives; a busy runtime is slow to signal.
    """
    return windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + slack")
