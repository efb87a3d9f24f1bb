"""Schedules of a storm: generated from a seed, stored, read and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.model.generator import generate
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import CHANGES, FIRST, KINDS, Schedule

Json = Any
FEW = {"seed": 3, "steps": [{"fault": "partition", "target": 1, "duration_s": 2.0}]}


def made(seed: int = 1, duration_s: float = 300.0) -> Schedule:
    return generate(seed, duration_s, nodes=4, grace_s=12.0, toleration_s=6)


def test_same_seed_gives_the_same_schedule() -> None:
    assert made(7) == made(7) != made(8)


@given(st.integers(0, 10_000), st.floats(1.0, 3600.0))
def test_stored_schedule_is_read_as_it_was(seed: int, duration_s: float) -> None:
    schedule = made(seed, duration_s)
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json())), "file") == schedule
    schedule.check_targets(4, "file")


@given(st.integers(0, 10_000))
def test_every_anchor_is_of_an_earlier_step(seed: int) -> None:
    steps = made(seed).steps
    assert steps[0].anchor == FIRST
    assert all(step.of < number for number, step in enumerate(steps) if number)


def test_longer_storm_begins_like_a_shorter_one() -> None:
    short, long = made(duration_s=120.0).steps, made(duration_s=600.0).steps
    assert long[: len(short)] == short
    assert len(long) > 3 * len(short)


def test_hours_of_storm_have_every_kind_of_fault_and_none_too_often() -> None:
    steps = made(duration_s=4 * 3600.0).steps
    kinds = [step.kind for step in steps]
    assert all(kind in kinds for kind in KINDS)
    assert all(kinds.count(kind) < len(kinds) / 5 for kind in KINDS)
    assert {step.change for step in steps} == {*CHANGES}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fault": "earthquake"}, "no fault 'earthquake'"),
        ({"target": "etcd"}, "no fault|target is 'etcd'"),
        ({"target": -1}, "target is -1"),
        ({"delay_s": "soon"}, "delay_s is 'soon'"),
        ({"duration_s": -1}, "duration_s is -1"),
        ({"change": "rename"}, "change is 'rename'"),
        ({"anchor": "dawn"}, "anchor is 'dawn'"),
        ({"anchor": "healed", "of": 0}, "of is 0"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_step_is_refused_with_its_place(changed: Json, message: str) -> None:
    steps = [{**FEW["steps"][0], **changed}]  # type: ignore[index]
    with pytest.raises(Problem, match=message) as refusal:
        Schedule.from_json({"seed": 3, "steps": steps}, "file")
    assert "file: step 0" in str(refusal.value)


@pytest.mark.parametrize("data", [[], {}, {"steps": 3}, {"steps": [], "seed": "x"}])
def test_what_is_no_schedule_is_refused(data: Json) -> None:
    with pytest.raises(Problem, match=r"list of steps|whole number"):
        Schedule.from_json(data, "file")


def test_missing_node_is_refused() -> None:
    with pytest.raises(Problem, match="target 1: there are 1 nodes"):
        Schedule.from_json(FEW, "file").check_targets(1, "file")
