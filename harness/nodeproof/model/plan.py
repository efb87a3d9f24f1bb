"""Static plan: the scenarios of each worker, in order, and the expected end of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

STANDING_S = 25.0
"""Time to inject and heal a standing fault: for a kubelet's settings on virtual machines without KVM, 15.4
and 11.0 s (medians of 17).
"""
NOT_HERE = "not here: "
"""Prefix of `source` for a scenario that cannot prove anything in this run."""


@dataclass(frozen=True, order=True)
class Size:
    """Number of nodes and zones of a lab; `spread` has the nodes of each zone if zones differ in size."""

    nodes: int
    zones: int
    spread: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the size for output."""
        zones = " + ".join(str(nodes) for nodes in self.spread)
        return f"{self.nodes} nodes, zones: {zones or self.zones}"


@dataclass(frozen=True)
class ScenarioEstimate:
    """A scenario's expected duration (s) and its origin, its possible targets, and its lab.

    With `is_alone`, it shares its lab with no other worker. `size` is the size of the lab while it, or others
    with the same size, run in it. `standing` is the fault that is injected before it, shared with others of
    the same value.
    """

    scenario: str
    duration_s: float
    source: str
    is_alone: bool = False
    targets: str = ""
    faults: tuple[str, ...] = ()
    size: Size | None = None
    standing: str = ""

    @property
    def runs_here(self) -> bool:
        """Whether it can prove something in this run."""
        return not self.source.startswith(NOT_HERE)

    @property
    def stays(self) -> bool:
        """Whether it must stay with its worker, because others there share its lab or its standing fault."""
        return not self.runs_here or self.is_alone or self.size is not None or bool(self.standing)


@dataclass(frozen=True)
class WorkerPlan:
    """The scenarios of one worker, in order."""

    scenarios: tuple[ScenarioEstimate, ...]

    @property
    def duration_s(self) -> float:
        """Total duration (s)."""
        return _sum_s(self.scenarios)


def pack(expected: Iterable[ScenarioEstimate], workers: int, start_s: float) -> tuple[WorkerPlan, ...]:
    """Assign the longest scenario first, each to the worker that ends first.

    The result takes at most 4/3 of the shortest possible plan. Scenarios with labs of the same size share a
    worker, one after another in the same lab, and so do scenarios with the same standing fault. The longest
    such group is halved if the longest worker would otherwise take longer than with single scenarios, by more
    than the group saves: the start of another lab (s), or `STANDING_S`. Equally long scenarios keep their
    order. Of a worker, scenarios with a lab of their own size come first, then those that are alone in a lab,
    then the others; those with the same standing fault are consecutive. Empty workers are left out.

    Source: R. L. Graham, Bounds on Multiprocessing Timing Anomalies, 1969.
    """
    filled = _balanced(list(expected), workers, start_s, 0)
    return tuple(WorkerPlan(tuple(sorted(worker_plan, key=_turn))) for worker_plan in filled if worker_plan)


def divide(
    expected: Iterable[ScenarioEstimate], count: int, start_s: float
) -> tuple[tuple[ScenarioEstimate, ...], ...]:
    """Assign scenarios to shards as `pack` does, each for one machine, whatever the order of the input.

    A shard is empty only if there are fewer scenarios than shards.
    """
    ordered = sorted(expected, key=lambda scenario: scenario.scenario)
    return tuple(map(tuple, _balanced(ordered, count, start_s, count)))


def movable(worker_plans: Iterable[WorkerPlan]) -> tuple[ScenarioEstimate, ...]:
    """Return the scenarios that any other worker may take, longest first.

    The first scenario of a worker, and scenarios that must stay with their worker, are not included.
    """
    scenarios = [
        scenario
        for worker_plan in worker_plans
        for scenario in worker_plan.scenarios[1:]
        if not scenario.stays
    ]
    return tuple(sorted(scenarios, key=lambda scenario: -scenario.duration_s))


def shares(worker_plan: WorkerPlan, worker_plans: Iterable[WorkerPlan]) -> bool:
    """Return whether a worker needs a zone of the shared lab, for its own or for taken scenarios."""
    runnable = [scenario for scenario in worker_plan.scenarios if scenario.runs_here]
    return any(not scenario.is_alone for scenario in runnable) or bool(runnable and movable(worker_plans))


def _balanced(
    expected: Sequence[ScenarioEstimate], into: int, start_s: float, filled_at_least: int
) -> list[list[ScenarioEstimate]]:
    groups = list(_groups(expected))
    apart_s = max(map(_sum_s, _fill([[scenario] for scenario in expected], into)), default=0.0)
    while True:
        filled = _fill(groups, into)
        over_s = max(map(_sum_s, filled), default=0.0) - apart_s
        enough = sum(map(bool, filled)) >= filled_at_least
        costly = [
            group for group in groups if len(group) > 1 and (not enough or _saves_s(group, start_s) < over_s)
        ]
        if not costly:
            return filled
        longest = max(costly, key=_sum_s)
        groups.remove(longest)
        groups += _halves(longest)


def _saves_s(group: Sequence[ScenarioEstimate], start_s: float) -> float:
    """Return the time (s) that is saved because a group has one worker instead of two."""
    return start_s if _needs_dedicated_lab(group[0]) else STANDING_S


def _halves(group: Sequence[ScenarioEstimate]) -> list[list[ScenarioEstimate]]:
    """Split a group in two; scenarios with the same standing fault stay together if possible."""
    by_fault: dict[str, list[ScenarioEstimate]] = {}
    for number, scenario in enumerate(group):
        by_fault.setdefault(scenario.standing or str(number), []).append(scenario)
    return _fill(by_fault.values() if len(by_fault) > 1 else [[scenario] for scenario in group], 2)


def _fill(groups: Iterable[Sequence[ScenarioEstimate]], into: int) -> list[list[ScenarioEstimate]]:
    """Assign the longest group first, each to the worker that ends first."""
    filled: list[list[ScenarioEstimate]] = [[] for _ in range(into)]
    for group in sorted(groups, key=lambda members: -_sum_s(members)):
        min(filled, key=lambda members: (_sum_s(members), len(members))).extend(group)
    return filled


def _groups(expected: Iterable[ScenarioEstimate]) -> Iterator[Sequence[ScenarioEstimate]]:
    """Yield the scenarios that belong together; each of the others alone.

    A group shares a lab of its size, a lab that workers do not share, or a standing fault. Each additional
    lab is a control plane that takes processor time from all others.
    """
    labs: dict[Size | None, list[ScenarioEstimate]] = {}
    by_standing_fault: dict[str, list[ScenarioEstimate]] = {}
    for scenario in expected:
        if _needs_dedicated_lab(scenario):
            labs.setdefault(scenario.size, []).append(scenario)
        elif scenario.standing:
            by_standing_fault.setdefault(scenario.standing, []).append(scenario)
        else:
            yield [scenario]
    yield from labs.values()
    yield from by_standing_fault.values()


def _needs_dedicated_lab(scenario: ScenarioEstimate) -> bool:
    return scenario.is_alone or scenario.size is not None


def _turn(scenario: ScenarioEstimate) -> tuple[bool, Size, bool, str]:
    return scenario.size is None, scenario.size or Size(0, 0), not scenario.is_alone, scenario.standing


def _sum_s(scenarios: Iterable[ScenarioEstimate]) -> float:
    return sum(scenario.duration_s for scenario in scenarios)


def critical(worker_plans: Iterable[WorkerPlan]) -> WorkerPlan:
    """Return the worker that ends last; there must be at least one."""
    return max(worker_plans, key=lambda worker_plan: worker_plan.duration_s)
