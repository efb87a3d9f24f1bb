"""A run of an early version: every reader accepts it and reports its verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nodeproof import cli
from nodeproof.report import allure, digest, rundir
from nodeproof.report.recheck import differences, recheck
from tests.golden_runs import thawed_run
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, tell

LEASE, TAINT = "heartbeat.lease-interval", "taints.unreachable-noexecute"
SCHEMA = json.loads((Path(__file__).parents[2] / "reports" / "verdicts.schema.json").read_text())
JUDGED_OTHERWISE = {(LEASE, "conforms", "unproven: gap")}
"""Judged differently since a rule changed: a renewal from before the recording does not count."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with two conforming scenarios, a deviating and an unproven one."""
    return thawed_run("format-1", tmp_path / "before")


def test_facts_and_verdicts_of_an_early_run_are_read(run: Path) -> None:
    facts = rundir.read_facts(run)
    assert (facts.lab, facts.profile, facts.shard, facts.merged) == ("process", "fast", None, ())
    rows = rundir.read_verdicts(run)
    jsonschema.validate(list(rows), SCHEMA)
    assert rundir.merge_verdicts(run) == rows
    assert digest.read(run).is_whole


def test_results_without_a_scenario_label_are_found_by_their_test(run: Path) -> None:
    nodeids = {json.loads(path.read_text())["scenario"] for path in run.glob("scenarios/*/judgments.json")}
    assert allure.last_results(run / allure.RESULTS).keys() == nodeids


def test_page_and_summary_of_an_early_run_show_deviations(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["page", str(run)]) == 0
    page = (run / "site" / "page.html").read_text()
    assert "1 of 20 renewals of node-1 lie outside" in page
    assert "kube-controller-manager killed by SIGKILL" in page
    assert cli.main(["summary", str(run)]) == 0
    output = capsys.readouterr().out
    assert "## Kubernetes `v1.36.3, process, fast`: 1 deviate" in output
    for counted in ("| ✗ deviate | 1 |", "| ? should have been proven | 2 |", "| ✓ conform | 2 |"):
        assert counted in output
    assert "slack was not written down" in output


def test_early_run_is_compared_with_a_current_one(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    today = tell(tmp_path / "today", [("a.py::test_a", LEASE, CONFORMS), ("b.py::test_b", TAINT, CONFORMS)])
    assert cli.main(["compare", str(today), str(run)]) == 1
    regressed, _, _rest = capsys.readouterr().out.partition("other verdicts")
    assert LEASE in regressed
    assert cli.main(["compare", str(run), str(run)]) == 0
    assert cli.main(["matrix", str(run), str(today)]) == 0
    assert "deviates 5.270 s" in capsys.readouterr().out


def test_early_run_is_rechecked_from_its_recordings(run: Path) -> None:
    before = rundir.read_verdicts(run)
    again = recheck(run, CLAIMS).digest.rows
    changed = differences(before, again)
    assert {(change.claim, change.before, change.after) for change in changed} == JUDGED_OTHERWISE
    assert [row["claim"] for row in again] == [row["claim"] for row in before]
