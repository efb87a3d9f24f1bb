"""The number of parallel scenarios by measured load, and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model.load import (
    ROOMY,
    ROOMY_UNDER_PRESSURE,
    SETTLING_S,
    STRAINED,
    STRAINED_FOR_S,
    Allowance,
    Load,
    Turn,
    Worker,
    adapt,
    initial,
    may_start,
)

MOST = 6
CALM, STRESSED = Load(0.2, 0.3), Load(STRAINED + 0.01, 0.3)
LATER_S = SETTLING_S + 1

shares = st.floats(0, 3)
loads = st.builds(Load, shares, st.floats(0, 1))


@pytest.mark.parametrize(("foreign", "workers"), [(0.0, 3), (0.1, 3), (0.5, 2), (1.0, 1)])
def test_run_begins_with_fewer_workers_on_a_busy_machine(foreign: float, workers: int) -> None:
    assert initial(MOST, foreign) == workers


@given(st.integers(1, 50), st.floats(0, 1))
def test_run_begins_with_at_least_one_worker(most: int, foreign: float) -> None:
    assert 1 <= initial(most, foreign) <= most


def test_one_scenario_is_added_at_a_time_if_there_is_capacity() -> None:
    assert adapt(Allowance(2, 0.0), 2, CALM, MOST, LATER_S) == Allowance(3, LATER_S)


@pytest.mark.parametrize("load", [Load(ROOMY + 0.01, 0.0), Load(ROOMY_UNDER_PRESSURE + 0.01, 1.0)])
def test_no_scenario_is_added_without_capacity(load: Load) -> None:
    assert adapt(Allowance(2, 0.0), 2, load, MOST, LATER_S) == Allowance(2, 0.0)


def test_no_scenario_is_added_while_the_limit_is_not_used() -> None:
    assert adapt(Allowance(3, 0.0), 2, CALM, MOST, LATER_S) == Allowance(3, 0.0)


@pytest.mark.parametrize(
    ("workers", "running", "fewer"), [(6, 6, 3), (6, 4, 2), (3, 3, 1), (1, 1, 1), (4, 0, 1)]
)
def test_limit_is_halved_if_slack_exceeds_half_of_its_limit(workers: int, running: int, fewer: int) -> None:
    strained = adapt(Allowance(workers, 0.0), running, STRESSED, MOST, LATER_S)
    assert strained == Allowance(fewer, LATER_S, running, LATER_S)


@pytest.mark.parametrize(("after_s", "workers"), [(LATER_S, 3), (STRAINED_FOR_S, 4)])
def test_number_that_strained_the_machine_is_tried_again_only_later(after_s: float, workers: int) -> None:
    strained = Allowance(3, 0.0, strained=4, strained_t=0.0)
    assert adapt(strained, 3, CALM, MOST, after_s).workers == workers


def test_scenarios_above_the_limit_are_not_halved_again() -> None:
    assert adapt(Allowance(3, 0.0), 4, STRESSED, MOST, LATER_S) == Allowance(3, 0.0)


def test_spare_capacity_raises_the_limit_above_the_running_scenarios() -> None:
    assert adapt(Allowance(2, 0.0), 4, CALM, MOST, LATER_S) == Allowance(5, LATER_S)


def test_limit_is_not_changed_again_before_the_last_change_settled() -> None:
    assert adapt(Allowance(6, 0.0), 6, STRESSED, MOST, SETTLING_S - 0.1) == Allowance(6, 0.0)


@given(st.integers(1, MOST), st.integers(0, MOST), loads, st.floats(0, 100))
def test_limit_is_between_one_and_the_number_of_workers(
    workers: int, running: int, load: Load, now_t: float
) -> None:
    assert 1 <= adapt(Allowance(workers, 0.0), running, load, MOST, now_t).workers <= MOST


@given(st.integers(1, MOST), st.integers(0, MOST), loads, loads)
def test_more_load_never_raises_the_limit(workers: int, running: int, load: Load, other: Load) -> None:
    lighter = Load(min(load.slack_share, other.slack_share), min(load.pressure, other.pressure))
    heavier = Load(max(load.slack_share, other.slack_share), max(load.pressure, other.pressure))
    allowances = [adapt(Allowance(workers, 0.0), running, load, MOST, LATER_S) for load in (lighter, heavier)]
    assert allowances[0].workers >= allowances[1].workers


@given(st.integers(1, MOST))
def test_limit_of_a_calm_machine_returns_to_all_workers(workers: int) -> None:
    allowance = Allowance(workers, 0.0)
    for number in range(1, MOST + 1):
        allowance = adapt(allowance, allowance.workers, CALM, MOST, number * LATER_S)
    assert allowance.workers == MOST


def waiting(name: str, turn: Turn = Turn.QUEUE, since_t: float = 0.0) -> Worker:
    return Worker(name, turn, waits_since_t=since_t)


def running(name: str, turn: Turn = Turn.QUEUE) -> Worker:
    return Worker(name, turn, is_running=True)


@pytest.mark.parametrize(
    ("others", "allowed", "starts"),
    [
        ([], 1, True),
        ([running("a")], 1, False),
        ([running("a")], 2, True),
        ([running("a"), waiting("b", since_t=-1.0)], 2, False),
        ([running("a"), waiting("b", since_t=1.0)], 2, True),
        ([running("a", Turn.HALF)], 2, True),
    ],
)
def test_scenario_starts_once_those_before_it_leave_capacity(
    others: list[Worker], allowed: int, starts: bool
) -> None:
    assert may_start("own", [waiting("own"), *others], allowed, MOST) is starts


@pytest.mark.parametrize("turn", [Turn.HALF, Turn.ALONE])
def test_retry_starts_only_after_the_last_scenario_of_an_earlier_turn(turn: Turn) -> None:
    own = waiting("own", turn)
    assert not may_start("own", [own, Worker("a", Turn(turn - 1))], MOST, MOST)
    assert may_start("own", [own], MOST, MOST)


def test_at_most_half_of_the_workers_run_retries_at_once() -> None:
    others = [running(name, Turn.HALF) for name in "abc"]
    assert may_start("own", [waiting("own", Turn.HALF), *others[:2]], MOST, MOST)
    assert not may_start("own", [waiting("own", Turn.HALF), *others], MOST, MOST)


def test_last_retry_runs_alone() -> None:
    assert not may_start("own", [waiting("own", Turn.ALONE), running("a", Turn.ALONE)], MOST, MOST)


@given(
    st.lists(st.tuples(st.sampled_from(Turn), st.booleans(), st.floats(0, 9)), min_size=1, max_size=MOST),
    st.integers(1, MOST),
)
def test_some_scenario_always_runs_or_may_start(states: list[tuple[Turn, bool, float]], allowed: int) -> None:
    workers = [
        Worker(str(number), turn, is_running, None if is_running else since_t)
        for number, (turn, is_running, since_t) in enumerate(states)
    ]
    idle = [worker.name for worker in workers if not worker.is_running]
    assert any(worker.is_running for worker in workers) or any(
        may_start(name, workers, allowed, MOST) for name in idle
    )


@pytest.mark.parametrize(
    ("tries", "turn"), [(0, Turn.QUEUE), (1, Turn.HALF), (2, Turn.ALONE), (5, Turn.ALONE)]
)
def test_number_of_tries_gives_the_turn(tries: int, turn: Turn) -> None:
    assert Turn.after(tries) is turn
