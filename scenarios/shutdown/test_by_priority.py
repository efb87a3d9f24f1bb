"""Shutdown grace periods by pod priority: their lengths and their order."""

from collections.abc import Sequence

from nodeproof.scenario import Expectations, Lab, actions, faults, needs, windows
from nodeproof.scenario.kubernetes import Pod, unresponsive
from nodeproof.scenario.marks import standing
from nodeproof.scenario.types import Expectation

PERIODS = {0: 8, 500: 30, 1000: 10, 10_000: 14, 100_000: 8}
"""As many ranges as the page's second list, plus one without pods; short, as pods take all of the time."""
EMPTY, SOON_S = 500, 15
TAKEN = [period_s for start, period_s in PERIODS.items() if start != EMPTY]
SHUTDOWN_S = sum(PERIODS.values()) + SOON_S
END_S = 1.5 * max(TAKEN) + 30
"""How long pods may take to end after the shutdown: their period (`windows.grace_period`), and the delay with
which a slow runtime signals them.
"""
AT_ONCE = windows.formula("within", "4", "-4 - slack", "4 + slack")
"""A runtime may deliver signals this far apart although it got them at the same time."""
RANGES = [{"priority": start, "shutdownGracePeriodSeconds": period_s} for start, period_s in PERIODS.items()]


@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), duration_s="150")
@standing(faults.kubelet_settings, shutdownGracePeriodByPodPriority=RANGES)
def test_shutdown_stops_pods_from_lowest_to_highest_priority(lab: Lab, claim: Expectations) -> None:
    """All pods ignore SIGTERM, so each is killed when its range's period ends."""
    node, class_names = lab.target, make_priority_classes(lab)
    beginning, cancellation = node.shutdown_detected, node.shutdown_cancelled

    with lab.record():
        pods = lab.run(actions.run_witnesses(*map(unresponsive, class_names), on=node))
        with lab.inject(faults.cancelled_shutdown(node)) as fault:
            lab.wait_for(cancellation.after(fault.requested_at, SHUTDOWN_S))
            request, end = lab.find(fault.requested_at), lab.find(cancellation)
            # A slow machine takes longer.
            shutdown_s = end.t - request.t if request and end else SHUTDOWN_S
            for pod in pods:
                lab.wait_for(pod.failed.after(fault.requested_at, shutdown_s + END_S))
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
    total.expect_later(cancellation, within=window(sum(TAKEN)), after=beginning)


def make_priority_classes(lab: Lab) -> Sequence[str]:
    """Make priority classes, and return the names for all pods, in the order of their priority."""
    classes = [actions.priority_class(value) for value in (-10, 1000, 5000, 10_000, 100_000)]
    for entry in classes:
        lab.run(entry.make)
    below, *others = (entry.name for entry in classes)
    return (below, "", *others, "system-node-critical")


def expect_stop_with(expectation: Expectation, pod: Pod, first: Pod, seconds: int) -> None:
    """Expect that a pod gets SIGTERM at the time of another one, and is killed after the same period."""
    expectation.expect_later(pod.sigterm, within=AT_ONCE, after=first.sigterm)
    expect_kill(expectation, pod, seconds)


def expect_kill(expectation: Expectation, pod: Pod, seconds: int) -> None:
    expectation.expect_later(pod.last_sign, within=windows.grace_period(seconds), after=pod.sigterm)


def window(seconds: int) -> windows.WindowSpec:
    """Return the window counted from the event.

    The event is created up to some time before it arrives; a busy runtime is slow to signal.
    """
    return windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + 2 + slack")
