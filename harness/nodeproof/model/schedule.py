"""The model of a storm: its schedule, how one is generated, and the smallest one that still deviates."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Literal, get_args

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Outcome

Anchor = Literal["begun", "injected", "healed", "unknown"]
"""What a step waits for: the beginning of the storm; or of an earlier step the proven fault, its proven
healing, or Ready=Unknown of its node.
"""
FIRST: Anchor = "begun"
MAX_ACTIVE = 2
"""Largest number of nodes with a fault at once: more may disrupt their zone and slow down evictions."""
TAINT_KEY = "nodeproof.dev/storm"
COMPONENTS = ("kube-controller-manager", "kube-scheduler")
"""Components of the control plane that a storm may stop."""
CHANGES = ("", "scale", "roll", "evict", "delete")
"""What users do to the storm's workloads during a fault: nothing, or a change of one workload."""
HEALING_S = 4.0
"""Expected time (s) to heal a fault and prove it."""
Combination = tuple[str, str]
"""Name of a kind of fault, and a state of the cluster in which it is injected."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault: its word in scenarios, its arguments, its weight, and where it is injected."""

    word: str
    weight: int
    arguments: Mapping[str, Json] = field(default_factory=dict)
    place: Literal["node", "object", "component"] = "node"
    """A node takes one fault of its machine at a time; a fault of its Node object may come on top of it."""

    @property
    def name(self) -> str:
        """The word and what tells the kind from others of this word."""
        details = [str(value) for value in self.arguments.values() if value != TAINT_KEY]
        return " ".join([self.word, *details, *(["component"] if self.place == "component" else [])])


KINDS = (
    Kind("partition", 3),
    Kind("partition", 1, {"direction": "node-to-api"}),
    Kind("partition", 1, {"answer": "reject"}),
    Kind("power_off", 3),
    Kind("freeze", 2),
    Kind("link_down", 2),
    Kind("unit_down", 3),
    Kind("taint", 3, {"key": TAINT_KEY, "effect": "NoExecute"}, "object"),
    Kind("taint", 1, {"key": TAINT_KEY, "effect": "NoSchedule"}, "object"),
    Kind("power_off", 2, place="component"),
)


@dataclass(frozen=True)
class Step:
    """One fault of a schedule.

    Args:
        fault: its word in scenarios.
        target: number of the node among the nodes that may be affected, or the name of a component.
        anchor: what it waits for.
        of: number of the earlier step that the anchor is about; 0 for the beginning.
        delay_s: how long after the anchor it begins (s).
        duration_s: how long it stays (s).
        toleration_s: tolerationSeconds of a pod that is created on the node before; -1 for ever.
        arguments: further arguments of the fault.
        change: what happens to the storm's workloads during the fault, one of `CHANGES`.
    """

    fault: str
    target: int | str
    anchor: Anchor = FIRST
    of: int = 0
    delay_s: float = 0.0
    duration_s: float = 0.0
    toleration_s: int = -1
    arguments: Mapping[str, Json] = field(default_factory=dict)
    change: str = ""

    @property
    def kind(self) -> Kind | None:
        """The kind of fault; None if there is no such kind."""
        place = "component" if isinstance(self.target, str) else ("node", "object")
        return next(
            (
                kind
                for kind in KINDS
                if kind.word == self.fault and kind.place in place and kind.arguments == self.arguments
            ),
            None,
        )

    @property
    def is_on_machine(self) -> bool:
        """Whether it takes the machine of a node, not its Node object or a component."""
        return self.kind is not None and self.kind.place == "node"

    def excludes(self, step: Step) -> bool:
        """Return whether this step's fault ends before another: of the same component, machine or taint."""
        return self.target == step.target and self.is_on_machine == step.is_on_machine


