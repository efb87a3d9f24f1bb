"""Settings of graceful shutdown that a kubelet applies, and those with which it does not start."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, actions, checks, needs, probes
from nodeproof.scenario.kubernetes import Node

NODE = Node("by-priority")
PERIODS: Any = [{"priority": priority, "shutdownGracePeriodSeconds": 4 - priority} for priority in range(4)]
BY_PRIORITY: Any = {"shutdownGracePeriodByPodPriority": PERIODS}
GATE = "GracefulNodeShutdownBasedOnPodPriority"
ALL_GATES = ("GracefulNodeShutdown", GATE, "WindowsGracefulNodeShutdown")
"""The other two depend on the first, and are on by default, too."""
CAPITALIZED = {"ShutdownGracePeriodCriticalPods": "22s"}
"""More than the total: the kubelet would refuse it if it read the field."""
RUNS = {"status": None}


def refusal(reason: str) -> Any:
    return {"status": 1, "output": {"$contains": reason}}


@needs(nodes=2, duration_s="35")
def test_kubelet_refuses_contradictory_shutdown_grace_periods(lab: Lab, claim: Expectations) -> None:
    """Settings that a kubelet refuses differ in one field from settings that it accepts."""
    by_priority, validation = claim("priority-shutdown.gate"), claim("graceful-shutdown.validation")
    gate, spelling = claim("graceful-shutdown.gate"), claim("graceful-shutdown.field-spelling")

    def try_periods(total: str, critical: str, **settings: Any) -> Any:
        periods: Any = {"shutdownGracePeriod": total, "shutdownGracePeriodCriticalPods": critical}
        return lab.run(actions.try_kubelet(NODE, **periods, **settings))

    with lab.record():
        lab.run(actions.join(NODE, **BY_PRIORITY))
        by_priority.expect(NODE.ready, within=60.0, after=NODE.created)
        periods = lab.observe(probes.kubelet_field(NODE, "shutdownGracePeriodByPodPriority"))
        claim("priority-shutdown.kubelet-config-name").expect_value(periods, PERIODS)
        gate_off = lab.run(actions.try_kubelet(NODE, featureGates={GATE: False}, **BY_PRIORITY))
        by_priority.expect_value(gate_off, refusal(f"requires feature gate {GATE}"))
        both = try_periods("20s", "10s", **BY_PRIORITY)
        claim("priority-shutdown.exclusive-with-classic").expect_value(both, refusal("Cannot specify both"))
        too_long = checks.shows(try_periods("20s", "21s"), refusal("must be <= shutdownGracePeriod"))
        spelling.expect_later(validation.expect_later(too_long))
        too_short = try_periods("500ms", "0s")
        validation.expect_value(too_short, refusal("must be either zero or otherwise >= 1 sec"))
        equal = checks.shows(try_periods("20s", "20s", **CAPITALIZED), RUNS)
        gate.expect_later(spelling.expect_later(validation.expect_later(equal)))
        gates_off = try_periods("20s", "10s", featureGates=dict.fromkeys(ALL_GATES, False))
        gate.expect_value(gates_off, refusal("requires feature gate GracefulNodeShutdown"))
