"""Shards: their plan and their folders, and the run that is merged of them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import proc
from nodeproof.model.plan import ScenarioEstimate, Shard, Size, divide, parse_shard
from nodeproof.model.problem import Problem
from nodeproof.report import digest, merge, plain, rundir
from nodeproof.report.rundir import Row, RunFacts
from tests.unit.in_process import Call, Output
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    DEFAULT,
    DETECTION,
    FACTS,
    LACKS,
    SWAP,
    TAINT,
    ScenarioVerdict,
    shard_of,
    shard_run,
    tell,
)

# Merging of shards: verdicts, dead and missing shards, and refusals.


A, B, C = "s/test_a.py::test_a", "s/test_b.py::test_b", "s/test_c.py::test_c"
PARTS: tuple[dict[str, tuple[str, ...]], ...] = ({A: (DETECTION, TAINT)}, {B: (DEFAULT,), C: (TAINT, SWAP)})
FIRST: list[ScenarioVerdict] = [(A, DETECTION, CONFORMS), (A, TAINT, CONFORMS)]
SECOND: list[ScenarioVerdict] = [(B, DEFAULT, CONFORMS), (C, TAINT, CONFORMS), (C, SWAP, LACKS)]
GAPS = dict.fromkeys([(B, DEFAULT), (C, TAINT), (C, SWAP)], "gap")
UNDATED = json.dumps({**shard_of(2, PARTS).to_json(), "began": "yesterday"})
SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())


def both(folder: Path, second: list[ScenarioVerdict] = SECOND, facts: RunFacts | None = FACTS) -> list[Path]:
    one = shard_run(folder / "one", 1, PARTS, FIRST)
    return [one, shard_run(folder / "two", 2, PARTS, second, facts)]


def labels(run: Path) -> dict[tuple[str, str], str]:
    rows = rundir.read_verdicts(run)
    jsonschema.validate(list(rows), SCHEMA)
    return {(row["scenario"], row["claim"]): row["code"] or row["verdict"] for row in rows}


def row_of(run: Path, scenario: str) -> Row:
    return next(row for row in rundir.read_verdicts(run) if row["scenario"] == scenario)


def merged(call: Call, runs: Sequence[Path], into: Path) -> Output:
    """Merge runs by the command."""
    return call("merge", *map(str, runs), "--run", str(into), "--no-site")


def test_merge_of_a_malformed_verdict_is_not_whole(tmp_path: Path, call: Call) -> None:
    runs = both(tmp_path)
    for path in runs[1].rglob("judgments.json"):
        path.write_text(path.read_text().replace('"drift"', '"drifting"'))
    output = merged(call, runs, tmp_path / "merged")
    assert output.status == 3
    assert "malformed and left out" in output.err


def test_two_shards_are_one_run(tmp_path: Path, call: Call) -> None:
    runs, into = both(tmp_path), tmp_path / "merged"
    assert merged(call, runs[::-1], into).status == 0
    conform = dict.fromkeys([(A, DETECTION), (A, TAINT), (B, DEFAULT), (C, TAINT)], "conforms")
    assert labels(into) == {**conform, (C, SWAP): "lab-lacks"}
    facts = rundir.read_facts(into)
    assert facts.selected == tuple(sorted({DETECTION, TAINT, DEFAULT, SWAP}))
    assert (facts.run, facts.exit_reason, facts.shard) == ("merged", "", None)
    assert [shard["run"] for shard in facts.merged] == ["one", "two"]
    assert digest.read(into, CLAIMS).is_whole
    assert (into / "labs" / "p-000001" / "kubelet.log").read_text() == "of shard 1"
    assert (into / "labs" / "p-000001-shard-2" / "kubelet.log").read_text() == "of shard 2"
    assert json.loads((into / "labs" / "p-000001-shard-2.json").read_text()) == {"shard": 2}
    assert len(list((into / "allure-results").glob("*-result.json"))) == 2
    assert json.loads((into / rundir.TIMES).read_text()) == {A: 5.0, B: 5.0, C: 5.0, "start": 15.0}
    assert (into / "scenarios" / rundir.slug(A) / "timeline.svg").stat().st_nlink == 2
    assert not (into / "site").exists()
    assert (tmp_path / rundir.LATEST).resolve() == into.resolve()


def test_claims_of_a_missing_shard_are_unproven_and_name_it(tmp_path: Path, call: Call) -> None:
    runs, into = both(tmp_path)[:1], tmp_path / "merged"
    assert merged(call, runs, into).status == 3
    assert labels(into) == {**dict.fromkeys(labels(runs[0]), "conforms"), **GAPS}
    assert row_of(into, B)["reason"] == "shard 2/2 is missing"
    assert rundir.read_facts(into).exit_reason == "shard 2/2 is missing"
    results = [json.loads(path.read_text()) for path in (into / "allure-results").glob("*-result.json")]
    result = next(result for result in results if result.get("fullName") == B)
    assert result["name"] == plain.title(B)
    assert (result["status"], result["statusDetails"]["message"]) == ("broken", "shard 2/2 is missing")
    assert {"name": "claim", "value": DEFAULT} in result["labels"]
    assert result["start"] == datetime.fromisoformat(FACTS.ended).timestamp() * 1000
    assert len(results) == 3
    run_digest = digest.read(into, CLAIMS)
    assert run_digest.missing == ("The run broke off: shard 2/2 is missing",)
    assert all(not entry.is_missing for entry in run_digest.entries)


def test_dead_shard_keeps_its_verdicts(tmp_path: Path, call: Call) -> None:
    runs, into = both(tmp_path, SECOND[:1], None), tmp_path / "merged"
    half = runs[1] / "scenarios" / rundir.slug(C)
    half.mkdir()
    (half / "history.jsonl").write_text('{"t": 1')
    assert merged(call, runs, into).status == 3
    assert (labels(into)[B, DEFAULT], labels(into)[C, SWAP]) == ("conforms", "gap")
    reason = "shard 2/2 has no end: it died, or is under way; it ended in the middle of this scenario"
    assert row_of(into, C)["reason"] == reason
    assert (into / "scenarios" / rundir.slug(C) / "history.jsonl").read_text() == '{"t": 1'
    assert not (half / "judgments.json").exists()


def test_unreadable_part_of_a_shard_is_unproven(tmp_path: Path) -> None:
    runs, into = both(tmp_path), tmp_path / "merged"
    torn = runs[1] / "scenarios" / rundir.slug(B) / "judgments.json"
    torn.write_text("{torn")
    merge.merge(runs, into, CLAIMS)
    assert labels(into)[B, DEFAULT] == "gap"
    assert "shard 2/2 ended, and left no judgments" in row_of(into, B)["reason"]
    assert torn.read_text() == "{torn"


def test_aborted_shard_states_its_reason(tmp_path: Path) -> None:
    facts = replace(FACTS, exit_reason="no memory\nlines of a log")
    run = merge.merge(both(tmp_path, SECOND[:1], facts), tmp_path / "merged", CLAIMS)
    assert run.facts.exit_reason == "shard 2/2 broke off: no memory"
    assert row_of(tmp_path / "merged", C)["reason"] == run.facts.exit_reason


@pytest.mark.parametrize("left", ["", "{torn", '{"number": 2}', UNDATED])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_unidentified_shard_folder_is_named_and_its_shard_missing(
    tmp_path: Path, call: Call, left: str, order: tuple[int, int]
) -> None:
    """It died between creating its folder and writing into it, or while writing."""
    runs = [shard_run(tmp_path / "one", 1, PARTS, FIRST), tmp_path / "two"]
    (runs[1] / "scenarios").mkdir(parents=True)
    if left:
        (runs[1] / rundir.SHARD).write_text(left)
    into = tmp_path / "merged"
    output = merged(call, [runs[at] for at in order], into)
    assert output.status == 3
    assert labels(into).items() >= GAPS.items()
    reason = row_of(into, B)["reason"]
    assert reason.startswith("shard 2/2 is missing; two does not say which shard it is, or when it began: ")
    assert reason in output.err
    shards = [(shard["shard"], shard["run"]) for shard in rundir.read_facts(into).merged]
    assert shards == [("shard 1/2", "one"), ("shard 2/2", ""), ("unknown", "two")]


def test_surplus_folder_is_named_and_ignored(tmp_path: Path) -> None:
    (tmp_path / "three").mkdir()
    run = merge.merge([tmp_path / "three", *both(tmp_path)], tmp_path / "merged", CLAIMS)
    assert (run.facts.exit_reason, run.facts.merged[-1]["run"]) == ("", "three")


def test_nothing_is_merged_without_a_run_of_a_shard(tmp_path: Path, call: Call) -> None:
    one, empty = shard_run(tmp_path / "one", 1, PARTS, FIRST), tmp_path / "empty"
    empty.mkdir()
    for runs in ([empty, empty], [one, tell(tmp_path / "own", FIRST)], [one, tmp_path / "none"]):
        _refused(tmp_path / "merged", call, runs, "this is no run of a shard")


@pytest.mark.parametrize("left", ["{torn", UNDATED])
def test_shard_is_also_read_from_run_json(tmp_path: Path, left: str) -> None:
    runs = both(tmp_path)
    (runs[1] / rundir.SHARD).write_text(left)
    facts = rundir.read_facts(runs[0])
    rundir.write_facts(runs[0], replace(facts, began="yesterday", ended=""))
    assert merge.merge(runs, tmp_path / "merged", CLAIMS).facts.began == FACTS.began
    assert labels(tmp_path / "merged")[B, DEFAULT] == "conforms"


def test_scenario_of_a_dead_worker_is_not_missing(tmp_path: Path) -> None:
    runs, died = both(tmp_path), f"{A}{rundir.DIED}"
    one = shard_run(tmp_path / "died", 1, PARTS, [(died, claim, verdict) for _A, claim, verdict in FIRST])
    merge.merge([one, runs[1]], tmp_path / "merged", CLAIMS)
    assert {scenario for scenario, _claim in labels(tmp_path / "merged")} == {died, B, C}


OTHER_PARTS = (PARTS[1], PARTS[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"profile": "documented"}, "two shards differ in their profile: fast, documented"),
        ({"lab": "libvirt"}, "two shards differ in their kind of lab: process, libvirt"),
        ({"kubernetes_version": "v1.35.0"}, "differ in their Kubernetes version: v1.36.3, v1.35.0"),
        ({"overrides": ("--set etcd.v=1",)}, "two shards differ in their settings: none, --set etcd.v=1"),
        ({"selected": (TAINT,)}, "two shards differ in their claims asked for: all, cordon.taint"),
        ({"began": "2031-01-01T02:17:00+00:00"}, "two shards began more than twelve hours apart"),
        ({"parts": (*PARTS, {})}, "two shards differ in their number of shards: 2, 3"),
        ({"parts": OTHER_PARTS}, "the shards were planned from different scenarios or durations"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_shards_of_two_runs_are_refused(tmp_path: Path, call: Call, changed: Any, message: str) -> None:
    one, two = both(tmp_path)
    rundir.write_shard(two, shard_of(2, **{"parts": PARTS, **changed}))
    _refused(tmp_path / "merged", call, [one, two], f"{message} (one, two); merge runs of one command")


def test_shards_that_do_not_fit_are_refused(tmp_path: Path, call: Call) -> None:
    one, two = both(tmp_path, [*SECOND, *FIRST])
    into, facts = tmp_path / "merged", replace(FACTS, kubernetes_version="v1.36.9")
    _refused(into, call, [one, two], f"{A} does not belong to shard 2/2 (two)")
    _refused(into, call, [one, two, two], "shard 2/2 is given twice (two, two); leave one of them out")
    other = shard_run(tmp_path / "other", 2, PARTS, SECOND, facts)
    _refused(into, call, [one, other], "differ in their Kubernetes version: v1.36.3, v1.36.9")
    own = shard_run(tmp_path / "own", 1, (PARTS[0], {B: ("own.claim",)}), FIRST)
    message = "the catalogue has no claim own.claim (merge); name its folder: --claims"
    _refused(into, call, [own], message)


def test_edited_facts_are_ignored(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    facts = json.loads((two / "run.json").read_text())
    rundir.write_json(two / "run.json", {**facts, "began": 5, "components": {"kubelet": []}})
    run = merge.merge([one, two], tmp_path / "merged", CLAIMS)
    assert run.facts.exit_reason == "shard 2/2 has no end: it died, or is under way"
    assert labels(tmp_path / "merged")[B, DEFAULT] == "conforms"


def _refused(into: Path, call: Call, runs: Sequence[Path], message: str) -> None:
    (line,) = merged(call, runs, into).refusal.splitlines()
    assert line.startswith("nodeproof: ")
    assert message in line
    assert not into.exists()


def test_nothing_is_merged_into_a_shard(tmp_path: Path, call: Call) -> None:
    runs = both(tmp_path)
    with pytest.raises(Problem, match="a folder of its own"):
        merge.merge(runs, runs[0], CLAIMS)
    for into in (runs[0] / "inside", runs[1] / "labs" / "deep", tell(tmp_path / "other", FIRST) / "inside"):
        _refused(into, call, runs, "nothing can be merged into a run: ")


# Shards of a run: each scenario in one, balanced, and equal on every machine.


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
    named = ((f"test_{n}", *duration) for n, duration in enumerate(durations))
    return [ScenarioEstimate(name, took_s, "", size is not None, size=size) for name, took_s, size in named]


def lengths(parts: tuple[tuple[ScenarioEstimate, ...], ...]) -> list[float]:
    return [sum(entry.duration_s for entry in part) for part in parts]


@given(SCENARIOS, st.integers(1, 8), st.randoms())
def test_each_scenario_is_in_one_shard_in_any_order(
    durations: list[tuple[float, Size | None]], of: int, chance: random.Random
) -> None:
    scenarios = expected(durations)
    parts = divide(scenarios, of, START_S)
    assert len(parts) == of
    names = sorted(entry.scenario for part in parts for entry in part)
    assert names == sorted(entry.scenario for entry in scenarios)
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
        parse_shard(text)
    assert "\n" not in str(refused.value)
    assert "--shard 2/4" in refused.value.next_step


def test_run_stores_its_shard_and_the_content_of_all(tmp_path: Path) -> None:
    claims = ("cordon.taint", "heartbeat.lease-interval")
    parts = ({"a.py::test_a": claims[:1]}, {"b.py::test_b": claims})
    shard = Shard(2, "process", "fast", "v1.36.3", FACTS.began, (), parts)
    assert rundir.read_shard(tmp_path) is None
    rundir.write_shard(tmp_path, shard)
    assert rundir.read_shard(tmp_path) == shard
    assert (shard.name, shard.claims) == ("shard 2/2", claims)
    twice: Any = [{"a.py::test_a": []}, {"a.py::test_a": []}]
    for changed, message in (({"number": 3}, "malformed"), ({"shards": twice}, "in two shards")):
        rundir.write_json(tmp_path / "shard.json", {**shard.to_json(), **changed})
        with pytest.raises(Problem, match=message):
            rundir.read_shard(tmp_path)


def planned(cwd: Path, *options: str) -> proc.Result:
    (cwd / "test_it.py").write_text(TESTS)
    argv = (sys.executable, "-m", "nodeproof.cli", "plan", "-n0", *options, "test_it.py")
    return proc.run(argv, timeout_s=RUN_TIMEOUT_S, cwd=cwd, check=False)


def test_shard_plan_uses_formulas_or_a_file_and_not_local_runs(tmp_path: Path) -> None:
    own = tmp_path / "reports" / "out" / "20260101-000000-fast-process-0000"
    own.mkdir(parents=True)
    rundir.write_json(own / rundir.TIMES, {"test_it.py::test_shortest": 500.0})
    second = planned(tmp_path, "--shard", "2/2").stdout
    assert second.startswith("shard 2/2: 2 of 3 scenarios; the shards, with one worker each: 40, 35 s\n")
    assert ("test_long" in second, "test_short " in second, "test_shortest" in second) == (False, True, True)
    output = planned(tmp_path, "--shard=2/2", "--times", str(own / rundir.TIMES)).stdout
    assert output.startswith("shard 2/2: 2 of 3 scenarios; the shards, with one worker each: 500, 70 s\n")


def test_more_shards_than_scenarios_are_refused_in_one_line(tmp_path: Path) -> None:
    refused = planned(tmp_path, "--shard", "1/4")
    output = f"{refused.stdout}{refused.stderr}"
    (error,) = (line for line in output.splitlines() if "nodeproof:" in line)
    assert error.startswith("ERROR: nodeproof: 4 shards of 3 scenarios: some would have nothing to run")
    assert error.endswith("(--shard); use at most 3 shards")