@dataclass(frozen=True)
class Schedule:
    """The steps of a storm in their order, and what they were made of.

    Args:
        seed: any number.
        steps: the faults.
        coverage: what earlier storms met; the schedule prefers what they did not meet.
        faults: names of the kinds of faults that were chosen; empty for all.
    """

    seed: int
    steps: tuple[Step, ...]
    coverage: tuple[Combination, ...] = ()
    faults: tuple[str, ...] = ()

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in `schedule.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json, where: str) -> Schedule:
        """Read a stored schedule.

        Raises:
            Problem: It is invalid; the message names the step and the field.
        """
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
            raise _invalid("a schedule has a list of steps", where)
        steps = tuple(
            _read_step(entry, number, f"{where}: step {number}") for number, entry in enumerate(data["steps"])
        )
        if not isinstance(data.get("seed", 0), int):
            raise _invalid("the seed is a whole number", where)
        coverage, faults = data.get("coverage", []), data.get("faults", [])
        return cls(
            data.get("seed", 0), steps, coverage_from_json(coverage, where), choose_faults(faults, where)
        )

    def check_targets(self, nodes: int, where: str) -> None:
        """Require that all nodes exist, of so many. Raises Problem."""
        for number, step in enumerate(self.steps):
            if isinstance(step.target, int) and step.target >= nodes:
                raise _invalid(f"target {step.target}: there are {nodes} nodes", f"{where}: step {number}")


def coverage_from_json(data: Json, where: str) -> tuple[Combination, ...]:
    """Read stored combinations. Raises Problem."""
    if not isinstance(data, list) or not all(_is_combination(entry) for entry in data):
        raise _invalid("the coverage is a list of pairs: a kind of fault and a state", where)
    return tuple((fault, state) for fault, state in data)


def choose_faults(names: Json, where: str) -> tuple[str, ...]:
    """Return the names of kinds of faults in the order of `KINDS`. Raises Problem."""
    kinds = [kind.name for kind in KINDS]
    unknown = [name for name in names if name not in kinds] if isinstance(names, list) else [names]
    if unknown:
        raise Problem(f"no kind of fault: {unknown[0]!r}", where, f"use some of: {', '.join(kinds)}")
    return tuple(kind for kind in kinds if kind in names)


def _is_combination(entry: Json) -> bool:
    return (
        isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(word, str) for word in entry)
    )


def _invalid(message: str, where: str) -> Problem:
    return Problem(message, where, "correct the file; a run has an example in its schedule.json")


def _read_step(entry: Json, number: int, where: str) -> Step:
    try:
        step = Step(**entry)
    except TypeError as error:
        raise _invalid(str(error).removeprefix("Step.__init__() "), where) from error
    if step.kind is None:
        words = ", ".join(sorted({kind.word for kind in KINDS}))
        raise _invalid(f"no fault {step.fault!r} with these arguments; use one of: {words}", where)
    for name in ("delay_s", "duration_s", "toleration_s"):
        value = getattr(step, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or value < (-1 if name[0] == "t" else 0)
        ):
            raise _invalid(f"{name} is {value!r}", where)
    if step.change not in CHANGES:
        raise _invalid(f"change is {step.change!r}; use one of: {', '.join(CHANGES[1:])}", where)
    if step.anchor not in get_args(Anchor):
        raise _invalid(f"anchor is {step.anchor!r}; use one of: {', '.join(get_args(Anchor))}", where)
    is_target = step.target in COMPONENTS if isinstance(step.target, str) else type(step.target) is int
    if not is_target or (isinstance(step.target, int) and step.target < 0):
        raise _invalid(f"target is {step.target!r}", where)
    if step.anchor != FIRST and not (type(step.of) is int and 0 <= step.of < number):
        raise _invalid(f"of is {step.of!r}: the anchor is of an earlier step", where)
    return step


NodeState = Literal["lost", "unknown", "tainted"]
"""State of a node: a fault cuts it off and it is not Unknown yet; it is Unknown; it has a taint of users."""
_QUIET = "quiet"


def of_node(state: NodeState, *, is_target: bool) -> str:
    """Return the state of the cluster if a node is in this state: the target of the fault or another."""
    return f"{'target' if is_target else 'other node'} {state}"


def stopped(component: str) -> str:
    """Return the state of the cluster in which a component of the control plane is stopped."""
    return f"{component} stopped"


def combine(step: Step, states: Collection[str]) -> frozenset[Combination]:
    """Return the combinations of a step with the states of the cluster; without any, it is quiet."""
    name = step.kind.name if step.kind else ""
    return frozenset((name, state) for state in states or (_QUIET,)) & POSSIBLE


def _possible() -> Iterator[Combination]:
    states: list[NodeState] = ["lost", "unknown", "tainted"]
    own: dict[str, list[NodeState]] = {"node": ["tainted"], "object": ["lost", "unknown"]}
    for kind in KINDS:
        yield kind.name, _QUIET
        yield from ((kind.name, stopped(component)) for component in COMPONENTS)
        yield from ((kind.name, of_node(state, is_target=False)) for state in states)
        yield from ((kind.name, of_node(state, is_target=True)) for state in own.get(kind.place, ()))


POSSIBLE = frozenset(_possible())
"""Combinations that a schedule can aim at.

A fault ends an earlier one of the same machine, component or taint.
"""


# Schedules


_CANDIDATES = 16
"""Number of random steps of which one is taken, if there is coverage."""
_NEXT_TO = 0.5
"""Share of the steps that begin while another fault is active on purpose."""


def generate(
    seed: int,
    duration_s: float,
    nodes: int,
    grace_s: float,
    toleration_s: int,
    coverage: Collection[Combination] = (),
    faults: tuple[str, ...] = (),
) -> Schedule:
    """Return a random schedule; the same arguments give the same one.

    Durations are around what matters: shorter than the grace period, a little longer, and long enough for
    evictions. Quiet phases in between let everything recover.

    Args:
        seed: any number.
        duration_s: about how long the storm takes (s).
        nodes: number of nodes that may be affected.
        grace_s: node monitor grace period (s).
        toleration_s: tolerationSeconds of the storm's pods (s).
        coverage: what earlier storms met; of several random steps, the one is taken that is expected to meet
            the most combinations that neither they nor the steps before met.
        faults: names of the kinds of faults to choose from; empty for all.
    """
    kinds = [kind for kind in KINDS if not faults or kind.name in faults]
    chance, changes = random.Random(seed), random.Random(f"changes {seed}")  # noqa: S311
    steps: list[Step] = []
    expected, met = Expected(grace_s), set(coverage)
    while True:
        before = steps[-1] if steps else None
        candidates = [
            _random_step(chance, kinds, len(steps), before, nodes, grace_s, toleration_s)
            for _number in range(_CANDIDATES if coverage else 1)
        ]
        # The first one decides whether a pause precedes the step: everything must recover now and then.
        alike = [candidate for candidate in candidates if candidate.anchor == candidates[0].anchor]
        step = max(alike, key=lambda candidate: len(expected.combinations(candidate) - met))
        met |= expected.combinations(step)
        if expected.add(step) > duration_s and steps:
            return Schedule(seed, tuple(steps), tuple(sorted(coverage)), faults)
        steps.append(replace(step, change=changes.choice(CHANGES)))


def expected_end_s(steps: Collection[Step], grace_s: float) -> float:
    """Return when a storm with these steps is expected to end (s)."""
    expected = Expected(grace_s)
    return max((expected.add(step) for step in steps), default=0.0)


class Expected:
    """When the steps of a schedule are expected to begin and to end (s), and what they meet.

    No step may begin before the one that was added before it.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._spans: list[Span] = []
        self._active: list[tuple[Step, Span]] = []
        self._ended_t = 0.0

    def add(self, step: Step) -> float:
        """Add a step, and return when the storm is expected to end."""
        start_t = self._start_t(step)
        span = Span(start_t, start_t + step.duration_s)
        self._spans.append(span)
        self._active = [*self._beside(step), (step, span)]
        self._ended_t = max(self._ended_t, span.until_t + HEALING_S)
        return self._ended_t

    def _start_t(self, step: Step) -> float:
        if step.anchor == FIRST:
            return step.delay_s
        span = self._spans[step.of]
        healed_t, unknown_t = span.until_t + HEALING_S, span.since_t + self._grace_s
        return {"healed": healed_t, "unknown": unknown_t}.get(step.anchor, span.since_t) + step.delay_s

    def _beside(self, step: Step) -> list[tuple[Step, Span]]:
        """Return the faults that stay when a step begins, which heals the oldest of too many nodes."""
        start_t = self._start_t(step)
        active = [
            (other, span)
            for other, span in self._active
            if start_t < span.until_t and not other.excludes(step)
        ]
        others = [other.target for other, _span in active if isinstance(other.target, int)]
        others = [node for node in others if node != step.target]
        while isinstance(step.target, int) and len({*others}) >= MAX_ACTIVE:
            oldest = others.pop(0)
            active.remove(next(entry for entry in active if entry[0].target == oldest))
        return active

    def combinations(self, step: Step) -> frozenset[Combination]:
        """Return what a step is expected to meet after those that were added."""
        start_t = self._start_t(step)
        return combine(
            step,
            {self._state(active, step, start_t - span.since_t) for active, span in self._beside(step)},
        )

    def _state(self, active: Step, step: Step, lasted_s: float) -> str:
        if isinstance(active.target, str):
            return stopped(active.target)
        is_target = active.target == step.target
        if not active.is_on_machine:
            return of_node("tainted", is_target=is_target)
        return of_node("unknown" if lasted_s > self._grace_s else "lost", is_target=is_target)


def _random_step(
    chance: random.Random,
    kinds: Sequence[Kind],
    number: int,
    before: Step | None,
    nodes: int,
    grace_s: float,
    toleration_s: int,
) -> Step:
    """Return a random step to follow another."""
    kind = chance.choices(kinds, [kind.weight for kind in kinds])[0]
    anchor, delay_s = _anchor(chance, before, grace_s)
    duration_s = round(chance.uniform(*_duration(chance, grace_s, toleration_s)), 1)
    target = _target(chance, kind, before, nodes, is_beside=anchor in ("injected", "unknown"))
    if kind.place == "component":
        duration_s = round(chance.uniform(0.5, grace_s / 2), 1)
    tolerated_s = chance.choice((-1, 0, toleration_s, toleration_s))
    of = max(0, number - 1)
    return Step(kind.word, target, anchor, of, delay_s, duration_s, tolerated_s, dict(kind.arguments))


def _anchor(chance: random.Random, before: Step | None, grace_s: float) -> tuple[Anchor, float]:
    """Return what a step waits for, and for how long after it (s)."""
    if before is None:
        return FIRST, 0.0
    if chance.random() >= _NEXT_TO:
        # One in four pauses is long enough for everything to recover.
        return "healed", round(chance.choice((0.5, 2.0, 5.0, grace_s)), 1)
    if before.is_on_machine and before.duration_s > grace_s + 2.0 and chance.random() < 0.6:
        return "unknown", round(chance.uniform(0.0, 4.0), 1)
    return "injected", round(chance.uniform(0.0, min(4.0, before.duration_s / 2)), 1)


def _duration(chance: random.Random, grace_s: float, toleration_s: int) -> Sequence[float]:
    """Return the range of a fault's duration (s)."""
    return chance.choice(
        (
            (1.0, grace_s / 2),
            (grace_s + 1.0, grace_s + toleration_s / 2),
            (grace_s + toleration_s + 2.0, grace_s + toleration_s + 6.0),
        )
    )


def _target(chance: random.Random, kind: Kind, before: Step | None, nodes: int, is_beside: bool) -> int | str:
    """Return a target; a step beside another takes another machine, but may taint the same node."""
    if kind.place == "component":
        return chance.choice(COMPONENTS)
    choices = list(range(nodes))
    if (
        is_beside
        and kind.place == "object"
        and before is not None
        and before.is_on_machine
        and chance.random() < 0.7
    ):
        return before.target
    if is_beside and before is not None and before.target in choices:
        choices.remove(int(before.target))
    return chance.choice(choices)


Steps = tuple[Step, ...]
ATTEMPTS = 2
"""How often a candidate may conform until it is given up, as it may need luck; or else prove nothing."""
RATE_TIMES = 5
"""How often the smallest schedule is repeated to state its rate."""


@dataclass(frozen=True)
class Trial:
    """What a storm with some steps showed, and how long it took (s)."""

    outcome: Outcome
    took_s: float


Judge = Callable[[Steps], Trial]


@dataclass(frozen=True)
class Shrunk:
    """The smallest schedule that was seen to deviate.

    Args:
        steps: its steps.
        deviating: in how many of the repetitions it deviated.
        judged: number of repetitions; one that proved nothing does not count.
        spent_s: how long all storms took (s).
        is_minimal: whether each schedule with one step less conformed.
    """

    steps: Steps
    deviating: int
    judged: int
    spent_s: float
    is_minimal: bool


class _OverBudget(Exception):
    """Another storm could exceed the budget."""


class _Search:
    def __init__(self, steps: Steps, took_s: float, budget_s: float, grace_s: float, judge: Judge) -> None:
        self.smallest = tuple(range(len(steps)))
        self.spent_s = 0.0
        self._steps, self._grace_s, self._judge = steps, grace_s, judge
        self._budget_s = budget_s
        # The start of the lab, and the recovery after the last fault.
        self._beside_s = took_s - expected_end_s(steps, grace_s)
        self._trials: Counter[tuple[Sequence[int], bool]] = Counter()

    def steps(self) -> Steps:
        return subset(self._steps, self.smallest, self._grace_s)

    def _expected_s(self, steps: Steps) -> float:
        return max(0.0, self._beside_s + expected_end_s(steps, self._grace_s))

    def try_once(self, steps: Steps, reserved_s: float = 0.0) -> Trial:
        """Judge steps. Raises _OverBudget if they are expected to take longer than is left."""
        if self.spent_s + self._expected_s(steps) + reserved_s > self._budget_s:
            raise _OverBudget
        trial = self._judge(steps)
        self.spent_s += trial.took_s
        return trial

    def accept(self, numbers: Sequence[int], attempts: int = ATTEMPTS) -> bool:
        """Return whether the steps with these numbers deviate, and keep them if they do.

        Args:
            numbers: the numbers of the steps.
            attempts: how often they may conform, and how often prove nothing, earlier trials included.
        """
        numbers = tuple(numbers)
        while max(self._trials[numbers, is_proof] for is_proof in (True, False)) < attempts:
            steps = subset(self._steps, numbers, self._grace_s)
            reserved_s = min(RATE_TIMES * self._expected_s(steps), self._budget_s / 3)
            trial = self.try_once(steps, reserved_s)
            self._trials[numbers, trial.outcome != "unproven"] += 1
            if trial.outcome == "deviates":
                self.smallest = numbers
                return True
        return False

    def is_minimal(self) -> bool:
        """Return whether each schedule with one step less conformed; load may have kept some from it."""
        smaller = [tuple(other for other in self.smallest if other != number) for number in self.smallest]
        return all(self._trials[numbers, True] for numbers in smaller if numbers)

    def minimise(self) -> None:
        """Remove ever smaller parts until no single step can be removed."""
        parts = 2
        while len(self.smallest) > 1:
            size = len(self.smallest)
            parts = min(parts, size)
            bounds = [size * part // parts for part in range(parts + 1)]
            if any(
                self.accept(self.smallest[:begin] + self.smallest[end:]) for begin, end in pairwise(bounds)
            ):
                parts = max(2, parts - 1)
            elif parts == size:
                return
            else:
                parts *= 2


def shrink(
    steps: Steps,
    guesses: Sequence[Sequence[int]],
    took_s: float,
    budget_s: float,
    grace_s: float,
    judge: Judge,
) -> Shrunk:
    """Return the smallest schedule that was seen to deviate, with its rate of reproduction.

    Args:
        steps: a schedule that deviated.
        guesses: numbers of the steps that may suffice, the most likely ones first; each guess is tried once
            if it is part of what is left.
        took_s: how long the storm of all steps took (s), with the start of its lab.
        budget_s: how long all storms may take (s).
        grace_s: node monitor grace period (s).
        judge: runs a storm with some steps.
    """
    search, is_minimal = _Search(steps, took_s, budget_s, grace_s, judge), False
    try:
        for guess in guesses:
            smaller = [number for number in search.smallest if number in guess]
            if smaller and len(smaller) < len(search.smallest):
                search.accept(smaller, attempts=1)
        search.minimise()
        is_minimal = search.is_minimal()
    except _OverBudget:
        pass
    outcomes = _repeat(search)
    deviating = outcomes.count("deviates")
    return Shrunk(
        search.steps(), deviating, deviating + outcomes.count("conforms"), search.spent_s, is_minimal
    )


def _repeat(search: _Search) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        for _time in range(RATE_TIMES):
            outcomes.append(search.try_once(search.steps()).outcome)
    except _OverBudget:
        pass
    return outcomes


def subset(steps: Steps, numbers: Sequence[int], grace_s: float) -> Steps:
    """Return the steps with these numbers, in ascending order; they begin at about the same time as before.

    A step whose anchor is removed waits for the anchor of the removed step instead. The first step begins
    at once.
    """
    new_numbers = {number: position for position, number in enumerate(numbers)}
    kept = [_reanchored(steps, number, new_numbers, grace_s) for number in numbers]
    if not kept or kept[0].anchor != FIRST:
        return tuple(kept)
    skipped_s = kept[0].delay_s
    return tuple(
        replace(step, delay_s=max(0.0, round(step.delay_s - skipped_s, 1))) if step.anchor == FIRST else step
        for step in kept
    )


def _reanchored(steps: Steps, number: int, new_numbers: dict[int, int], grace_s: float) -> Step:
    step = steps[number]
    anchor, of, delay_s = step.anchor, step.of, step.delay_s
    while anchor != FIRST and of not in new_numbers:
        removed = steps[of]
        passed_s = {"healed": removed.duration_s + HEALING_S, "unknown": grace_s}.get(anchor, 0.0)
        anchor, of, delay_s = removed.anchor, removed.of, delay_s + passed_s + removed.delay_s
    return replace(step, anchor=anchor, of=new_numbers.get(of, 0), delay_s=round(delay_s, 1))
