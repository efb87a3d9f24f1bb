"""The plan of a run: the scenarios of each worker and of each shard, and how many may run at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

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


Claims = tuple[str, ...]
_TEXT = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard such as `2/4` into its number and the number of shards.

    Raises:
        Problem: The text is not a shard.
    """
    match = _TEXT.fullmatch(text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise Problem(f"{text!r} is not a shard", "--shard", "use NUMBER/TOTAL, such as --shard 2/4")
    return number, count


@dataclass(frozen=True)
class Shard:
    """One shard of a run, with the scenarios and claims of all shards.

    Each shard therefore shows what is missing. `began` is ISO 8601 in UTC, `selected` the claims selected by
    name, `overrides` the settings of the user (`Overrides.texts`).
    """

    number: int
    lab: str
    profile: str
    kubernetes_version: str
    began: str
    selected: Claims
    parts: tuple[Mapping[str, Claims], ...]
    overrides: tuple[str, ...] = ()

    @property
    def of(self) -> int:
        return len(self.parts)

    @property
    def name(self) -> str:
        return self.named(self.number)

    @property
    def began_at(self) -> datetime:
        return datetime.fromisoformat(self.began).astimezone(UTC)

    @property
    def scenarios(self) -> Mapping[str, Claims]:
        """The scenarios of this shard, with their claims."""
        return self.parts[self.number - 1]

    def named(self, number: int) -> str:
        """Return the name of another shard of the same run."""
        return f"shard {number}/{self.of}"

    @property
    def claims(self) -> Claims:
        """The claims that all shards together judge."""
        return tuple(sorted({claim for part in self.parts for claims in part.values() for claim in claims}))

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a run's folder."""
        return {
            "number": self.number,
            "of": self.of,
            "lab": self.lab,
            "profile": self.profile,
            "kubernetes_version": self.kubernetes_version,
            "began": self.began,
            "asked": list(self.selected),
            "overrides": list(self.overrides),
            "shards": [{name: list(claims) for name, claims in part.items()} for part in self.parts],
        }

    @classmethod
    def from_json(cls, data: Json) -> Shard:
        """Read a stored shard.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: The data is not a shard.
        """
        parts = tuple(
            {str(name): tuple(map(str, claims)) for name, claims in part.items()} for part in data["shards"]
        )
        lab, profile, version = (str(data[name]) for name in ("lab", "profile", "kubernetes_version"))
        selected = tuple(map(str, data["asked"]))
        overrides = tuple(map(str, data.get("overrides", ())))
        shard = cls(
            int(data["number"]), lab, profile, version, str(data["began"]), selected, parts, overrides
        )
        datetime.fromisoformat(shard.began)
        if not 1 <= shard.number <= shard.of == data["of"]:
            raise ValueError(f"shard {shard.number} of {data['of']}, but {shard.of} are listed")
        if len({name for part in parts for name in part}) < sum(map(len, parts)):
            raise ValueError("a scenario is in two shards")
        return shard


STRAINED = 0.5
"""Share of the slack limit above which fewer scenarios run; the rest is a reserve for those that run."""
ROOMY, ROOMY_UNDER_PRESSURE = 0.45, 0.35
"""Share of the slack limit up to which one more scenario may start, without and with constant CPU pressure.
An idle machine has 0.3.
"""
SETTLING_S = 6.0
"""Time (s) until a change of the number of scenarios affects the measurements."""
STRAINED_FOR_S = 30.0
"""Time (s) for which fewer scenarios run than the number that strained the machine."""
_IDLE_SHARE, _BUSY_SHARE = 1 / 2, 1 / 6
"""Share of the workers at the start of a run on an idle machine, and on one that other programs use fully.
More are added within seconds, one at a time.
"""


@dataclass(frozen=True)
class Load:
    """Measurements of the machine in the last seconds.

    Args:
        slack_share: worst slack of the current recordings, as a share of the profile's slack limit.
        pressure: share of the time in which something waited for a processor, from 0 to 1.
    """

    slack_share: float = 0.0
    pressure: float = 0.0


@dataclass(frozen=True)
class Allowance:
    """Number of scenarios that may run at once, and the time of its last change (s, monotonic).

    Args:
        strained: number of scenarios at which slack last became large; 0 if it never did.
        strained_t: when that was.
    """

    workers: int
    since_t: float
    strained: int = 0
    strained_t: float = 0.0


def initial(maximum: int, foreign_share: float) -> int:
    """Return the number of workers to start with.

    Args:
        maximum: workers of the run.
        foreign_share: share of the processors that other programs use, from 0 to 1.
    """
    share = _IDLE_SHARE + (_BUSY_SHARE - _IDLE_SHARE) * foreign_share
    return max(1, min(maximum, round(maximum * share)))


def adapt(allowance: Allowance, running: int, load: Load, maximum: int, now_t: float) -> Allowance:
    """Return the next allowance: one more if there is capacity, half of it if slack becomes large.

    The allowance changes at most once in `SETTLING_S` and stays between 1 and `maximum`. It is not halved
    again while more scenarios run than it allows: the last change must first have an effect. It grows only
    while all of it is in use. For `STRAINED_FOR_S` it stays below the number that strained the machine,
    unless that was two or one. Where there is capacity although more scenarios run than it allows, the
    machine supports that many.

    Source: the additive increase and multiplicative decrease of D. Chiu and R. Jain, 1989.
    """
    if now_t - allowance.since_t < SETTLING_S:
        return allowance
    if load.slack_share > STRAINED:
        if running > allowance.workers:
            return allowance
        return Allowance(max(1, running // 2), now_t, running, now_t)
    is_strained = allowance.strained and now_t - allowance.strained_t < STRAINED_FOR_S
    limit = min(maximum, max(2, allowance.strained - 1)) if is_strained else maximum
    has_room = load.slack_share <= ROOMY + (ROOMY_UNDER_PRESSURE - ROOMY) * load.pressure
    if has_room and running >= allowance.workers and allowance.workers < limit:
        return replace(allowance, workers=min(limit, running + 1), since_t=now_t)
    return allowance


class Turn(IntEnum):
    """The phase in which a scenario runs: with all others, or again at the end of the run."""

    QUEUE = 0
    """In the order of the plan."""
    HALF = 1
    """Again, while at most half of the workers run scenarios."""
    ALONE = 2
    """Again, with no other scenario of the run at the same time."""

    @classmethod
    def after(cls, tries: int) -> Turn:
        """Return the turn of a scenario after so many tries."""
        return cls(min(tries, cls.ALONE))


@dataclass(frozen=True)
class Worker:
    """State of a worker of the run.

    Args:
        turn: the earliest turn for which it still has scenarios.
        is_running: whether it is running a scenario.
        waits_since_t: since when it waits for a turn (s, monotonic), if it does.
        starts_lab: whether it starts a lab, or waits until no scenario runs to do so.
    """

    name: str
    turn: Turn
    is_running: bool = False
    waits_since_t: float | None = None
    starts_lab: bool = False


def may_start_lab(name: str, workers: Collection[Worker]) -> bool:
    """Return whether a worker may start a lab, which takes processor time from running measurements."""
    return not any(worker.is_running for worker in workers if worker.name != name)


def may_start(name: str, workers: Collection[Worker], allowed: int, maximum: int) -> bool:
    """Return whether a waiting worker may start a scenario.

    Scenarios of an earlier turn come first, and of the same turn those that have waited longest. None starts
    while a lab starts. A first retry starts beside the last scenarios of the queue, if no worker is free for
    another one.
    """
    own = next(worker for worker in workers if worker.name == name)
    others = [worker for worker in workers if worker.name != name]
    if any(_comes_before(worker, own) or worker.starts_lab for worker in others):
        return False
    at_once = {Turn.QUEUE: allowed, Turn.HALF: min(allowed, max(1, maximum // 2)), Turn.ALONE: 1}[own.turn]
    ahead = sum(worker.is_running or _waits_longer(worker, own) for worker in others)
    return ahead < at_once


def _comes_before(worker: Worker, own: Worker) -> bool:
    """Return whether a worker still has scenarios of an earlier turn, of which none runs beside a retry."""
    runs_beside = own.turn is Turn.HALF and worker.is_running
    return worker.turn < own.turn and not runs_beside


def _waits_longer(worker: Worker, than: Worker) -> bool:
    if worker.waits_since_t is None or than.waits_since_t is None or worker.turn != than.turn:
        return False
    return (worker.waits_since_t, worker.name) < (than.waits_since_t, than.name)
