"""Rows, exit codes, the closing table and the run folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Window
from nodeproof.report import rundir, table
from nodeproof.report.outcome import asked_for, asked_when_recorded, exit_code, worst_by_claim
from nodeproof.report.rundir import Row
from nodeproof.report.since import Since
from tests.unit.told_runs import FACTS

Json = Any
SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())
WINDOW = Window(12.0, 14.62, 12.0, "period", "G", "G + 2P + slack (12 + 2 + 0.62)")
REPORTED = {
    "kube-controller-manager": {
        "NodeLifecycleController": {"NodeMonitorGracePeriod": "12s", "NodeEvictionRate": 0.9},
        "KubeCloudShared": {"NodeMonitorPeriod": "1s"},
    },
    "kubelet": {"nodeLeaseDurationSeconds": 8},
    "kube-apiserver": {"DefaultTolerationSeconds": {"Unreachable": 10.0}},
}
CONFIGURATION = Configuration(
    kubernetes_version="v1.36.3",
    lab="process",
    profile="fast",
    slack_limit_s=1.0,
    reported=REPORTED,
    negative_wait_s=20.0,
    calibration=Calibration(0.03),
)
GRACE = Constant(
    "grace",
    "kube-controller-manager",
    "NodeLifecycleController.NodeMonitorGracePeriod",
    "node-monitor-grace-period",
    "s",
    ((">=1.32", 50.0), ("<1.32", 40.0)),
    40.0,
    "pkg/x.go",
)


def claim(claim_id: str = "monitoring.grace", *constants: Constant) -> Claim:
    return Claim(
        claim_id, "monitoring", "S.", "timing", "control-plane", ">=1.18", {"v1.28": True}, constants, ()
    )


def row(claim_id: str, verdict: Verdict, scenario: str = "s.py::test_it") -> Row:
    return rundir.row(claim(claim_id), scenario, verdict, CONFIGURATION)


CONFORMS = conforms("came", WINDOW, Measured(13.1, "s"))
DEVIATES = deviates("came 15.2 s after: too late", WINDOW, Measured(15.2, "s"), "node node-1: Ready=True")
GAP = unproven("gap", "the watch of leases was blind")
SCALED = unproven("scaled", "--node-monitor-grace-period=12s was given")


@pytest.mark.parametrize(
    "verdict", [CONFORMS, DEVIATES, GAP, SCALED, conforms("9 looks", None, Measured("up"))]
)
def test_rows_match_the_published_schema(verdict: Verdict) -> None:
    rows = [rundir.row(claim("a.b", GRACE), "s.py::test_it", verdict, CONFIGURATION)]
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(rows)))
    assert rows[0].keys() == rundir.ROW_FIELDS


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
def test_the_schema_refuses_other_rows(change: dict[str, Json]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate([{**row("a.b", CONFORMS), **change}])


def test_a_row_shows_known_drift_beside_a_verdict_that_conforms() -> None:
    shown = rundir.row(claim("a.b", GRACE), "s.py::test_it", CONFORMS, CONFIGURATION)
    assert shown["verdict"] == "conforms"
    assert shown["page"] == {"agreement": "differs", "says": "40 s", "cluster": "50 s", "drift": ""}


def test_a_constant_that_the_catalogue_lacks_is_a_problem() -> None:
    unknown = Constant("grace", "c", "r", "f", "s", ((">=1.40", 50.0),), 40.0, "pkg/x.go")
    with pytest.raises(Problem, match=r"a\.b"):
        rundir.row(claim("a.b", unknown), "s.py::test_it", CONFORMS, CONFIGURATION)


@pytest.mark.parametrize(
    ("verdicts", "by_name", "expected"),
    [
        ([CONFORMS], False, 0),
        ([CONFORMS], True, 0),
        ([SCALED], False, 0),
        ([SCALED], True, 3),
        ([GAP], False, 3),
        ([CONFORMS, GAP], False, 3),
        ([CONFORMS, SCALED], True, 3),
        ([GAP, DEVIATES, CONFORMS], False, 1),
        ([], False, 3),
        ([], True, 3),
    ],
)
def test_exit_codes(verdicts: list[Verdict], by_name: bool, expected: int) -> None:
    rows = [row("a.b", verdict) for verdict in verdicts]
    assert exit_code(rows, ["a.b"] if by_name else [], ["a.b"]) == expected


def test_a_deviation_of_a_claim_that_was_not_selected_fails_as_well() -> None:
    assert exit_code([row("a.b", CONFORMS), row("c.d", DEVIATES)], [], ["a.b"]) == 1


def test_an_unproven_claim_that_was_not_selected_does_not_count() -> None:
    assert exit_code([row("a.b", CONFORMS), row("c.d", GAP)], [], ["a.b"]) == 0


@pytest.mark.parametrize("arguments", ["-n 3 --claim a.b --claim=c.d", "--claim=c.d --claim a.b -x"])
def test_claims_asked_for_are_read_from_the_command_line(arguments: str) -> None:
    assert sorted(asked_for(arguments.split(), FACTS)) == ["a.b", "c.d"]
    shard = replace(FACTS, shard={"number": 1}, selected=("c.d",))
    assert asked_for(arguments.split(), shard) == ["c.d"]
    assert asked_when_recorded(replace(FACTS, command="pytest --claim a.b; pytest -x")) == ["a.b"]


def test_a_run_that_is_not_whole_is_never_all_right() -> None:
    rows = [row("a.b", CONFORMS)]
    assert exit_code(rows, [], ["a.b"], is_whole=False) == 3
    assert exit_code(rows, [], ["a.b"], "it was killed", is_whole=False) == 2
    assert exit_code([row("a.b", DEVIATES)], [], ["a.b"], is_whole=False) == 1


def test_the_worst_row_decides_a_claim() -> None:
    rows = [row("a.b", verdict) for verdict in (CONFORMS, SCALED, GAP, DEVIATES, CONFORMS)]
    for count, expected in enumerate(("conforms", "unproven", "unproven", "deviates", "deviates"), 1):
        assert worst_by_claim(rows[:count])["a.b"]["verdict"] == expected
    assert worst_by_claim(rows[:3])["a.b"]["code"] == "gap"


def test_the_table_shows_each_claim_once_with_reasons_and_totals() -> None:
    drifted = rundir.row(claim("monitoring.grace", GRACE), "s.py::test_it", CONFORMS, CONFIGURATION)
    rows = [
        drifted,
        row("monitoring.grace", CONFORMS, "s.py::test_other"),
        row("eviction.late", DEVIATES),
        row("heartbeat.blind", GAP),
        row("swap.scaled", SCALED),
    ]
    lines = table.render(rows, 3723.0, "reports/out/latest/site/index.html").splitlines()
    (grace,) = (line for line in lines if line.startswith("monitoring.grace"))
    assert [cell.strip() for cell in grace.split("  ") if cell.strip()] == [
        "monitoring.grace",
        "conforms",
        "13.100 s",
        "[12.00, 14.62] s",
        "page: 40 s",
        "x2",
    ]
    order = [line.partition(" ")[0] for line in lines[2:] if line and line[0] != " "][:4]
    assert order == ["eviction.late", "heartbeat.blind", "swap.scaled", "monitoring.grace"]
    late = next(index for index, line in enumerate(lines) if line.startswith("eviction.late"))
    assert lines[late + 1].strip() == "came 15.2 s after: too late"
    assert "G + 2P + slack (12 + 2 + 0.62)" in lines[late + 2]
    assert lines[late + 3].strip() == "last seen: node node-1: Ready=True"
    assert lines[-2] == "conforms 1  deviates 1  unproven 2 (gap: 1, scaled: 1)"
    assert lines[-1] == "1 h 2 min; report: reports/out/latest/site/index.html"


def test_the_table_fits_its_columns_whatever_it_holds() -> None:
    long = deviates("word " * 60, WINDOW, Measured("a value of many letters"), "state " * 40)
    drifted = rundir.row(claim("area." + "very-long-claim-name" * 3, GRACE), "s.py::t", long, CONFIGURATION)
    rows = [drifted, row("a.b", unproven("host-too-loaded", "slack", WINDOW, Measured(12345.678, "s")))]
    text = table.render(rows, 1.0, "site")
    assert max(map(len, text.splitlines())) <= table.COLUMNS
    assert drifted["claim"] in text


def test_others_text_moves_no_cursor_and_breaks_no_line_of_the_table() -> None:
    hostile = "a\x1b[2J\n\u202eb"
    said = deviates(hostile, WINDOW, Measured(hostile), hostile)
    rows = [row("eviction.late", said), row("monitoring.grace", conforms("x", None, Measured(hostile)))]
    lines = table.render(rows, 1.0, "site").splitlines()
    assert all(character.isprintable() for line in lines for character in line)
    assert [line for line in lines if "a [2J b" in line and line.startswith("monitoring.grace  conforms")]
    assert "    a [2J b" in lines
    assert "    last seen: a [2J b" in lines


def test_the_table_says_since_when_a_claim_deviates() -> None:
    told = {"eviction.late": Since((replace(FACTS, run="earlier"), FACTS))}
    rows = [row("eviction.late", DEVIATES), row("monitoring.grace", CONFORMS)]
    text = table.render(rows, 1.0, "site", told)
    assert "    since 2026-11-20 14:15 UTC (run earlier), in 2 runs one after the other" in text
    assert text.count("since") == 1


def test_a_run_without_verdicts_has_a_table() -> None:
    assert "conforms 0  deviates 0  unproven 0" in table.render([], 0.0, "none")


def test_runs_that_start_in_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    runs = [rundir.create(rundir.new_folder(tmp_path / "out", "fast", "process")) for _ in range(5)]
    assert len(set(runs)) == 5
    assert all((run / "scenarios").is_dir() for run in runs)


def test_slugs_are_readable_and_tell_node_ids_apart() -> None:
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
    facts = rundir.RunFacts(
        "r",
        "2026-11-20T14:15:30Z",
        "2026-11-20T14:16:00Z",
        "process",
        "fast",
        "v1.36.3",
        "pytest",
        {"kubelet": {"path": "p", "version": "v1.36.3", "sha256": "0", "origin": "built"}},
        ("--a=1",),
        ("node-9",),
        ("a.b",),
        "",
    )
    rundir.write_facts(tmp_path, facts)
    assert rundir.read_facts(tmp_path) == facts
    assert facts.duration_s == 30.0


_UNKNOWN_CODE = json.dumps([{**row("a.b", GAP), "code": "moonlight"}])


@pytest.mark.parametrize("content", [None, "{", "{}", '[{"claim": "a.b"}]', _UNKNOWN_CODE])
@pytest.mark.parametrize("name", ["run.json", "verdicts.json"])
def test_a_bad_file_of_the_run_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    read = rundir.read_facts if name == "run.json" else rundir.read_verdicts
    with pytest.raises(Problem) as caught:
        read(tmp_path)
    assert str(path) in str(caught.value)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        rundir.merge_verdicts(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("verdicts", "expected"), [([CONFORMS], 2), ([], 2), ([GAP], 3), ([GAP, DEVIATES], 1)]
)
def test_what_was_seen_comes_before_a_run_that_broke_off(verdicts: list[Verdict], expected: int) -> None:
    rows = [
        rundir.row(claim("a.b"), f"s.py::test_{n}", verdict, CONFIGURATION)
        for n, verdict in enumerate(verdicts)
    ]
    assert exit_code(rows, [], ["a.b"], "no root") == expected


@pytest.mark.parametrize(
    ("scenarios", "expected"), [(("one", "two"), "conforms"), (("one", "one"), "unproven")]
)
def test_a_skip_hides_a_conforming_judgment_of_its_own_scenario_only(
    scenarios: tuple[str, str], expected: str
) -> None:
    rows = [
        rundir.row(claim("a.b"), scenario, verdict, CONFIGURATION)
        for scenario, verdict in zip(scenarios, (SCALED, CONFORMS), strict=True)
    ]
    assert worst_by_claim(rows)["a.b"]["verdict"] == expected
