"""Shards become one run again: what they judged, what died with one, what is missing, and what is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodeproof import cli
from nodeproof.model.problem import Problem
from nodeproof.report import behaviours, broken, digest, merge, rundir, shards
from nodeproof.report.rundir import Row
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS, Told, shard_of, shard_run, tell

DETECTION, TAINT, DEFAULT, SWAP = (
    "monitoring.detection-time",
    "cordon.taint",
    "monitoring.grace-period-default",
    "swap.fail-on-default",
)
A, B, C = "s/test_a.py::test_a", "s/test_b.py::test_b", "s/test_c.py::test_c"
PARTS: tuple[dict[str, tuple[str, ...]], ...] = ({A: (DETECTION, TAINT)}, {B: (DEFAULT,), C: (TAINT, SWAP)})
FIRST: list[Told] = [(A, DETECTION, CONFORMS), (A, TAINT, CONFORMS)]
SECOND: list[Told] = [(B, DEFAULT, CONFORMS), (C, TAINT, CONFORMS), (C, SWAP, LACKS)]
SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())
MERGE_LIMIT_S = 5.0


def both(tmp_path: Path) -> list[Path]:
    return [shard_run(tmp_path / "one", 1, PARTS, FIRST), shard_run(tmp_path / "two", 2, PARTS, SECOND)]


def labels(run: Path) -> dict[tuple[str, str], str]:
    rows = rundir.read_verdicts(run)
    jsonschema.validate(list(rows), SCHEMA)
    return {(row["scenario"], row["claim"]): row["code"] or row["verdict"] for row in rows}


def row_of(run: Path, scenario: str) -> Row:
    return next(row for row in rundir.read_verdicts(run) if row["scenario"] == scenario)


def test_two_shards_are_one_run(tmp_path: Path) -> None:
    runs, into = both(tmp_path), tmp_path / "merged"
    assert cli.main(["merge", *map(str, reversed(runs)), "--run", str(into), "--no-site"]) == 0
    assert labels(into) == {
        (A, DETECTION): "conforms",
        (A, TAINT): "conforms",
        (B, DEFAULT): "conforms",
        (C, TAINT): "conforms",
        (C, SWAP): "lab-lacks",
    }
    facts = rundir.read_facts(into)
    assert facts.selected == tuple(sorted({DETECTION, TAINT, DEFAULT, SWAP}))
    assert (facts.run, facts.exit_reason, facts.shard) == ("merged", "", None)
    assert [each["run"] for each in facts.merged] == ["one", "two"]
    assert digest.read(into).is_whole
    assert (into / "labs" / "p-000001" / "kubelet.log").read_text() == "of shard 1"
    assert (into / "labs" / "p-000001-shard-2" / "kubelet.log").read_text() == "of shard 2"
    assert json.loads((into / "labs" / "p-000001-shard-2.json").read_text()) == {"shard": 2}
    assert len(list((into / "allure-results").glob("*-result.json"))) == 2
    assert json.loads((into / rundir.TIMES).read_text()) == {A: 5.0, B: 5.0, C: 5.0, "start": 15.0}
    assert (into / "scenarios" / rundir.slug(A) / "timeline.svg").stat().st_nlink == 2
    assert not (into / "site").exists()
    assert (tmp_path / rundir.LATEST).resolve() == into.resolve()


def test_a_missing_shards_claims_are_unproven_and_name_it(tmp_path: Path) -> None:
    into = tmp_path / "merged"
    assert cli.main(["merge", str(both(tmp_path)[0]), "--run", str(into), "--no-site"]) == 3
    assert {key: label for key, label in labels(into).items() if key[0] != A} == {
        (B, DEFAULT): "gap",
        (C, TAINT): "gap",
        (C, SWAP): "gap",
    }
    assert row_of(into, B)["reason"] == "shard 2/2 is missing"
    assert rundir.read_facts(into).exit_reason == "shard 2/2 is missing"
    told = [json.loads(path.read_text()) for path in (into / "allure-results").glob("*-result.json")]
    (result,) = (each for each in told if each.get("fullName") == B)
    assert result["name"] == behaviours.title(B)
    assert (result["status"], result["statusDetails"]["message"]) == ("broken", "shard 2/2 is missing")
    assert {"name": "claim", "value": DEFAULT} in result["labels"]
    assert result["start"] == datetime.fromisoformat(FACTS.ended).timestamp() * 1000
    assert len(told) == 3
    found = digest.read(into)
    assert found.missing == ("The run broke off: shard 2/2 is missing",)
    assert all(not entry.is_missing for entry in digest.entries(found, CLAIMS))


def test_a_shard_that_died_keeps_what_it_judged(tmp_path: Path) -> None:
    runs = [
        shard_run(tmp_path / "one", 1, PARTS, FIRST),
        shard_run(tmp_path / "two", 2, PARTS, SECOND[:1], None),
    ]
    half = runs[1] / "scenarios" / rundir.slug(C)
    half.mkdir()
    (half / "history.jsonl").write_text('{"t": 1')
    into = tmp_path / "merged"
    assert cli.main(["merge", *map(str, runs), "--run", str(into), "--no-site"]) == 3
    assert (labels(into)[B, DEFAULT], labels(into)[C, SWAP]) == ("conforms", "gap")
    said = "shard 2/2 has no end: it died, or is under way; it ended in the middle of this scenario"
    assert row_of(into, C)["reason"] == said
    assert (into / "scenarios" / rundir.slug(C) / "history.jsonl").read_text() == '{"t": 1'
    assert not (half / "judgments.json").exists()


def test_what_cannot_be_read_of_a_shard_is_unproven(tmp_path: Path) -> None:
    runs = both(tmp_path)
    torn = runs[1] / "scenarios" / rundir.slug(B) / "judgments.json"
    torn.write_text("{torn")
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert labels(tmp_path / "merged")[B, DEFAULT] == "gap"
    assert "shard 2/2 ended, and left no judgments" in row_of(tmp_path / "merged", B)["reason"]
    assert torn.read_text() == "{torn"


def test_a_shard_that_broke_off_says_why(tmp_path: Path) -> None:
    facts = replace(FACTS, exit_reason="no memory\nlines of a log")
    runs = [
        shard_run(tmp_path / "one", 1, PARTS, FIRST),
        shard_run(tmp_path / "two", 2, PARTS, SECOND[:1], facts),
    ]
    merged = merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert merged.exit_reason == "shard 2/2 broke off: no memory"
    assert row_of(tmp_path / "merged", C)["reason"] == merged.exit_reason


@pytest.mark.parametrize("left", ["", "{torn", '{"number": 2}'])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_folder_that_does_not_say_which_shard_it_is_is_named_and_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: str, order: tuple[int, int]
) -> None:
    """It died between making its folder and writing into it, or while it wrote."""
    runs = [shard_run(tmp_path / "one", 1, PARTS, FIRST), tmp_path / "two"]
    (runs[1] / "scenarios").mkdir(parents=True)
    if left:
        (runs[1] / shards.FILE).write_text(left)
    into = tmp_path / "merged"
    named = [str(runs[at]) for at in order]
    assert cli.main(["merge", *named, "--run", str(into), "--no-site"]) == 3
    assert {key: label for key, label in labels(into).items() if key[0] != A} == dict.fromkeys(
        [(B, DEFAULT), (C, TAINT), (C, SWAP)], "gap"
    )
    reason = row_of(into, B)["reason"]
    assert reason.startswith("shard 2/2 is missing; two does not say which shard it is, or when it began: ")
    assert reason in capsys.readouterr().err
    merged = [(each["shard"], each["run"]) for each in rundir.read_facts(into).merged]
    assert merged == [("shard 1/2", "one"), ("shard 2/2", ""), ("unknown", "two")]


def spoil(run: Path, began: str) -> None:
    """What it left as it began says another time."""
    told = rundir.read_json(run / shards.FILE)
    rundir.write_json(run / shards.FILE, {**told, "began": began})


def test_a_shard_that_does_not_say_when_it_began_costs_its_own_claims_and_is_named(tmp_path: Path) -> None:
    runs = [
        shard_run(tmp_path / "one", 1, PARTS, FIRST),
        shard_run(tmp_path / "two", 2, PARTS, SECOND, None),
    ]
    spoil(runs[1], "yesterday")
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    found = labels(tmp_path / "merged")
    assert {found[key] for key in found if key[0] == A} == {"conforms"}
    assert {found[key] for key in found if key[0] != A} == {"gap"}
    reason = row_of(tmp_path / "merged", B)["reason"]
    assert "two does not say which shard it is, or when it began: shard.json says that it began at" in reason
    spoil(runs[0], "tomorrow")
    (runs[0] / "run.json").unlink()
    with pytest.raises(Problem, match=r"'tomorrow', which is no time \(.*/one/shard.json\); restore"):
        merge.merge(runs, tmp_path / "none", CLAIMS)


def test_when_a_shard_began_is_taken_from_whichever_file_says_it(tmp_path: Path) -> None:
    runs = both(tmp_path)
    spoil(runs[1], "yesterday")
    facts = rundir.read_facts(runs[0])
    rundir.write_facts(runs[0], replace(facts, began="yesterday", ended=""))
    merged = merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert merged.began == FACTS.began
    assert labels(tmp_path / "merged")[B, DEFAULT] == "conforms"


def test_a_folder_too_many_is_named_and_takes_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "three").mkdir()
    merged = merge.merge([tmp_path / "three", *both(tmp_path)], tmp_path / "merged", CLAIMS)
    assert (merged.exit_reason, merged.merged[-1]["run"]) == ("", "three")


def test_where_no_folder_says_which_shard_it_is_nothing_is_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [tmp_path / "one", tmp_path / "two"]
    for run in runs:
        run.mkdir()
    _refused(tmp_path, capsys, runs, "this is no run of a shard")


def test_a_run_that_is_no_shard_or_not_there_is_no_dead_shard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = shard_run(tmp_path / "one", 1, PARTS, FIRST)
    _refused(tmp_path, capsys, [one, tell(tmp_path / "own", FIRST)], "this is no run of a shard")
    _refused(tmp_path, capsys, [one, tmp_path / "none"], "this is no run of a shard")


def test_what_run_json_says_of_the_shard_is_enough(tmp_path: Path) -> None:
    runs = both(tmp_path)
    (runs[1] / shards.FILE).write_text("{torn")
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert labels(tmp_path / "merged")[B, DEFAULT] == "conforms"


def test_a_deviation_comes_before_what_is_missing(tmp_path: Path) -> None:
    run = shard_run(tmp_path / "one", 1, PARTS, [(A, DETECTION, DEVIATES), (A, TAINT, CONFORMS)])
    assert cli.main(["merge", str(run), "--run", str(tmp_path / "merged"), "--no-site"]) == 1


def test_a_scenario_whose_worker_died_is_not_missing(tmp_path: Path) -> None:
    died = f"{A}{broken.DIED}"
    runs = [
        shard_run(tmp_path / "one", 1, PARTS, [(died, DETECTION, CONFORMS), (died, TAINT, CONFORMS)]),
        shard_run(tmp_path / "two", 2, PARTS, SECOND),
    ]
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert {scenario for scenario, _claim in labels(tmp_path / "merged")} == {died, B, C}


def test_a_link_in_a_shard_leads_nowhere(tmp_path: Path) -> None:
    runs = both(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (runs[0] / "labs" / "p-000001" / "link").symlink_to(tmp_path / "secret")
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    assert not (tmp_path / "merged" / "labs" / "p-000001" / "link").exists()


OTHER_PARTS = (PARTS[1], PARTS[0])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"profile": "documented"}, "two shards differ in their profile: fast, documented"),
        ({"lab": "libvirt"}, "two shards differ in their kind of lab: process, libvirt"),
        (
            {"kubernetes_version": "v1.35.0"},
            "two shards differ in their Kubernetes version: v1.36.3, v1.35.0",
        ),
        ({"asked": (TAINT,)}, "two shards differ in their claims asked for: all, cordon.taint"),
        ({"began": "2031-01-01T02:17:00+00:00"}, "two shards began more than twelve hours apart"),
        ({"parts": (*PARTS, {})}, "two shards differ in their number of shards: 2, 3"),
        ({"parts": OTHER_PARTS}, "two shards divide different scenarios, or otherwise"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_shards_of_different_runs_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], said: str
) -> None:
    one, two = both(tmp_path)
    shards.write(two, shard_of(2, **{"parts": PARTS, **changed}))
    _refused(tmp_path, capsys, [one, two], f"{said} (one, two); merge runs of one command")


def test_versions_that_ran_count_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = shard_run(tmp_path / "one", 1, PARTS, FIRST)
    two = shard_run(tmp_path / "two", 2, PARTS, SECOND, replace(FACTS, kubernetes_version="v1.36.9"))
    _refused(tmp_path, capsys, [one, two], "differ in their Kubernetes version: v1.36.3, v1.36.9")


def test_the_same_shard_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = both(tmp_path)
    _refused(tmp_path, capsys, [one, two, two], "shard 2/2 is there twice (two, two); leave one of them out")


def test_a_scenario_in_two_shards_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (
        shard_run(tmp_path / "one", 1, PARTS, FIRST),
        shard_run(tmp_path / "two", 2, PARTS, [*SECOND, *FIRST]),
    )
    _refused(tmp_path, capsys, [one, two], f"{A} is not of shard 2/2 (two)")


def test_what_is_no_shard_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _refused(tmp_path, capsys, [tell(tmp_path / "one", FIRST)], "this is no run of a shard")
    _refused(tmp_path, capsys, [tmp_path / "none"], "this is no run of a shard")


def test_a_claim_of_another_catalogue_is_named_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = shard_run(tmp_path / "one", 1, (PARTS[0], {B: ("own.claim",)}), FIRST)
    _refused(
        tmp_path, capsys, [one], "the catalogue has no claim own.claim (merge); name its folder: --claims"
    )


def test_facts_that_somebody_edited_are_none(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    facts = json.loads((two / "run.json").read_text())
    rundir.write_json(two / "run.json", {**facts, "began": 5, "components": {"kubelet": []}})
    merged = merge.merge([one, two], tmp_path / "merged", CLAIMS)
    assert merged.exit_reason == "shard 2/2 has no end: it died, or is under way"
    assert labels(tmp_path / "merged")[B, DEFAULT] == "conforms"


def _refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: list[Path], said: str) -> None:
    into = tmp_path / "merged"
    assert cli.main(["merge", *map(str, runs), "--run", str(into), "--no-site"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodeproof: ")
    assert said in line
    assert not into.exists()


def test_nothing_is_merged_into_a_folder_that_holds_something(tmp_path: Path) -> None:
    runs = both(tmp_path)
    with pytest.raises(Problem, match="a folder of its own"):
        merge.merge(runs, runs[0], CLAIMS)


def test_nothing_is_merged_into_a_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = both(tmp_path)
    for into in (runs[0] / "inside", runs[1] / "labs" / "deep", tell(tmp_path / "other", FIRST) / "inside"):
        assert cli.main(["merge", *map(str, runs), "--run", str(into), "--no-site"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "nothing can be merged into a run: " in line
        assert not into.exists()


def test_eight_shards_are_merged_in_seconds(tmp_path: Path) -> None:
    """300 scenarios, of which a shard that died lacks half of its own. With what real ones record, and by
    the wall clock: tests/acceptance/test_large_site.py.
    """
    claims = [claim.id for claim in CLAIMS.values() if claim.status == "judged"][:5]
    parts = [{f"s/test_{n}.py::test_{s}": tuple(claims) for s in range(38)} for n in range(8)]
    runs = []
    for number, part in enumerate(parts, 1):
        told = [(scenario, claim, CONFORMS) for scenario in part for claim in claims]
        died = number == len(parts)
        told = told[: len(told) // 2] if died else told
        runs.append(shard_run(tmp_path / f"{number}", number, parts, told, None if died else FACTS))
    began = time.process_time()
    merge.merge(runs, tmp_path / "merged", CLAIMS)
    # Processor time, as others may use the cores meanwhile.
    assert time.process_time() - began < MERGE_LIMIT_S
    rows = rundir.read_verdicts(tmp_path / "merged")
    assert len(rows) == 8 * 38 * len(claims)
    assert sum(row["code"] == "gap" for row in rows) == 19 * len(claims)
