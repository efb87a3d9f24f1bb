"""Shutdown grace periods by pod priority: their lengths and their order."""

from collections.abc import Mapping, Sequence

from nodeproof.scenario import Expectations, Lab, actions, faults, moments, needs, windows
from nodeproof.scenario.kubernetes import Pod, Witness
from nodeproof.scenario.marks import standing
from nodeproof.scenario.types import Expectation, Injection, Moment

PERIODS: Mapping[int, int] = {0: 8, 500: 30, 1000: 10, 10_000: 14, 100_000: 8}
"""As many ranges as the page's second list, plus one without pods; short, as pods take all of the time."""
EMPTY = 500
TAKEN = [seconds for priority, seconds in PERIODS.items() if priority != EMPTY]
ALL_S = sum(TAKEN)
BELOW, BETWEEN, CRITICAL = -10, 5000, "system-node-critical"
GRACE_S, TOLERATION_S, SOON_S = 300, 300, 15
SHUTDOWN_S = ALL_S + PERIODS[EMPTY] + SOON_S
END_S = 1.5 * max(TAKEN) + 30
"""How long pods may take to end after the shutdown: their period (`windows.grace_period`), and the delay with
which a slow runtime signals them.
"""
AT_ONCE = windows.formula("within", "4", "-4 - slack", "4 + slack")
"""A runtime may deliver signals this far apart although it got them at the same time."""


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="150")
@standing(
    faults.kubelet_settings,
    shutdownGracePeriodByPodPriority=[
        {"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in PERIODS.items()
    ],
)
def test_shutdown_stops_pods_from_lowest_to_highest_priority(lab: Lab, claim: Expectations) -> None:
    """All pods ignore SIGTERM, so each is killed when its range's period ends."""
    node = lab.target
    class_names = make_priority_classes(lab)
    beginning, cancellation = shutdown_event(node, "event"), shutdown_event(node, "cancellation")

    with lab.record():
        pods = lab.run(actions.run_witnesses(*map(unresponsive_pod, class_names), on=node))
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            lab.wait_for(cancellation.after(fault.requested_at, SHUTDOWN_S))
            limit = windows.up_to(shutdown_s(lab, fault, cancellation) + END_S)
            for pod in pods:
                end = pod.became({"status": {"phase": "Failed"}})
                lab.wait_for(end.after(fault.requested_at, limit))
            lab.collect(*pods)

    below, lowest, thousand, between, ten, hundred, critical = pods
    first_example = claim("priority-shutdown.example-one")
    second_example = claim("priority-shutdown.example-two")
    order = claim("priority-shutdown.order-low-to-high")
    skipping = claim("priority-shutdown.empty-range-skipped")
    outside = claim("priority-shutdown.outside-range")
    total = claim("priority-shutdown.total-is-sum")
    for expectation in (first_example, second_example, order, skipping, outside, total):
        expectation.expect_later(beginning, within=SOON_S, after=fault.requested_at)
        expectation.expect_later(lowest.sigterm, within=PERIODS[0] - 1, after=beginning)
    elapsed_s = 0
    for priority, pod in ((0, lowest), (1000, thousand), (10_000, ten), (100_000, hundred)):
        expect_kill(first_example, pod, PERIODS[priority])
        if elapsed_s:
            order.expect_later(pod.sigterm, within=window(elapsed_s), after=beginning)
        elapsed_s += PERIODS[priority]
    expect_stop_with(second_example, between, thousand, PERIODS[1000])
    skipping.expect_later(thousand.sigterm, within=window(PERIODS[0]), after=beginning)
    expect_stop_with(outside, below, lowest, PERIODS[0])
    expect_stop_with(outside, critical, hundred, PERIODS[100_000])
    total.expect_later(cancellation, within=window(ALL_S), after=beginning)


def shutdown_s(lab: Lab, fault: Injection, cancellation: Moment) -> float:
    """Return how long the shutdown took (s), which is longer on a slow machine; at most the time waited."""
    request, end = lab.find(fault.requested_at), lab.find(cancellation)
    return end.t - request.t if request and end else SHUTDOWN_S


def make_priority_classes(lab: Lab) -> Sequence[str]:
    """Make priority classes, and return the names for all pods, in the order of their priority."""
    classes = [actions.priority_class(value) for value in (BELOW, 1000, BETWEEN, 10_000, 100_000)]
    for entry in classes:
        lab.run(entry.make)
    below, *others = (entry.name for entry in classes)
    return (below, "", *others, CRITICAL)


def unresponsive_pod(class_name: str) -> Witness:
    """Return a pod that ignores SIGTERM and has a grace period longer than the scenario."""
    return Witness(
        GRACE_S, ignores_sigterm=True, priority_class=class_name, toleration_s=TOLERATION_S, host_network=True
    )


def expect_stop_with(expectation: Expectation, pod: Pod, first: Pod, seconds: int) -> None:
    """Expect that a pod gets SIGTERM at the time of another one, and is killed after the same period."""
    expectation.expect_later(pod.sigterm, within=AT_ONCE, after=first.sigterm)
    expect_kill(expectation, pod, seconds)


def expect_kill(expectation: Expectation, pod: Pod, seconds: int) -> None:
    expectation.expect_later(pod.last_sign, within=windows.grace_period(seconds), after=pod.sigterm)


def shutdown_event(node: str, what: str) -> Moment:
    return moments.event_reported("Shutdown", "Node", node, f"Shutdown manager detected shutdown {what}")


def window(seconds: int) -> windows.WindowSpec:
    """Return the window counted from the event.

    The event is created up to some time before it arrives; a busy runtime is slow to signal.
    """
    return windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + 2 + slack")
