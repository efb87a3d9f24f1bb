"""Coverage of a storm: what its faults met, and schedules that prefer what earlier storms did not meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.checks.storm_coverage import coverage
from nodeproof.model.combinations import POSSIBLE
from nodeproof.model.generator import Expected, generate
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import TAINT_KEY, Combination, Schedule, Step
from nodeproof.report.rundir import write_json
from nodeproof.session.storm import COVERAGE, FILE, coverage_summary, read_coverage
from tests.unit.histories import NODE, OTHER, Story

Json = Any
GRACE_S = 12.0
TAINT = Step("taint", 0, arguments={"key": TAINT_KEY, "effect": "NoExecute"})
HALF = frozenset(sorted(POSSIBLE)[::2])
combinations = st.sets(st.sampled_from(sorted(POSSIBLE)))


def made(
    seed: int, met: set[Combination] | frozenset[Combination] = frozenset(), duration_s: float = 600.0
) -> Schedule:
    return generate(seed, duration_s, nodes=4, grace_s=GRACE_S, toleration_s=6, coverage=met)


def expected(schedule: Schedule) -> set[Combination]:
    """Return what a schedule is expected to meet."""
    expectation, met = Expected(GRACE_S), set[Combination]()
    for step in schedule.steps:
        met |= expectation.combinations(step)
        expectation.add(step)
    return met


@given(st.integers(0, 10_000), combinations)
def test_same_seed_and_coverage_give_the_same_schedule_which_stores_it(
    seed: int, met: set[Combination]
) -> None:
    schedule = made(seed, met)
    assert schedule == made(seed, met)
    assert set(schedule.coverage) == met
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json())), "file") == schedule
    schedule.check_targets(4, "file")


@given(st.integers(0, 10_000), combinations)
def test_longer_storm_with_coverage_begins_like_a_shorter_one(seed: int, met: set[Combination]) -> None:
    short, long = made(seed, met, 120.0).steps, made(seed, met, 600.0).steps
    assert long[: len(short)] == short


def test_every_combination_is_met_in_hours_of_storm() -> None:
    assert expected(made(5, duration_s=10 * 3600.0)) == POSSIBLE


def test_storms_with_coverage_are_expected_to_meet_more_that_is_new() -> None:
    plain, preferred = (
        sum(len(expected(made(seed, met)) - HALF) for seed in range(30))
        for met in (frozenset[Combination](), HALF)
    )
    assert preferred > 1.25 * plain


def test_coverage_leaves_as_many_pauses() -> None:
    plain, preferred = (
        sum(step.anchor == "healed" for seed in range(30) for step in made(seed, met).steps)
        for met in (frozenset[Combination](), HALF)
    )
    assert 0.9 * plain < preferred < 1.1 * plain


def test_coverage_makes_no_kind_of_fault_too_frequent() -> None:
    kinds = [step.kind for step in made(5, HALF, 4 * 3600.0).steps]
    assert all(kinds.count(kind) < len(kinds) / 5 for kind in kinds)


def inject(story: Story, t: float, name: str, node: str, **arguments: Json) -> Story:
    """Record the injection of a fault that stays."""
    for step_t, step in ((t, "injecting"), (t + 0.1, "injected")):
        fault = {"fault": name, **arguments}
        story.say(step_t, "fault", id=f"{name}-{t}", fault=fault, node=node, step=step)
    return story


def test_fault_of_a_quiet_cluster() -> None:
    story = inject(inject(Story(), 5.0, "kubelet-settings", NODE), 10.0, "partition", NODE)
    assert coverage([Step("partition", 0)], story.history()) == {("partition", "quiet")}


@pytest.mark.parametrize(
    ("ready", "node", "state"),
    [
        ("True", NODE, "target lost"),
        ("Unknown", NODE, "target unknown"),
        ("True", OTHER, "other node lost"),
        ("Unknown", OTHER, "other node unknown"),
    ],
)
def test_taint_meets_the_state_of_a_lost_node(ready: str, node: str, state: str) -> None:
    story = inject(Story(), 10.0, "freeze", node).condition(20.0, ready, node=node)
    inject(story, 30.0, "taint", "control-plane", on=NODE)
    met = coverage([Step("freeze", 0), TAINT], story.history())
    assert met == {("freeze", "quiet"), ("taint NoExecute", state)}


def test_fault_meets_a_taint_of_its_node_and_a_stopped_component() -> None:
    story = inject(Story(), 10.0, "power-off", "kube-scheduler").taint(11.0, key=TAINT_KEY)
    inject(story, 12.0, "link-down", NODE)
    assert coverage([Step("power_off", "kube-scheduler"), Step("link_down", 0)], story.history()) == {
        ("power_off component", "quiet"),
        ("link_down", "target tainted"),
        ("link_down", "kube-scheduler stopped"),
    }


def stored(run: Path, met: list[Combination], earlier: tuple[Combination, ...] = ()) -> Path:
    """Return the folder of a storm's run with this coverage."""
    folder = run / "scenarios" / "storm"
    folder.mkdir(parents=True)
    write_json(folder / FILE, Schedule(3, (TAINT,), earlier).to_json())
    write_json(folder / COVERAGE, met)
    return run


def test_coverage_of_runs_is_the_union(tmp_path: Path) -> None:
    first, second, third = sorted(POSSIBLE)[:3]
    runs = [stored(tmp_path / "a", [first, second]), stored(tmp_path / "b", [second, third])]
    assert read_coverage(runs) == {first, second, third}


def test_summary_counts_what_earlier_storms_did_not_meet(tmp_path: Path) -> None:
    first, second, third = sorted(POSSIBLE)[:3]
    run = stored(tmp_path, [first, second], (second, third))
    assert f"2 of {len(POSSIBLE)} combinations" in coverage_summary(run)
    assert "1 of them new" in coverage_summary(run)


def test_run_without_coverage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="no coverage of a storm"):
        read_coverage([tmp_path])


@pytest.mark.parametrize("content", [{}, ["freeze"], [["freeze"]], [["freeze", 3]]])
def test_malformed_coverage_is_refused_with_its_file(tmp_path: Path, content: Json) -> None:
    run = stored(tmp_path, content)
    with pytest.raises(Problem, match="list of pairs") as refusal:
        read_coverage([run])
    assert COVERAGE in str(refusal.value)
