"""A shutdown by the machine's service manager, with grace periods for the kubelet."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import STATIC_PODS, Node, Pod, Witness, mirror_pod, shutdown_periods
from nodeproof.scenario.types import Injection

REGULAR_S, CRITICAL_S = 80, 30
"""Upper bounds of the two phases: no pod here needs as much."""
HOOK_S, GRACE_S = 3, 15
SOON_S = 30
"""Longest time from the last regular pod's end until critical pods end: shorter than the rest of their phase,
which is 80 s less the 15 to 22.5 s that a deaf pod has.
"""
ENDED_S = 60
"""Longest time until the API shows that a regular pod has ended, and from then on to a critical SIGTERM."""
POWER_OFF_S = 35
"""Longest time from the last pod's end until the machine is off: less than half of the remaining period."""
STAYS_S = 300
"""The node is NotReady all the time, and no pod is to be evicted for that."""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"))
def test_shutdown_ends_regular_pods_before_critical_pods(lab: Lab, claim: Expectations) -> None:
    node, both_phases_s = lab.target, REGULAR_S + CRITICAL_S
    static = mirror_pod(node)
    grace_periods = faults.kubelet_settings(
        node,
        **shutdown_periods(both_phases_s, CRITICAL_S),
        staticPodPath=STATIC_PODS,
        # Otherwise the report of the shutdown could be the next of the regular ones.
        nodeStatusUpdateFrequency="120s",
    )
    marked, lock = claim("graceful-shutdown.pods-marked"), claim("graceful-shutdown.inhibitor-lock")
    survive_reboot = claim("shutdown-metrics.survive-reboot")

    with lab.record():
        lab.observe(probes.inhibitors(node))
        with lab.inject(faults.static_pod(static)), lab.inject(grace_periods) as settings:
            with_hook, unresponsive, critical, system = pods = lab.run(
                actions.run_witnesses(
                    Witness(GRACE_S, toleration_s=STAYS_S, pre_stop_s=HOOK_S),
                    Witness(GRACE_S, toleration_s=STAYS_S, ignores_sigterm=True),
                    Witness(GRACE_S, toleration_s=STAYS_S, priority_class="system-node-critical"),
                    Witness(GRACE_S, toleration_s=STAYS_S, namespace="kube-system"),
                    on=node,
                )
            )
            lab.wait_for(static.running.after(settings.requested_at, 60))
            lab.observe(probes.inhibitors(node))
            clock = lab.observe(probes.wall_clock(node))
            with lab.inject(faults.shutdown(node)) as fault:
                expect_detection(claim, node, fault, pods)
                detects = claim("graceful-shutdown.detects")
                detects.expect(static.ended_by_shutdown, within=both_phases_s, after=fault.requested_at)
                # A pod that the kubelet leaves to the service manager is not reported.
                ended = system.became({"status": {"phase": {"$in": ["Failed", "Succeeded"]}}})
                detects.expect(ended, within=ENDED_S, after=fault.requested_at)
                expect_phases(claim, (with_hook, unresponsive, system), critical)
                expect_termination(claim, fault, with_hook, unresponsive)
                mark = unresponsive.ended_by_shutdown
                marked.expect(mark, within=both_phases_s, after=fault.requested_at)
                lab.wait_for(moments.machine_ended(node).after(fault.requested_at, 300))
            lab.collect(*pods)
            lab.wait_until_ready(node, fault)
            start_time, end_time = (
                lab.observe(probes.metric(node, f"kubelet_graceful_shutdown_{which}_time_seconds"))
                for which in ("start", "end")
            )

    listed = (probes.INHIBITORS, node, probes.KUBELET_LOCK)
    lock.expect_later(checks.not_listed(*listed, until=settings.requested_at))
    lock.expect_later(checks.listed(*listed, settings.injected_at, fault.requested_at))
    survive_reboot.expect_later(checks.grew(clock, start_time, -1, 20))
    survive_reboot.expect_later(checks.grew(start_time, end_time, HOOK_S, both_phases_s))


def expect_detection(claim: Expectations, node: Node, fault: Injection, pods: Sequence[Pod]) -> None:
    """Expect the kubelet's event, Ready=False, and the SIGTERM of each pod."""
    detects, ready_false = claim("graceful-shutdown.detects"), claim("graceful-shutdown.ready-false")
    detects.expect(node.shutdown_detected, within=5, after=fault.requested_at)
    for pod in pods:
        detects.expect_later(pod.sigterm, within=REGULAR_S + CRITICAL_S, after=fault.requested_at)
    ready_false.expect(node.shutting_down, within=5, after=fault.requested_at)


def expect_phases(claim: Expectations, regular: Sequence[Pod], critical: Pod) -> None:
    """Expect the critical pod to be ended after all others, and the machine after it."""
    _, unresponsive, _ = regular
    two_phases, release = claim("graceful-shutdown.two-phases"), claim("graceful-shutdown.early-release")
    for pod in regular:
        bound_s = SOON_S if pod == unresponsive else ENDED_S
        two_phases.expect_later(critical.sigterm, within=windows.afterwards(bound_s), after=pod.last_sign)
    release.expect_later(critical.sigterm, within=SOON_S, after=unresponsive.last_sign)
    end = moments.machine_ended(critical.node)
    release.expect_later(end, within=POWER_OFF_S, after=critical.last_sign)


def expect_termination(claim: Expectations, fault: Injection, with_hook: Pod, unresponsive: Pod) -> None:
    """Expect the preStop hook, SIGTERM after it, and SIGKILL at the end of the grace period."""
    termination, grace_period = claim("graceful-shutdown.normal-termination"), windows.grace_period(GRACE_S)
    hook, hook_end = moments.pre_stop_began(with_hook.name), moments.pre_stop_ended(with_hook.name)
    termination.expect_later(hook, within=SOON_S, after=fault.requested_at)
    termination.expect_later(hook_end, within=GRACE_S, after=hook)
    termination.expect_later(with_hook.sigterm, within=windows.afterwards(GRACE_S), after=hook_end)
    termination.expect_later(unresponsive.last_sign, within=grace_period, after=unresponsive.sigterm)
