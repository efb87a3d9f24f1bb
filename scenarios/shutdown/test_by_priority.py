"""Periods by pod priority: who gets how much time, and in which order."""

from collections.abc import Mapping, Sequence

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Check,
    Pod,
    Stage,
    Witness,
    called_off_shutdown,
    claims,
    event_reported,
    kubelet_settings,
    last_sign,
    needs,
    priority_class,
    run_witnesses,
    sigterm,
    standing,
    windows,
)

PERIODS: Mapping[int, int] = {0: 8, 500: 30, 1000: 10, 10_000: 14, 100_000: 8}
"""As many as the page's second list has, and one more, to which no pod belongs; short, so that pods are."""
EMPTY = 500
ALL_S = sum(seconds for priority, seconds in PERIODS.items() if priority != EMPTY)
BELOW, BETWEEN, CRITICAL = -10, 5000, "system-node-critical"
PATIENT_S, SOON_S = 300, 15
AT_ONCE = windows.formula("within", "4", "-4 - slack", "4 + slack")
"""A runtime may deliver signals that far apart which it is told at the same time."""


def after(seconds: int) -> windows.WindowSpec:
    """From the event, which is made up to some time before it arrives; a runtime under way is slow to
    signal.
    """
    return windows.formula("period", f"{seconds}", f"{seconds} - 2 - slack", f"1.4 * {seconds} + 2 + slack")


def told(pods: Sequence[Pod], first: Pod) -> list[Check]:
    return [sigterm(pod.name).after(sigterm(first.name), AT_ONCE) for pod in pods]


def killed(pods: Sequence[Pod], seconds: int) -> list[Check]:
    return [last_sign(pod.name).after(sigterm(pod.name), windows.grace_period(seconds)) for pod in pods]


@claims(
    *(f"priority-shutdown.{name}" for name in ("example-one", "example-two", "order-low-to-high")),
    *(f"priority-shutdown.{name}" for name in ("empty-range-skipped", "outside-range", "total-is-sum")),
)
@needs(nodes=2, faulted=1, features=("systemd", "real-pods"), lasts="150")
@standing(
    kubelet_settings,
    shutdownGracePeriodByPodPriority=[
        {"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in PERIODS.items()
    ],
)
def test_the_lower_a_pods_priority_the_sooner_it_is_stopped(lab: Stage, judge: Judge) -> None:
    """All pods are deaf to SIGTERM and would take minutes: each is killed when its range's time is over."""
    node = lab.target
    classes = [priority_class(value) for value in (BELOW, 1000, BETWEEN, 10_000, 100_000)]
    for each in classes:
        lab.do(each.make)
    below_it, thousand_it, between_it, ten_it, hundred_it = (each.name for each in classes)
    names = (below_it, "", thousand_it, between_it, ten_it, hundred_it, CRITICAL)
    began, called_off = (
        event_reported("Shutdown", "Node", node, f"Shutdown manager detected shutdown {what}")
        for what in ("event", "cancellation")
    )

    with lab.record():
        pods = lab.do(
            run_witnesses(
                *(
                    Witness(
                        PATIENT_S, deaf=True, priority_class=name, tolerates_s=PATIENT_S, host_network=True
                    )
                    for name in names
                ),
                on=node,
            )
        )
        below, lowest, thousand, between, ten, hundred, critical = pods
        with lab.inject(called_off_shutdown(node)) as down:
            is_over = called_off.after(down.ordered, windows.prompt(ALL_S + PERIODS[EMPTY] + SOON_S))
            lab.wait_for(is_over)
            lab.hear(*pods)

    begins = [
        began.after(down.ordered, windows.prompt(SOON_S)),
        sigterm(lowest.name).after(began, windows.prompt(PERIODS[0] - 1)),
    ]
    ranges = ((0, lowest), (1000, thousand), (10_000, ten), (100_000, hundred))
    own = [check for priority, pod in ranges for check in killed([pod], PERIODS[priority])]
    order = [
        sigterm(pod.name).after(began, after(sum(PERIODS[before] for before, _pod in ranges[:number])))
        for number, (_priority, pod) in enumerate(ranges)
        if number
    ]
    outside = [*told([below], lowest), *killed([below], PERIODS[0])]
    outside += [*told([critical], hundred), *killed([critical], PERIODS[100_000])]
    passed_over = sigterm(thousand.name).after(began, after(PERIODS[0]))
    promised: Mapping[str, Sequence[Check]] = {
        "example-one": own,
        "example-two": [*told([between], thousand), *killed([between], PERIODS[1000])],
        "order-low-to-high": order,
        "empty-range-skipped": [passed_over],
        "outside-range": outside,
        "total-is-sum": [called_off.after(began, after(ALL_S))],
    }
    for name, checks in promised.items():
        for check in (*begins, *checks):
            judge(f"priority-shutdown.{name}", check)
