"""What a kubelet takes of the settings of graceful shutdown, and what keeps it from starting."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    claims,
    condition_became,
    join,
    kubelet_field,
    made,
    needs,
    shows,
    try_kubelet,
    windows,
)

NAME, UP_S = "by-priority", 60.0
PERIODS: Any = [{"priority": at, "shutdownGracePeriodSeconds": 4 - at} for at in range(4)]
BY_PRIORITY: Any = {"shutdownGracePeriodByPodPriority": PERIODS}
GATE = "GracefulNodeShutdownBasedOnPodPriority"
ALL_GATES = ("GracefulNodeShutdown", GATE, "WindowsGracefulNodeShutdown")
"""The other two need the first, and are on by default, too."""
CAPITAL = {"ShutdownGracePeriodCriticalPods": "22s"}
"""More than all of the time: refused, if anybody read it."""


def refused(why: str) -> Any:
    return {"status": 1, "said": {"$contains": why}}


@claims(
    "priority-shutdown.kubelet-config-name",
    "priority-shutdown.gate",
    "priority-shutdown.exclusive-with-classic",
    "graceful-shutdown.validation",
    "graceful-shutdown.gate",
    "graceful-shutdown.field-spelling",
)
@needs(nodes=2, lasts="35")
def test_a_kubelet_takes_periods_by_priority_or_for_all_and_none_that_contradict_each_other(
    lab: Stage, judge: Judge
) -> None:
    """Each refusal is of settings that are taken when one of them is another."""
    ready = condition_became(NAME, "Ready", "True")

    def with_periods(total: str, critical: str, **more: Any) -> Any:
        told: Any = {"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical}
        return lab.do(try_kubelet(NAME, **told, **more))

    with lab.record():
        lab.do(join(NAME, **BY_PRIORITY))
        comes = lab.wait_for(ready.after(made("nodes", NAME), windows.prompt(UP_S)))
        taken = lab.look(kubelet_field(NAME, "shutdownGracePeriodByPodPriority"))
        without = lab.do(try_kubelet(NAME, featureGates={GATE: False}, **BY_PRIORITY))
        both = with_periods("20s", "10s", **BY_PRIORITY)
        more, short = (with_periods(*each) for each in (("20s", "21s"), ("500ms", "0s")))
        equal = with_periods("20s", "20s", **CAPITAL)
        gates_off = with_periods("20s", "10s", featureGates=dict.fromkeys(ALL_GATES, False))

    judge("priority-shutdown.kubelet-config-name", shows(taken, PERIODS))
    for check in (comes, shows(without, refused(f"requires feature gate {GATE}"))):
        judge("priority-shutdown.gate", check)
    judge("priority-shutdown.exclusive-with-classic", shows(both, refused("Cannot specify both")))
    for check in (
        shows(more, refused("must be <= shutdownGracePeriod")),
        shows(equal, {"status": None}),
        shows(short, refused("must be either zero or otherwise >= 1 sec")),
    ):
        judge("graceful-shutdown.validation", check)
    needs_its_gate = refused("requires feature gate GracefulNodeShutdown")
    for check in (shows(gates_off, needs_its_gate), shows(equal, {"status": None})):
        judge("graceful-shutdown.gate", check)
    judge("graceful-shutdown.field-spelling", shows(more, refused("must be <= shutdownGracePeriod")))
    judge("graceful-shutdown.field-spelling", shows(equal, {"status": None}))
