"""Shrinking a schedule: what is left deviates, is minimal, and cost no more than allowed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Set
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model.generator import expected_end_s, generate
from nodeproof.model.schedule import FIRST, Schedule, Step
from nodeproof.model.shrinking import ATTEMPTS, Judge, Shrunk, Steps, Trial, shrink, subset
from nodeproof.model.verdict import Outcome

GRACE_S = 12.0
BESIDE_S = 30.0
AMPLE_S = 1e9
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def numbered(count: int) -> Steps:
    """Return steps that are told apart by their toleration."""
    return tuple(
        Step("partition", 0, "healed" if number else FIRST, max(0, number - 1), 1.0, 2.0, number)
        for number in range(count)
    )


def numbers(steps: Steps) -> set[int]:
    return {step.toleration_s for step in steps}


def took_s(steps: Steps) -> float:
    """Return how long a storm takes (s)."""
    return BESIDE_S + expected_end_s(steps, GRACE_S)


def judge_by(deviates: Callable[[Set[int]], bool]) -> Judge:
    """Return a judge of a deterministic bug."""

    def judge(steps: Steps) -> Trial:
        return Trial("deviates" if deviates(numbers(steps)) else "conforms", took_s(steps))

    return judge


def shrunk(count: int, judge: Judge, budget_s: float = AMPLE_S, guesses: tuple[range, ...] = ()) -> Shrunk:
    steps = numbered(count)
    return shrink(steps, guesses, took_s(steps), budget_s, GRACE_S, judge)


@given(st.data(), st.integers(1, 30))
def test_steps_that_cause_the_deviation_are_left(data: st.DataObject, count: int) -> None:
    causes = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    result = shrunk(count, judge_by(lambda present: causes <= present))
    assert numbers(result.steps) == causes
    assert result.is_minimal
    assert (result.deviating, result.judged) == (5, 5)


@given(st.data(), st.integers(1, 12))
def test_no_step_can_be_removed_whatever_deviates(data: st.DataObject, count: int) -> None:
    alternatives = data.draw(st.lists(st.sets(st.integers(0, count - 1), min_size=1), max_size=4))

    def deviates(present: Set[int]) -> bool:
        # Not monotonic: an odd number of further steps hides one of the causes.
        return len(present) == count or any(
            cause <= present and len(present - cause) % 2 == 0 for cause in alternatives
        )

    left = numbers(shrunk(count, judge_by(deviates)).steps)
    assert deviates(left)
    assert len(left) == 1 or not any(deviates(left - {number}) for number in left)


@given(st.integers(1, 20), st.floats(0.0, 3000.0), st.integers(0, 1000))
def test_budget_is_kept_and_result_was_seen_to_deviate(count: int, budget_s: float, seed: int) -> None:
    chance, seen = random.Random(seed), [set(range(count))]  # noqa: S311

    def judge(steps: Steps) -> Trial:
        outcome: Outcome = chance.choice(OUTCOMES)
        if outcome == "deviates":
            seen.append(numbers(steps))
        return Trial(outcome, took_s(steps))

    result = shrunk(count, judge, budget_s)
    assert result.spent_s <= budget_s
    assert numbers(result.steps) in seen
    assert 0 <= result.deviating <= result.judged <= 5


def test_storms_that_prove_nothing_do_not_count() -> None:
    result = shrunk(4, lambda _steps: Trial("unproven", 1.0))
    assert numbers(result.steps) == {0, 1, 2, 3}
    assert not result.is_minimal
    assert (result.deviating, result.judged) == (0, 0)


def test_storm_that_proves_nothing_is_repeated() -> None:
    trials: Counter[frozenset[int]] = Counter()

    def judge(steps: Steps) -> Trial:
        present = frozenset(numbers(steps))
        trials[present] += 1
        is_cause = present >= {1}
        return Trial("unproven" if trials[present] == 1 else "deviates" if is_cause else "conforms", 1.0)

    assert numbers(shrunk(4, judge).steps) == {1}


def test_guess_that_deviates_saves_storms() -> None:
    tried: list[Steps] = []

    def judge(steps: Steps) -> Trial:
        tried.append(steps)
        return Trial("deviates" if 2 in numbers(steps) else "conforms", 1.0)

    shrunk(40, judge, guesses=(range(10), range(2, 3)))
    assert [len(steps) for steps in tried[:2]] == [10, 1]


def test_no_steps_are_tried_more_often_than_allowed() -> None:
    tried: Counter[frozenset[int]] = Counter()

    def judge(steps: Steps) -> Trial:
        tried[frozenset(numbers(steps))] += 1
        return Trial("deviates" if numbers(steps) >= {0, 5} else "conforms", 1.0)

    result = shrunk(8, judge, guesses=(range(1), range(5, 6), range(4)))
    del tried[frozenset(numbers(result.steps))]
    assert max(tried.values()) <= ATTEMPTS


@given(st.integers(0, 1000), st.data())
def test_subset_is_a_valid_schedule_that_begins_at_once(seed: int, data: st.DataObject) -> None:
    steps = generate(seed, 300.0, nodes=4, grace_s=GRACE_S, toleration_s=6).steps
    kept = sorted(data.draw(st.sets(st.integers(0, len(steps) - 1), min_size=1)))
    schedule = Schedule(seed, subset(steps, kept, GRACE_S))
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json())), "file") == schedule
    assert [step.fault for step in schedule.steps] == [steps[number].fault for number in kept]
    assert schedule.steps[0].anchor == FIRST
    assert schedule.steps[0].delay_s == 0.0


def test_step_whose_anchor_is_removed_begins_when_it_did() -> None:
    first = Step("partition", 0, duration_s=20.0)
    second = Step("freeze", 1, "injected", 0, 3.0, 5.0)
    third = Step("power_off", 2, "healed", 1, 2.0, 1.0)
    assert subset((first, second, third), (0, 2), GRACE_S)[1] == Step(
        "power_off", 2, "injected", 0, 14.0, 1.0
    )
