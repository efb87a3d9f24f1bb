"""One run as text: the table of all claims, the last lines of the output, and the Markdown summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.model.claim import Claim, Constant
from nodeproof.model.verdict import Measured, Verdict, deviates, unproven
from nodeproof.report import digest, rundir, tables
from nodeproof.report.digest import Since
from nodeproof.report.plain import COLUMNS
from nodeproof.report.rundir import Row
from nodeproof.session import finish
from tests.unit.sample_checks import CLAIM, GRACE
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    DETECTION,
    DEVIATES,
    FACTS,
    GAP,
    JUDGED,
    LACKS,
    ROWS,
    SWAP,
    TAINT,
    WINDOW,
    Json,
    ScenarioVerdict,
    configuration,
    tell,
)

LEASE = "heartbeat.lease-interval"
A, B = "scenarios/a.py::test_a_node_is_cordoned", "scenarios/b.py::test_b"
SETTINGS = ("etcd unsafe-no-fsync=true", "kubelet healthzPort=0")
SCALED = unproven("scaled", "--node-monitor-grace-period=12s was given")
LONG = "word " * 200
LATE = deviates(LONG, WINDOW, Measured(LONG), LONG)
LONG_GAP = unproven("gap", LONG)
MAX_LINES = 40


def claim(claim_id: str, *constants: Constant) -> Claim:
    return replace(CLAIM, id=claim_id, page={"v1.28": True}, constants=constants)


def row(claim_id: str, verdict: Verdict, scenario: str = "s.py::test_it", *constants: Constant) -> Row:
    return rundir.row(claim(claim_id, *constants), scenario, verdict, configuration())


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_table_shows_each_claim_once_with_reasons_and_totals() -> None:
    rows = [
        row("monitoring.grace", CONFORMS, "s.py::test_it", GRACE),
        row("monitoring.grace", CONFORMS, "s.py::test_other"),
        row("eviction.late", DEVIATES),
        row("heartbeat.blind", GAP),
        row("swap.scaled", SCALED),
    ]
    lines = tables.render(rows, 3723.0, "reports/out/latest/site/index.html").splitlines()
    assert cells(lines[0]) == ["claim", "verdict", "measured", "window"]
    starts = [number for number, line in enumerate(lines) if number > 1 and line and line[0] != " "][:4]
    assert [cells(lines[number])[:2] for number in starts] == [
        ["eviction.late", "deviates"],
        ["heartbeat.blind", "unproven: gap"],
        ["swap.scaled", "unproven: scaled"],
        ["monitoring.grace", "conforms"],
    ]
    assert cells(lines[starts[3]])[2:] == ["13.100 s", "[12.00, 14.62] s", "x2", "page: 40 s"]
    assert [line.strip() for line in lines[starts[0] + 1 : starts[1]]] == [
        "came 15.2 s after: too late",
        f"window: {WINDOW.arithmetic}",
        "observed: 15.200 s",
        "last seen: node node-1: Ready=True",
    ]
    assert lines[-2] == "conforms 1  deviates 1  unproven 2 (gap: 1, scaled: 1)"
    assert lines[-1] == "1 h 2 min; report: reports/out/latest/site/index.html"


def test_table_shows_since_when_a_claim_deviates() -> None:
    histories = {"eviction.late": Since((replace(FACTS, run="earlier"), FACTS))}
    rows = [row("eviction.late", DEVIATES), row("monitoring.grace", CONFORMS)]
    text = tables.render(rows, 1.0, "site", histories)
    assert "    since 2026-11-20 14:15 UTC (run earlier), in 2 consecutive runs" in text
    assert text.count("since") == 1


def last_lines(run: Path, rows: Sequence[ScenarioVerdict], **facts: Json) -> list[str]:
    """Return the last lines of the output of a run with these verdicts."""
    return list(finish.summary(tell(run, rows, replace(FACTS, **facts))))


def test_deviating_claim_shows_reason_window_history_and_scenarios(tmp_path: Path) -> None:
    rows: list[ScenarioVerdict] = [(A, TAINT, DEVIATES), (B, TAINT, DEVIATES), (A, DETECTION, CONFORMS)]
    tell(tmp_path / "before", [(A, TAINT, CONFORMS)], replace(FACTS, began="2026-11-19T14:15:30+00:00"))
    lines = last_lines(tmp_path / "run", rows)
    assert lines[: lines.index("")] == [
        f"deviates: {TAINT}",
        "    came 15.2 s after: too late",
        f"    window: {WINDOW.arithmetic}",
        "    observed: 15.200 s",
        "    last seen: node node-1: Ready=True",
        "    since this run; last conformed on 2026-11-19 14:15 UTC (run before)",
        f"    scenario: {A}",
        f"    scenario: {B}",
    ]
    assert "conforms 1  deviates 1  unproven 0" in lines


def test_claims_unproven_by_one_cause_are_grouped(tmp_path: Path) -> None:
    other = unproven("gap", "the watch of nodes was blind")
    lines = last_lines(tmp_path / "run", [(A, DETECTION, GAP), (A, TAINT, GAP), (A, LEASE, other)])
    assert lines[: lines.index("")] == [
        f"unproven: gap: {A}",
        f"    {TAINT}, {DETECTION}: {GAP.reason}",
        f"    {LEASE}: {other.reason}",
    ]


def test_unprovable_claims_are_counted_by_reason(tmp_path: Path) -> None:
    reasons = ["one", "one", "one", "two", "two", "three", "four", "five"]
    rows = [(A, claim, unproven("lab-lacks", reason)) for claim, reason in zip(JUDGED, reasons, strict=False)]
    lines = last_lines(tmp_path / "run", rows)
    assert lines[: lines.index("")] == [
        "this lab and profile cannot prove 8 of the claims:",
        "    3 lab-lacks: one",
        "    2 lab-lacks: two",
        "    1 lab-lacks: three",
        "    2 for other reasons: see table.txt",
    ]


def test_selected_unprovable_claim_states_its_reason(tmp_path: Path) -> None:
    lines = last_lines(tmp_path / "run", [(A, SWAP, LACKS)], command=f"pytest --claim {SWAP}")
    assert lines[:2] == [f"unproven: lab-lacks: {A}", f"    {SWAP}: {LACKS.reason}"]


def test_last_lines_have_counts_retries_times_and_paths(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in (A, A, B):
        rundir.scenario_dir(run, name)
        rundir.put_aside(run, name)
    assert last_lines(run, [(A, TAINT, CONFORMS)], settings=SETTINGS)[-6:] == [
        "conforms 1  deviates 0  unproven 0",
        "retried because the host was too loaded or a watch broke: 2 scenarios (3 tries before the last one)",
        "took 6 min 2 s",
        "settings of the lab that are not upstream's: 2 (--settings, or run.json)",
        "table of all claims: --table, or table.txt",
        f"run folder: {run}",
    ]


@pytest.mark.parametrize("verdicts", [(LATE, LATE), (LONG_GAP, LONG_GAP), (LATE, LONG_GAP)])
def test_last_lines_are_complete_with_two_wrong_claims(
    tmp_path: Path, verdicts: tuple[Verdict, Verdict]
) -> None:
    skipped = [unproven("lab-lacks", f"{number} {LONG}") for number in range(100)]
    wrong, others = JUDGED[:2], JUDGED[2:102]
    rows = [*((f"{A}_{claim}", claim, verdict) for claim, verdict in zip(wrong, verdicts, strict=True))]
    rows += [(B, claim, verdict) for claim, verdict in zip(others, skipped, strict=True)]
    facts = {"settings": SETTINGS, "quarantined": ("node-1",), "exit_reason": "no memory"}
    lines = last_lines(tmp_path / "run", rows, **facts)
    assert len(lines) <= MAX_LINES
    assert all(any(claim in line for line in lines) for claim in wrong)
    assert max(map(len, lines[:-1])) <= COLUMNS


def test_many_deviating_claims_are_listed_in_a_few_lines_each(tmp_path: Path) -> None:
    many = JUDGED[: 5 * tables.MAX_DETAILED]
    lines = last_lines(tmp_path / "run", [(A, claim, LATE) for claim in many])
    listed = [line.removeprefix("deviates: ") for line in lines if line.startswith("deviates: ")]
    assert listed == sorted(many)
    assert len(lines) <= 8 * len(many)


def test_non_upstream_settings_are_listed_on_request(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [], replace(FACTS, settings=SETTINGS))
    assert {f"  {setting}" for setting in SETTINGS} <= set(finish.settings(run))


def summary(run: Path) -> str:
    return tables.summary(digest.read(run), CLAIMS)


def test_summary_begins_with_deviations_then_unproven_claims(tmp_path: Path) -> None:
    text = summary(tell(tmp_path / "run", ROWS))
    places = [text.index(part) for part in (CLAIMS[TAINT].statement, GAP.reason, LACKS.reason)]
    assert places == sorted(places)


def test_long_lists_of_the_summary_are_cut(tmp_path: Path) -> None:
    text = summary(tell(tmp_path / "run", [(A, claim, DEVIATES) for claim in JUDGED]))
    assert f"\n- and {len(JUDGED) - tables.MAX_LISTED} more\n\n###" in text
    assert len(text.encode()) < 1 << 20
