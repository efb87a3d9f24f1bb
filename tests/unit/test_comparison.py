"""Runs side by side: regressions, times and settings of two, and the matrix of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.model.pattern import Json
from nodeproof.model.verdict import Verdict, unproven
from nodeproof.report import comparison, digest, page
from nodeproof.report.comparison import Comparison
from nodeproof.report.rundir import RunFacts
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    DETECTION,
    DEVIATES,
    FACTS,
    FIXED,
    GAP,
    KNOWN,
    LACKS,
    TAINT,
    VERSION,
    ScenarioVerdict,
    configuration,
    measured,
    tell,
)

GRACE = "node-monitor-grace-period"
A, B = "a.py::test_a", "b.py::test_b"
OLD = "v1.31.9"
SELECTED = replace(FACTS, command=f"{FACTS.command} -k detection")
"""A run of other scenarios."""
SCALED = unproven("scaled", "the window would also admit half or double")


def compare(*runs: Path) -> Comparison:
    return comparison.compare([digest.read(run, CLAIMS) for run in runs])


def changes(
    tmp_path: Path,
    before: Sequence[ScenarioVerdict],
    after: Sequence[ScenarioVerdict],
    facts: RunFacts | None = FACTS,
) -> Comparison:
    """Compare two synthetic runs."""
    return compare(tell(tmp_path / "a", before), tell(tmp_path / "b", after, facts))


def ids(lines: Sequence[comparison.Line]) -> list[str]:
    return [line.id for line in lines]


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        (CONFORMS, CONFORMS, False),
        (CONFORMS, DEVIATES, True),
        (CONFORMS, GAP, True),
        (CONFORMS, LACKS, True),
        (DEVIATES, LACKS, True),
        (CONFORMS, SCALED, True),
        (LACKS, SCALED, False),
        (DEVIATES, CONFORMS, False),
        (DEVIATES, DEVIATES, False),
        (CONFORMS, KNOWN, False),
        (KNOWN, DEVIATES, True),
        (KNOWN, GAP, True),
        (KNOWN, FIXED, False),
        (DEVIATES, GAP, True),
        (GAP, DEVIATES, False),
        (GAP, CONFORMS, False),
        (LACKS, DEVIATES, False),
        (LACKS, GAP, False),
    ],
)
def test_worse_verdict_regresses(tmp_path: Path, before: Verdict, after: Verdict, is_worse: bool) -> None:
    compared = changes(tmp_path, [(A, TAINT, before)], [(A, TAINT, after)])
    assert ids(compared.regressions) == ([TAINT] if is_worse else [])
    labels = (before.label, after.label)
    assert [line.labels for line in compared.changes] == ([] if len({*labels}) == 1 else [labels])


SOURCE = ("--source commit 0123456789ab, content 0123456789ab",)


@pytest.mark.parametrize(
    ("changed", "is_worse"),
    [
        ({"lab": "libvirt"}, False),
        ({"profile": "documented"}, False),
        ({"kubernetes_version": "v1.35.0"}, False),
        ({"overrides": ("--set kubelet.maxPods=50",)}, False),
        ({"overrides": SOURCE}, True),
    ],
)
@pytest.mark.parametrize("before", [CONFORMS, DEVIATES])
def test_claim_unprovable_in_another_setup_is_lost_only_if_the_code_alone_differs(
    tmp_path: Path, changed: Json, is_worse: bool, before: Verdict
) -> None:
    facts = replace(FACTS, **changed)
    compared = changes(tmp_path, [(A, TAINT, before)], [(A, TAINT, LACKS)], facts)
    assert (ids(compared.changes), ids(compared.regressions)) == ([TAINT], [TAINT] if is_worse else [])
    assert " ".join(facts.overrides) in comparison.changes_text(compared)


def test_claim_proven_by_another_scenario_is_no_regression(tmp_path: Path) -> None:
    compared = changes(tmp_path, [(A, TAINT, CONFORMS)], [(A, TAINT, LACKS), (B, TAINT, CONFORMS)])
    assert compared.changes == []


def test_new_and_removed_claims_are_named(tmp_path: Path) -> None:
    compared = changes(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, DEVIATES)], SELECTED)
    labels = {line.id: line.labels for line in compared.changes}
    assert labels == {TAINT: ("conforms", "absent"), DETECTION: ("absent", "deviates")}
    assert compared.regressions == []
    text = comparison.changes_text(compared)
    assert f"only in A: 1\n  {TAINT}: conforms" in text
    assert f"only in B: 1\n  {DETECTION}: deviates" in text


@pytest.mark.parametrize("before", [CONFORMS, DEVIATES])
@pytest.mark.parametrize(
    "command",
    [FACTS.command, f"{FACTS.command} --run reports/out/b -n 3", f"{FACTS.command} --run=b --source /tmp/k"],
)
def test_claim_lost_with_the_same_selection_regresses(tmp_path: Path, command: str, before: Verdict) -> None:
    facts = replace(FACTS, command=command)
    other = (B, DETECTION, CONFORMS)
    compared = changes(tmp_path, [(A, TAINT, before), other], [other], facts)
    assert ids(compared.regressions) == [TAINT]
    text = comparison.changes_text(compared)
    assert f"{TAINT}: {before.label} -> absent" in text
    assert "no scenario of the run judged it" in text


UNKNOWN = replace(FACTS, command="")


@pytest.mark.parametrize(
    ("verdict", "before", "after"),
    [
        (CONFORMS, FACTS, SELECTED),
        (CONFORMS, FACTS, replace(FACTS, lab="libvirt")),
        (CONFORMS, FACTS, replace(FACTS, kubernetes_version=OLD)),
        (CONFORMS, UNKNOWN, UNKNOWN),
        (GAP, FACTS, FACTS),
    ],
)
def test_claim_absent_with_another_selection_or_setup_or_unproven_is_no_regression(
    tmp_path: Path, verdict: Verdict, before: RunFacts, after: RunFacts
) -> None:
    runs = [tell(tmp_path / "a", [(A, TAINT, verdict)], before)]
    compared = compare(*runs, tell(tmp_path / "b", [(A, DETECTION, CONFORMS)], after))
    assert compared.regressions == []
    assert f"only in A: 1\n  {TAINT}: {verdict.label}" in comparison.changes_text(compared)


@pytest.mark.parametrize("facts", [None, replace(FACTS, exit_reason="no memory"), replace(FACTS, ended="")])
def test_claim_lost_by_an_incomplete_run_is_a_regression(tmp_path: Path, facts: RunFacts | None) -> None:
    compared = changes(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, CONFORMS)], facts)
    assert ids(compared.regressions) == [TAINT]
    assert "B is not whole: " in comparison.changes_text(compared)


def test_selected_claim_without_a_verdict_is_a_regression(tmp_path: Path) -> None:
    facts = replace(FACTS, selected=(TAINT, DETECTION))
    (line,) = changes(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, CONFORMS)], facts).regressions
    assert (line.id, line.labels) == (TAINT, ("conforms", "no verdict"))


def test_times_are_compared_as_distributions(tmp_path: Path) -> None:
    old = [(f"{A}{n}", DETECTION, measured(40.0 + n)) for n in range(3)]
    new = [(f"{A}{n}", DETECTION, measured(50.5 + n)) for n in range(4)]
    compared = changes(tmp_path, old, new)
    (change,) = compared.times
    assert (change.before, change.after) == ((40.0, 41.0, 42.0), (50.5, 51.5, 52.5, 53.5))
    assert change.is_apart
    text = " ".join(comparison.changes_text(compared).split())
    assert f"measured times in both: 1 {CLAIMS[DETECTION].statement[:60]}" in text
    assert f"({DETECTION}): 41.0 s -> 52.0 s A 40.0 to 42.0 s, n=3; B 50.5 to 53.5 s, n=4: apart" in text


@pytest.mark.parametrize(
    ("old", "new", "version", "is_lost", "cause"),
    [
        ("40s", "50s", OLD, False, f"; {GRACE} 40 s -> 50 s, the default changed in 1.32"),
        ("12s", "50s", OLD, False, f"; {GRACE} 12 s -> 50 s"),
        ("12s", "1m0s", VERSION, False, f"; {GRACE} 12 s -> 60 s"),
        ("12s", "12s", OLD, False, ""),
        ("40s", "50s", OLD, True, f"; default of {GRACE} 40 s -> 50 s, the default changed in 1.32"),
        ("50s", "50s", VERSION, True, ""),
    ],
)
def test_changed_time_names_the_changed_setting(
    tmp_path: Path, old: str, new: str, version: str, is_lost: bool, cause: str
) -> None:
    runs = []
    for name, grace, kubernetes, lasted in (("a", old, version, 40.0), ("b", new, VERSION, 50.5)):
        rows = [(f"{A}{n}", DETECTION, measured(lasted + n)) for n in range(3)]
        facts = replace(FACTS, kubernetes_version=kubernetes)
        runs.append(tell(tmp_path / name, rows, facts, configuration(kubernetes, grace)))
    if is_lost:
        for path in runs[0].glob("scenarios/*/configuration.json"):
            path.write_text("{")
    (change,) = compare(*runs).times
    assert change.line.endswith(f"({DETECTION}): 41.0 s -> 51.5 s{cause}")


def test_changed_time_names_settings_of_its_window(tmp_path: Path) -> None:
    """Its window contains G, a constant of other claims."""
    rows = [(A, TAINT, measured(13.0))]
    before = tell(tmp_path / "a", rows, FACTS, configuration(grace="12s"))
    after = tell(tmp_path / "b", rows, FACTS, configuration(grace="50s"))
    assert not CLAIMS[TAINT].constants
    (change,) = compare(before, after).times
    assert change.causes == ("node-monitor-grace-period 12 s -> 50 s",)


def test_single_measurement_is_no_distribution_and_an_unproven_one_none(tmp_path: Path) -> None:
    compared = changes(tmp_path, [(A, DETECTION, measured(40.0))], [(A, DETECTION, measured(50.0))])
    assert not compared.times[0].is_apart
    assert "A 40.0 s once; B 50.0 s once" in comparison.changes_text(compared)
    before = [(A, DETECTION, replace(GAP, measured=CONFORMS.measured))]
    assert changes(tmp_path / "unproven", before, [(A, DETECTION, CONFORMS)]).times == []


def test_changed_default_and_setting_are_reported(tmp_path: Path) -> None:
    old = replace(FACTS, kubernetes_version=OLD, settings=("--v=4",))
    before = tell(tmp_path / "a", [(A, TAINT, CONFORMS)], old, configuration(OLD, "40s"))
    after = tell(tmp_path / "b", [(A, TAINT, CONFORMS)], FACTS, configuration(grace="50s"))
    assert set(compare(before, after).settings) == {
        ("Kubernetes", OLD, VERSION),
        ("default of node-monitor-grace-period", "40 s (<1.32)", "50 s (>=1.32)"),
        ("kube-controller-manager NodeLifecycleController.NodeMonitorGracePeriod", "40s", "50s"),
        ("not upstream's", "--v=4", "-"),
        ("not upstream's", "-", "--node-monitor-grace-period=12s"),
    }


@pytest.fixture
def three_runs(tmp_path: Path) -> list[Path]:
    """Write a run of an old version, a new one, and a killed one."""
    facts = replace(FACTS, kubernetes_version=OLD)
    old = [(A, DETECTION, CONFORMS), (A, TAINT, DEVIATES)]
    return [
        tell(tmp_path / "old", old, facts, configuration(OLD)),
        tell(tmp_path / "new", [(A, DETECTION, CONFORMS), (A, TAINT, CONFORMS)]),
        tell(tmp_path / "killed", [(A, DETECTION, GAP)], None),
    ]


def test_matrix_has_a_column_per_run_and_a_line_per_claim(three_runs: list[Path]) -> None:
    compared = compare(*three_runs)
    lines = comparison.matrix_text(compared).splitlines()
    assert lines[0] == f"1  {OLD} process fast  old: 1 deviates, 1 conforms"
    assert lines[1] == f"2  {VERSION} process fast  new: 2 conform"
    assert any("not whole" in line and "run.json" in line for line in lines[3:5])
    assert [" ".join(line.split()) for line in lines[-8:] if line] == [
        "Manual Node administration",
        f"* {TAINT} deviates 15.200 s conforms 13.100 s -",
        "Node controller",
        f"* {DETECTION} conforms 13.100 s conforms 13.100 s unproven: gap",
        "claims: 2; runs differ on 2",
    ]


def test_markdown_matrix_is_one_table(three_runs: list[Path]) -> None:
    text = comparison.matrix_markdown(compare(*three_runs))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 2 + 2 + 1
    assert {row.count("|") for row in rows} == {5}
    assert "✗ `deviates 15.200 s`" in text


def test_matrix_page_links_to_the_page_of_each_run(tmp_path: Path, three_runs: list[Path]) -> None:
    page.write(three_runs[0], CLAIMS)
    text = comparison.matrix_html(compare(*three_runs), tmp_path)
    assert f'<a href="old/site/page.html#{TAINT}">evidence<' in text
    assert "new/site" not in text
    assert "<script" not in text
