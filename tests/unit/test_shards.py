"""Shards of a run: each scenario in one, balanced, and equal on every machine."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import proc
from nodeproof.model.plan import ScenarioEstimate, Size, divide
from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard, parse
from nodeproof.report import rundir
from tests.unit.synthetic_runs import FACTS

LARGE, LARGER = Size(9, 3), Size(27, 3)
START_S = 15.0
SIZES = st.sampled_from([None, None, None, LARGE, LARGER])
SCENARIOS = st.lists(st.tuples(st.floats(0, 300), SIZES), min_size=1, max_size=30)
RUN_TIMEOUT_S = 240.0
TESTS = """
import pytest
from nodeproof.scenario import claims, needs

@claims("heartbeat.lease-interval")
@needs(duration_s="40")
def test_long(lab, judge): ...

@claims("heartbeat.lease-interval")
@needs(duration_s="30")
def test_short(lab, judge): ...

@claims("cordon.taint")
@needs(duration_s="5")
def test_shortest(lab, judge): ...
"""


def expected(durations: list[tuple[float, Size | None]]) -> list[ScenarioEstimate]:
    return [
        ScenarioEstimate(f"test_{n}", duration_s, "", size is not None, size=size)
        for n, (duration_s, size) in enumerate(durations)
    ]


def lengths(parts: tuple[tuple[ScenarioEstimate, ...], ...]) -> list[float]:
    return [sum(entry.duration_s for entry in part) for part in parts]


@given(SCENARIOS, st.integers(1, 8), st.randoms())
def test_each_scenario_is_in_one_shard_in_any_order(
    durations: list[tuple[float, Size | None]], of: int, chance: random.Random
) -> None:
    scenarios = expected(durations)
    parts = divide(scenarios, of, START_S)
    assert len(parts) == of
    assert sorted(entry.scenario for part in parts for entry in part) == sorted(
        entry.scenario for entry in scenarios
    )
    assert all(parts) or len(scenarios) < of
    chance.shuffle(scenarios)
    assert divide(scenarios, of, START_S) == parts


@given(SCENARIOS, st.integers(1, 8))
def test_shards_are_balanced(durations: list[tuple[float, Size | None]], of: int) -> None:
    longest = max(duration_s for duration_s, _size in durations)
    total = sum(duration_s for duration_s, _size in durations)
    allowed_s = max(longest, total / of) + (1 - 1 / of) * longest + START_S
    assert max(lengths(divide(expected(durations), of, START_S))) <= allowed_s + 1e-6


def test_lab_sizes_are_grouped_if_shards_stay_balanced() -> None:
    few = expected([(20, LARGE), (20, LARGE), (40, None), (40, None), (40, None)])
    parts = divide(few, 4, START_S)
    assert [sum(entry.size == LARGE for entry in part) for part in parts if any(e.size for e in part)] == [2]
    many = divide(expected([(40, LARGE)] * 4), 4, START_S)
    assert lengths(many) == [40.0] * 4


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "1/2/3", "a/b", "-1/2", "1/2 ", "²/4"])
def test_invalid_shard_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(Problem, match="is not a shard") as refused:
        parse(text)
    assert "\n" not in str(refused.value)
    assert "--shard 2/4" in refused.value.next_step


def test_run_stores_its_shard_and_the_content_of_all(tmp_path: Path) -> None:
    parts = (
        {"a.py::test_a": ("cordon.taint",)},
        {"b.py::test_b": ("cordon.taint", "heartbeat.lease-interval")},
    )
    shard = Shard(2, "process", "fast", "v1.36.3", FACTS.began, (), parts)
    assert rundir.read_shard(tmp_path) is None
    rundir.write_shard(tmp_path, shard)
    assert rundir.read_shard(tmp_path) == shard
    assert (shard.name, shard.claims) == ("shard 2/2", ("cordon.taint", "heartbeat.lease-interval"))
    rundir.write_json(tmp_path / "shard.json", {**shard.to_json(), "number": 3})
    with pytest.raises(Problem, match="malformed"):
        rundir.read_shard(tmp_path)
    twice = {**shard.to_json(), "shards": [{"a.py::test_a": []}, {"a.py::test_a": []}]}
    rundir.write_json(tmp_path / "shard.json", twice)
    with pytest.raises(Problem, match="a scenario is in two shards"):
        rundir.read_shard(tmp_path)


def planned(cwd: Path, *options: str) -> proc.Result:
    argv = (sys.executable, "-m", "nodeproof.cli", "plan", "-n0", *options, "test_it.py")
    return proc.run(argv, timeout_s=RUN_TIMEOUT_S, cwd=cwd)


def test_shard_plan_uses_formulas_or_a_file_and_not_local_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    own = tmp_path / "reports" / "out" / "20260101-000000-fast-process-0000"
    own.mkdir(parents=True)
    rundir.write_json(own / rundir.TIMES, {"test_it.py::test_shortest": 500.0})
    second = planned(tmp_path, "--shard", "2/2").stdout
    assert second.startswith("shard 2/2: 2 of 3 scenarios; the shards, with one worker each: 40, 35 s\n")
    assert ("test_long" in second, "test_short " in second, "test_shortest" in second) == (False, True, True)
    output = planned(tmp_path, "--shard=2/2", "--times", str(own / rundir.TIMES)).stdout
    assert output.startswith("shard 2/2: 2 of 3 scenarios; the shards, with one worker each: 500, 70 s\n")


def test_more_shards_than_scenarios_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    with pytest.raises(proc.CommandFailed) as refused:
        planned(tmp_path, "--shard", "1/4")
    errors = [line for line in refused.value.output.splitlines() if "nodeproof:" in line]
    assert errors == [
        "ERROR: nodeproof: 4 shards of 3 scenarios: some would have nothing to run (--shard); "
        "use at most 3 shards"
    ]
