"""The end of a run's output: what deviates, what stayed open, the counts, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.model.verdict import Measured, Verdict, deviates, unproven
from nodeproof.report import rundir, table
from nodeproof.report.ending import DETAILED
from nodeproof.report.recheck import rejudge
from nodeproof.session import closing
from tests.freeze import RUNS, thawed
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, LACKS, WINDOW, Json, Told, tell

SETTINGS = ("etcd unsafe-no-fsync=true", "kubelet healthzPort=0")
DETECTION, TAINT, SWAP, LEASE = (
    "monitoring.detection-time",
    "cordon.taint",
    "swap.fail-on-default",
    "heartbeat.lease-interval",
)
A, B = "scenarios/a.py::test_a", "scenarios/b.py::test_b"
JUDGED = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
LAST_LINES = 40


def lines(run: Path, told: Sequence[Told], **facts: Json) -> list[str]:
    """The end of the output of a run with these verdicts."""
    return list(closing.summary(tell(run, told, replace(FACTS, **facts))))


def test_a_claim_that_deviates_has_its_reason_window_value_history_and_scenarios(tmp_path: Path) -> None:
    told: list[Told] = [(A, TAINT, DEVIATES), (B, TAINT, DEVIATES), (A, DETECTION, CONFORMS)]
    tell(tmp_path / "before", [(A, TAINT, CONFORMS)], replace(FACTS, began="2026-11-19T14:15:30+00:00"))
    text = lines(tmp_path / "run", told)
    assert text[: text.index("")] == [
        f"deviates: {TAINT}",
        "    came 15.2 s after: too late",
        f"    window: {WINDOW.arithmetic}",
        "    observed: 15.200 s",
        "    last seen: node node-1: Ready=True",
        "    since this run: it conformed on 2026-11-19 14:15 UTC (run before)",
        f"    scenario: {A}",
        f"    scenario: {B}",
    ]
    assert "conforms 1  deviates 1  unproven 0" in text


def test_claims_that_one_cause_left_open_stand_together(tmp_path: Path) -> None:
    other = unproven("gap", "the watch of nodes was blind")
    text = lines(tmp_path / "run", [(A, DETECTION, GAP), (A, TAINT, GAP), (A, LEASE, other)])
    assert text[: text.index("")] == [
        f"unproven: gap: {A}",
        f"    {TAINT}, {DETECTION}: {GAP.reason}",
        f"    {LEASE}: {other.reason}",
    ]


def test_what_this_lab_cannot_prove_is_counted_by_reason(tmp_path: Path) -> None:
    reasons = ["one", "one", "one", "two", "two", "three", "four", "five"]
    told = [(A, claim, unproven("lab-lacks", reason)) for claim, reason in zip(JUDGED, reasons, strict=False)]
    text = lines(tmp_path / "run", told)
    assert text[: text.index("")] == [
        "this lab and profile cannot prove 8 of the claims:",
        "    3 lab-lacks: one",
        "    2 lab-lacks: two",
        "    1 lab-lacks: three",
        "    2 for other reasons: see table.txt",
    ]


def test_a_claim_that_was_asked_for_by_name_says_why_it_cannot_be_proven(tmp_path: Path) -> None:
    text = lines(tmp_path / "run", [(A, SWAP, LACKS)], command=f"pytest --claim {SWAP}")
    assert text[:2] == [f"unproven: lab-lacks: {A}", f"    {SWAP}: {LACKS.reason}"]


def test_the_last_lines_have_counts_retries_times_and_paths(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in (A, A, B):
        rundir.scenario_dir(run, name)
        rundir.put_aside(run, name)
    assert lines(run, [(A, TAINT, CONFORMS)], settings=SETTINGS)[-6:] == [
        "conforms 1  deviates 0  unproven 0",
        "retried because the host was too loaded: 2 scenarios (3 tries before the last one)",
        "took 6 min 2 s",
        "settings of the lab that are not upstream's: 2 (--settings, or run.json)",
        "table of all claims: --table, or table.txt",
        f"run folder: {run}",
    ]


LONG = "word " * 200
LATE = deviates(LONG, WINDOW, Measured(LONG), LONG)
BROKE_OFF = unproven("gap", LONG)


@pytest.mark.parametrize("verdicts", [(LATE, LATE), (BROKE_OFF, BROKE_OFF), (LATE, BROKE_OFF)])
def test_the_last_lines_tell_everything_where_two_claims_are_wrong(
    tmp_path: Path, verdicts: tuple[Verdict, Verdict]
) -> None:
    skipped = [unproven("lab-lacks", f"{number} {LONG}") for number in range(100)]
    wrong, others = JUDGED[:2], JUDGED[2:102]
    told = [*((f"{A}_{claim}", claim, verdict) for claim, verdict in zip(wrong, verdicts, strict=True))]
    told += [(B, claim, verdict) for claim, verdict in zip(others, skipped, strict=True)]
    text = lines(tmp_path / "run", told, settings=SETTINGS, quarantined=("node-1",), exit_reason="no memory")
    assert len(text) <= LAST_LINES
    assert all(any(claim in line for line in text) for claim in wrong)
    assert max(map(len, text[:-1])) <= table.COLUMNS


def test_many_claims_that_deviate_are_all_listed_in_a_few_lines_each(tmp_path: Path) -> None:
    many = JUDGED[: 5 * DETAILED]
    text = lines(tmp_path / "run", [(A, claim, LATE) for claim in many])
    assert [line.removeprefix("deviates: ") for line in text if line.startswith("deviates: ")] == sorted(many)
    assert len(text) <= 8 * len(many)


def test_a_stored_scenario_that_deviates_is_told_in_the_last_lines(tmp_path: Path) -> None:
    with thawed(RUNS / "controller-manager-paused") as scenario:
        told = [(A, judgment.claim, verdict) for judgment, verdict in rejudge(scenario, CLAIMS)]
    text = lines(tmp_path / "run", told)
    wrong = {claim for _scenario, claim, verdict in told if verdict.outcome != "conforms"}
    assert wrong
    assert all(any(claim in line for line in text) for claim in wrong)
    assert len(text) <= LAST_LINES


def test_others_text_moves_no_cursor(tmp_path: Path) -> None:
    hostile = "a\x1b[2J\n\u202eb"
    told: list[Told] = [
        (f"a.py::test_{hostile}", TAINT, deviates(hostile, WINDOW, Measured(hostile), hostile)),
        (f"a.py::test_{hostile}", DETECTION, unproven("gap", hostile)),
        (f"a.py::test_{hostile}", SWAP, unproven("scaled", hostile)),
    ]
    assert all(character.isprintable() for line in lines(tmp_path / "run", told) for character in line)


def test_settings_that_are_not_upstreams_are_listed_where_asked_for(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [], replace(FACTS, settings=SETTINGS))
    assert {f"  {setting}" for setting in SETTINGS} <= set(closing.settings(run))
