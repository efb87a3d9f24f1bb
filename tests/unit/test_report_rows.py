"""Rows, exit codes and the run folder."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodeproof.model.claim import Claim, Constant
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Verdict, conforms, unproven
from nodeproof.report import digest, rundir
from nodeproof.report.digest import exit_code, named_claims, worst_by_claim
from nodeproof.report.rundir import Row
from tests.unit.sample_checks import CLAIM, GRACE
from tests.unit.synthetic_runs import CONFORMS, DEVIATES, FACTS, FIXED, GAP, KNOWN, configuration

Json = Any
SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())
CONFIGURATION = configuration()


def claim(claim_id: str, *constants: Constant) -> Claim:
    return replace(CLAIM, id=claim_id, constants=constants)


def row(claim_id: str, verdict: Verdict, scenario: str = "s.py::test_it") -> Row:
    return rundir.row(claim(claim_id), scenario, verdict, CONFIGURATION)


SCALED = unproven("scaled", "--node-monitor-grace-period=12s was given")


@pytest.mark.parametrize(
    "verdict", [CONFORMS, DEVIATES, KNOWN, FIXED, GAP, SCALED, conforms("9 looks", None, Measured("up"))]
)
def test_rows_match_the_published_schema(verdict: Verdict) -> None:
    rows = [rundir.row(claim("a.b", GRACE), "s.py::test_it", verdict, CONFIGURATION)]
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(rows)))
    assert rows[0].keys() - {"reported"} == rundir.ROW_FIELDS
    assert digest.verdict_of(rows[0]).label == verdict.label


def test_row_of_mixed_versions_matches_the_published_schema() -> None:
    mixed = replace(CONFIGURATION, node_versions={"node-1": "v1.35.0"}, upgraded_to="v1.37.2")
    row = rundir.row(CLAIM, "s.py::test_it", replace(CONFORMS, kubelet_version="v1.35.0"), mixed)
    jsonschema.Draft202012Validator(SCHEMA).validate([row])


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "passed"},
        {"code": "gap"},
        {"verdict": "unproven"},
        {"surprise": 1},
        {"window": {"low_s": 1}},
    ],
)
def test_schema_refuses_other_rows(change: dict[str, Json]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate([{**row("a.b", CONFORMS), **change}])


def test_row_shows_known_drift_beside_a_conforming_verdict() -> None:
    shown = rundir.row(claim("a.b", GRACE), "s.py::test_it", CONFORMS, CONFIGURATION)
    assert shown["verdict"] == "conforms"
    assert shown["page"] == {"agreement": "differs", "says": "40 s", "cluster": "50 s", "drift": ""}


def test_constant_missing_in_the_catalogue_is_a_problem() -> None:
    unknown = Constant("grace", "c", "r", "f", "s", ((">=1.40", 50.0),), 40.0, "pkg/x.go")
    with pytest.raises(Problem, match=r"a\.b"):
        rundir.row(claim("a.b", unknown), "s.py::test_it", CONFORMS, CONFIGURATION)


@pytest.mark.parametrize(
    ("verdicts", "options", "expected"),
    [
        ([CONFORMS], {}, 0),
        ([CONFORMS], {"named": ["a.b"]}, 0),
        ([SCALED], {}, 0),
        ([SCALED], {"named": ["a.b"]}, 3),
        ([GAP], {}, 3),
        ([CONFORMS, GAP], {}, 3),
        ([CONFORMS, SCALED], {"named": ["a.b"]}, 3),
        ([GAP, DEVIATES, CONFORMS], {}, 1),
        ([], {}, 3),
        ([], {"named": ["a.b"]}, 3),
        ([CONFORMS], {"is_whole": False}, 3),
        ([DEVIATES], {"is_whole": False}, 1),
        ([CONFORMS], {"is_whole": False, "abort_reason": "killed"}, 2),
        ([CONFORMS], {"abort_reason": "no root"}, 2),
        ([], {"abort_reason": "no root"}, 2),
        ([GAP], {"abort_reason": "no root"}, 3),
        ([GAP, DEVIATES], {"abort_reason": "no root"}, 1),
        ([DEVIATES], {"selected": []}, 1),
        ([KNOWN, CONFORMS], {"named": ["a.b"]}, 0),
        ([FIXED], {"named": ["a.b"]}, 0),
        ([KNOWN, DEVIATES], {}, 1),
        ([KNOWN, GAP], {}, 3),
        ([GAP], {"selected": []}, 0),
    ],
)
def test_exit_code_follows_verdicts_and_end_of_the_run(
    verdicts: list[Verdict], options: dict[str, Json], expected: int
) -> None:
    rows = [row("a.b", verdict) for verdict in verdicts]
    assert exit_code(rows, **{"named": [], "selected": ["a.b"], **options}) == expected


@pytest.mark.parametrize("arguments", ["-n 3 --claim a.b --claim=c.d", "--claim=c.d --claim a.b -x"])
def test_selected_claims_are_read_from_the_command_line(arguments: str) -> None:
    assert sorted(named_claims(FACTS, arguments.split())) == ["a.b", "c.d"]
    shard = replace(FACTS, shard={"number": 1}, selected=("c.d",))
    assert named_claims(shard, arguments.split()) == ["c.d"]
    assert named_claims(replace(FACTS, command="pytest --claim a.b; pytest -x")) == ["a.b"]


def test_worst_row_decides_a_claim() -> None:
    rows = [row("a.b", verdict) for verdict in (CONFORMS, SCALED, GAP, DEVIATES, CONFORMS)]
    for count, expected in enumerate(("conforms", "unproven", "unproven", "deviates", "deviates"), 1):
        assert worst_by_claim(rows[:count])["a.b"]["verdict"] == expected
    assert worst_by_claim(rows[:3])["a.b"]["code"] == "gap"


def test_runs_started_in_one_second_get_separate_folders(tmp_path: Path) -> None:
    runs = [rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process")) for _ in range(5)]
    assert len(set(runs)) == 5
    assert all((run / "scenarios").is_dir() for run in runs)


def test_slugs_are_readable_and_unique_per_node_id() -> None:
    one, other = rundir.slug("a/b/test_x.py::test_y[1 2]"), rundir.slug("a/b/test_x.py::test_y[1-2]")
    assert one.startswith("test-x-test-y-1-2-")
    assert one != other
    assert len(rundir.slug("x.py::" + "y" * 500)) < 120


def test_latest_is_a_relative_link_to_the_newest_run(tmp_path: Path) -> None:
    for _ in range(2):
        run = rundir.create(rundir.new_folder(tmp_path, "fast", "process"))
        rundir.point_latest(tmp_path, run)
        assert (tmp_path / "latest").readlink() == Path(run.name)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_facts_survive_their_file(tmp_path: Path) -> None:
    facts = replace(FACTS, quarantined=("node-9",), selected=("a.b",))
    rundir.write_facts(tmp_path, facts)
    assert rundir.read_facts(tmp_path) == facts
    assert facts.duration_s == 362.0


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    rundir.write_json(tmp_path / "run.json", {**asdict(FACTS), "surprise": 1})
    rundir.write_json(tmp_path / "verdicts.json", [{**row("a.b", CONFORMS), "surprise": 1}])
    assert rundir.read_facts(tmp_path) == FACTS
    assert len(rundir.read_verdicts(tmp_path)) == 1


def test_run_whose_clock_was_set_back_has_duration_zero(tmp_path: Path) -> None:
    rundir.write_facts(tmp_path, replace(FACTS, ended="2026-11-20T14:10:00+00:00"))
    assert rundir.read_facts(tmp_path).duration_s == 0.0


_UNKNOWN_CODE = json.dumps([{**row("a.b", GAP), "code": "moonlight"}])


@pytest.mark.parametrize("content", [None, "{", "{}", '[{"claim": "a.b"}]', _UNKNOWN_CODE])
@pytest.mark.parametrize("name", ["run.json", "verdicts.json"])
def test_invalid_file_of_the_run_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    read = rundir.read_facts if name == "run.json" else rundir.read_verdicts
    with pytest.raises(Problem) as caught:
        read(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("scenarios", "expected"), [(("one", "two"), "conforms"), (("one", "one"), "unproven")]
)
def test_skip_hides_only_a_conforming_judgment_of_its_own_scenario(
    scenarios: tuple[str, str], expected: str
) -> None:
    rows = [
        row("a.b", verdict, scenario) for scenario, verdict in zip(scenarios, (SCALED, CONFORMS), strict=True)
    ]
    assert worst_by_claim(rows)["a.b"]["verdict"] == expected
