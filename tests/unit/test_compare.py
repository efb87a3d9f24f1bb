"""Two runs beside each other: what is a regression, which times moved, what is set otherwise."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof import cli
from nodeproof.model.verdict import Verdict, unproven
from nodeproof.report import compare, digest
from nodeproof.report.compare import Comparison
from nodeproof.report.rundir import RunFacts
from nodeproof.report.times import Times
from tests.unit.told_runs import (
    CLAIMS,
    CONFORMS,
    DEVIATES,
    FACTS,
    GAP,
    LACKS,
    VERSION,
    Told,
    configuration,
    measured,
    tell,
)

DETECTION, TAINT = "monitoring.detection-time", "cordon.taint"
GRACE = "node-monitor-grace-period"
A, B = "a.py::test_a", "b.py::test_b"
SCALED = unproven("scaled", "the window would also admit half or double")


def compared(
    tmp_path: Path, before: list[Told], after: list[Told], facts: RunFacts | None = FACTS
) -> Comparison:
    """Two told runs beside each other."""
    runs = (tell(tmp_path / "a", before), tell(tmp_path / "b", after, facts))
    return compare.compare(digest.read(runs[0]), digest.read(runs[1]), CLAIMS)


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
        (DEVIATES, GAP, True),
        (GAP, DEVIATES, False),
        (GAP, CONFORMS, False),
        (LACKS, DEVIATES, False),
        (LACKS, GAP, False),
    ],
)
def test_what_is_a_regression(tmp_path: Path, before: Verdict, after: Verdict, is_worse: bool) -> None:
    found = compared(tmp_path, [(A, TAINT, before)], [(A, TAINT, after)])
    assert bool(found.regressions) == is_worse
    assert found.exit_code == int(is_worse)
    labels = [(change.before, change.after) for change in found.changes]
    assert labels == ([] if before.label == after.label else [(before.label, after.label)])


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, lab="libvirt"),
        replace(FACTS, profile="documented"),
        replace(FACTS, kubernetes_version="v1.35.0"),
    ],
)
def test_what_another_lab_profile_or_version_cannot_prove_is_no_regression(
    tmp_path: Path, facts: RunFacts
) -> None:
    for before in (CONFORMS, DEVIATES):
        found = compared(tmp_path / before.label, [(A, TAINT, before)], [(A, TAINT, LACKS)], facts)
        assert (len(found.changes), found.regressions) == (1, ())


def test_what_another_scenario_proves_is_no_regression(tmp_path: Path) -> None:
    found = compared(tmp_path, [(A, TAINT, CONFORMS)], [(A, TAINT, LACKS), (B, TAINT, CONFORMS)])
    assert (found.changes, found.exit_code) == ((), 0)


def test_claims_that_are_new_or_gone_are_named(tmp_path: Path) -> None:
    found = compared(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, DEVIATES)])
    assert [(change.claim, change.before, change.after) for change in found.changes] == [
        (TAINT, "conforms", "absent"),
        (DETECTION, "absent", "deviates"),
    ]
    assert found.exit_code == 0
    text = compare.render(found)
    assert f"only in A: 1\n  {TAINT}: conforms" in text
    assert f"only in B: 1\n  {DETECTION}: deviates" in text


@pytest.mark.parametrize("facts", [None, replace(FACTS, exit_reason="no memory"), replace(FACTS, ended="")])
def test_what_a_run_that_is_not_whole_lost_is_a_regression(tmp_path: Path, facts: RunFacts | None) -> None:
    found = compared(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, CONFORMS)], facts)
    assert [change.claim for change in found.regressions] == [TAINT]
    assert "B is not whole: " in compare.render(found)


def test_a_selected_claim_without_a_verdict_is_a_regression(tmp_path: Path) -> None:
    facts = replace(FACTS, selected=(TAINT, DETECTION))
    found = compared(tmp_path, [(A, TAINT, CONFORMS)], [(A, DETECTION, CONFORMS)], facts)
    assert [(change.claim, change.after) for change in found.regressions] == [(TAINT, "no verdict")]


def test_times_are_distributions(tmp_path: Path) -> None:
    old = [(f"{A}{n}", DETECTION, measured(40.0 + n)) for n in range(3)]
    new = [(f"{A}{n}", DETECTION, measured(50.5 + n)) for n in range(4)]
    found = compared(tmp_path, old, new)
    (moved,) = found.times
    assert (moved.before, moved.after) == (Times((40.0, 41.0, 42.0)), Times((50.5, 51.5, 52.5, 53.5)))
    assert moved.is_apart
    said = " ".join(compare.render(found).split())
    assert f"measured times in both: 1 {CLAIMS[DETECTION].statement[:60]}" in said
    assert f"({DETECTION}): 41.0 s -> 52.0 s A 40.0 to 42.0 s, n=3; B 50.5 to 53.5 s, n=4: apart" in said


def by_grace(tmp_path: Path, old: str, new: str, version: str = "v1.31.9", lost: bool = False) -> str:
    """How the times of two runs stand beside each other, which ran with these grace periods."""
    runs = []
    for name, grace, kubernetes, lasted in (("a", old, version, 40.0), ("b", new, VERSION, 50.5)):
        told = [(f"{A}{n}", DETECTION, measured(lasted + n)) for n in range(3)]
        facts = replace(FACTS, kubernetes_version=kubernetes)
        runs.append(tell(tmp_path / name, told, facts, configuration(kubernetes, grace)))
    if lost:
        for path in runs[0].glob("scenarios/*/configuration.json"):
            path.unlink()
    (moved,) = compare.compare(digest.read(runs[0]), digest.read(runs[1]), CLAIMS).times
    return moved.line


@pytest.mark.parametrize(
    ("old", "new", "version", "lost", "because"),
    [
        (
            "40s",
            "50s",
            "v1.31.9",
            False,
            f"; {GRACE} 40 s -> 50 s, the default changed in 1.32",
        ),
        ("12s", "50s", "v1.31.9", False, f"; {GRACE} 12 s -> 50 s"),
        ("12s", "1m0s", VERSION, False, f"; {GRACE} 12 s -> 60 s"),
        ("12s", "12s", "v1.31.9", False, ""),
        (
            "40s",
            "50s",
            "v1.31.9",
            True,
            f"; default of {GRACE} 40 s -> 50 s, the default changed in 1.32",
        ),
        ("50s", "50s", VERSION, True, ""),
    ],
)
def test_a_time_that_moved_says_by_which_setting(
    tmp_path: Path, old: str, new: str, version: str, lost: bool, because: str
) -> None:
    line = by_grace(tmp_path, old, new, version, lost)
    assert line.endswith(f"({DETECTION}): 41.0 s -> 51.5 s{because}")


def test_a_window_names_settings_that_the_claim_does_not(tmp_path: Path) -> None:
    """Its window is of G, which is a constant of other claims."""
    told = [(A, TAINT, measured(13.0))]
    before = tell(tmp_path / "a", told, FACTS, configuration(grace="12s"))
    after = tell(tmp_path / "b", told, FACTS, configuration(grace="50s"))
    assert not CLAIMS[TAINT].constants
    (moved,) = compare.compare(digest.read(before), digest.read(after), CLAIMS).times
    assert moved.because == ("node-monitor-grace-period 12 s -> 50 s",)


def test_what_only_one_run_has_comes_last_and_is_cut(tmp_path: Path) -> None:
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged" and claim.id != DETECTION]
    both = [(A, DETECTION, measured(13.0))]
    found = compared(tmp_path, [*both, *((B, claim, CONFORMS) for claim in judged)], both)
    lines = compare.render(found).splitlines()
    titles = [line.partition(":")[0] for line in lines[2:] if line and line[0] != " "]
    assert titles == [
        "regressions",
        "other verdicts",
        "set otherwise",
        "measured times in both",
        "only in A",
        "only in B",
    ]
    at = lines.index(f"only in A: {len(judged)}")
    assert lines[at + compare.MOST_ABSENT + 1] == f"  and {len(judged) - compare.MOST_ABSENT} more"
    assert lines[at + compare.MOST_ABSENT + 2] == ""


def test_one_measurement_is_no_distribution(tmp_path: Path) -> None:
    found = compared(tmp_path, [(A, DETECTION, measured(40.0))], [(A, DETECTION, measured(50.0))])
    assert not found.times[0].is_apart
    assert "A 40.0 s once; B 50.0 s once" in compare.render(found)


def test_what_is_unproven_measured_nothing(tmp_path: Path) -> None:
    found = compared(
        tmp_path, [(A, DETECTION, replace(GAP, measured=CONFORMS.measured))], [(A, DETECTION, CONFORMS)]
    )
    assert found.times == ()


def test_another_default_and_another_setting_are_told(tmp_path: Path) -> None:
    old = replace(FACTS, kubernetes_version="v1.31.9", settings=("--v=4",))
    before = tell(tmp_path / "a", [(A, TAINT, CONFORMS)], old, configuration("v1.31.9", "40s"))
    after = tell(tmp_path / "b", [(A, TAINT, CONFORMS)], FACTS, configuration(grace="50s"))
    found = compare.compare(digest.read(before), digest.read(after), CLAIMS)
    assert set(found.settings) == {
        ("Kubernetes", "v1.31.9", "v1.36.3"),
        ("default of node-monitor-grace-period", "40 s (<1.32)", "50 s (>=1.32)"),
        ("kube-controller-manager NodeLifecycleController.NodeMonitorGracePeriod", "40s", "50s"),
        ("not upstream's", "--v=4", "-"),
        ("not upstream's", "-", "--node-monitor-grace-period=12s"),
    }


def test_the_command_gives_1_on_a_regression_and_2_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (
        tell(tmp_path / name, [(A, TAINT, said)]) for name, said in (("a", CONFORMS), ("b", DEVIATES))
    )
    assert cli.main(["compare", str(good), str(good)]) == 0
    assert cli.main(["compare", str(good), str(bad)]) == 1
    assert f"regressions: 1\n  {TAINT}: conforms -> deviates\n" in capsys.readouterr().out
    assert cli.main(["compare", str(good), str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "no run's folder" in said[0]


def test_others_text_is_one_short_line_on_a_terminal(tmp_path: Path) -> None:
    hostile = replace(DEVIATES, reason="\x1b[2J\n\u202e" + "x" * 10_000)
    text = compare.render(compared(tmp_path, [(A, TAINT, CONFORMS)], [(A, TAINT, hostile)]))
    assert all(character.isprintable() or character == "\n" for character in text)
    assert len(text) < 2000


def test_what_a_run_says_of_itself_moves_no_cursor(tmp_path: Path) -> None:
    hostile = "\x1b[2J\rx\n"
    facts = replace(FACTS, kubernetes_version=f"v1.36.3{hostile}", lab=hostile, profile=hostile)
    after = tell(tmp_path / f"b{hostile}", [(A, TAINT, CONFORMS)], facts)
    before = tell(tmp_path / "a", [(A, TAINT, CONFORMS)])
    text = compare.render(compare.compare(digest.read(before), digest.read(after), CLAIMS))
    assert all(character.isprintable() or character == "\n" for character in text)
    assert text.splitlines()[1].startswith("B b [2J x : Kubernetes v1.36.3 [2J x , ")


def test_a_torn_configuration_tells_nothing(tmp_path: Path) -> None:
    run = tell(tmp_path / "a", [(A, TAINT, CONFORMS)])
    for path in run.glob("scenarios/*/configuration.json"):
        path.write_text("{")
    assert compare.compare(digest.read(run), digest.read(run), CLAIMS).settings == ()


def test_three_hundred_scenarios_are_compared_at_once(tmp_path: Path) -> None:
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
    told = [(f"t.py::test_{n}", judged[n % len(judged)], CONFORMS) for n in range(300)]
    run = digest.read(tell(tmp_path / "run", told))
    began = time.thread_time()
    compare.render(compare.compare(run, run, CLAIMS))
    assert time.thread_time() - began < 5.0
