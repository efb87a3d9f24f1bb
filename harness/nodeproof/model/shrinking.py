"""Shrinks the schedule of a storm: removes steps as long as a judge finds that it still deviates.

ddmin: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from nodeproof.model.generator import expected_end_s
from nodeproof.model.schedule import FIRST, HEALING_S, Step
from nodeproof.model.verdict import Outcome

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
