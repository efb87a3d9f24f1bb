"""JUnit XML of a run: what is a failure, an error, a skip; and that nobody's text breaks it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodeproof import cli
from nodeproof.model.verdict import deviates
from nodeproof.report import digest, junit, rundir
from tests.unit.told_runs import (
    CLAIMS,
    CONFORMS,
    DEVIATES,
    FACTS,
    GAP,
    LACKS,
    WINDOW,
    Told,
    configuration,
    tell,
)

CUT, OTHER = "s/test_cut.py::test_cut", "s/test_other.py::test_other"
DETECTION, DEFAULT, TAINT, SWAP = (
    "monitoring.detection-time",
    "monitoring.grace-period-default",
    "cordon.taint",
    "swap.fail-on-default",
)
TOLD: list[Told] = [
    (CUT, DETECTION, CONFORMS),
    (CUT, TAINT, DEVIATES),
    (OTHER, DEFAULT, GAP),
    (OTHER, SWAP, LACKS),
]
COUNTS = ("tests", "failures", "errors", "skipped")
HOSTILE = "<script>&\"' ]]> \x00\x1b[31m\x0b\ufffe\ud800 \u202e\u05e9\u05dc\u05d5\u05dd\n" + "x" * 10_000


def read(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314


def of(run: Path) -> ET.Element:
    return read(junit.render(digest.read(run), CLAIMS))


def counted(element: ET.Element) -> dict[str, int]:
    """By its cases, whatever its attributes say."""
    cases = list(element.iter("testcase"))
    found = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    holds = {name: sum(case.find(tag) is not None for case in cases) for name, tag in found.items()}
    return {"tests": len(cases), **holds}


def case(root: ET.Element, claim: str) -> ET.Element:
    (found,) = (each for each in root.iter("testcase") if each.get("name", "").endswith(f"({claim})"))
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tell(tmp_path / "run", TOLD)


def test_each_claim_is_a_case_below_its_heading(run: Path) -> None:
    root = of(run)
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["Manual Node administration", "Node controller", "Swap memory management"]
    names = {each.get("name") for each in suites["Node controller"].iter("testcase")}
    assert names == {f"{CLAIMS[claim].statement} ({claim})" for claim in (DETECTION, DEFAULT)}
    assert case(root, DETECTION).get("classname") == "monitoring"
    assert list(case(root, DETECTION)) == []


def test_what_is_counted_is_there(run: Path) -> None:
    root = of(run)
    assert counted(root) == {"tests": 4, "failures": 1, "errors": 1, "skipped": 1}
    for element in (root, *root):
        assert {name: int(element.attrib[name]) for name in COUNTS} == counted(element)


def test_a_failure_says_what_was_allowed_measured_and_seen(run: Path) -> None:
    failure = case(of(run), TAINT).find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.get("type")) == (DEVIATES.reason, "deviates")
    for said in (WINDOW.arithmetic, "15.200 s", DEVIATES.last_state, CUT):
        assert said in (failure.text or "")


def test_what_is_open_is_an_error_and_what_cannot_be_proven_here_is_skipped(run: Path) -> None:
    root = of(run)
    error, skipped = case(root, DEFAULT).find("error"), case(root, SWAP).find("skipped")
    assert error is not None
    assert skipped is not None
    assert (error.get("message"), error.get("type")) == (GAP.reason, "unproven: gap")
    assert skipped.attrib == {"message": f"unproven: lab-lacks: {LACKS.reason}"}


def test_a_claim_that_was_to_be_judged_and_has_no_verdict_is_an_error(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD[:1], replace(FACTS, selected=(DETECTION, TAINT)))
    error = case(of(run), TAINT).find("error")
    assert error is not None
    assert error.get("message") == "It was to be judged, and the run has no verdict on it."


def test_a_scenario_that_left_nothing_is_an_error_of_each_of_its_claims(run: Path) -> None:
    scenarios = {"s/test_lost.py::test_lost": [DETECTION, SWAP, TAINT], CUT: [DETECTION], "s.py::test": []}
    rundir.write_json(run / rundir.DECLARED, scenarios)
    root = of(run)
    assert counted(root) == {"tests": 5, "failures": 1, "errors": 4, "skipped": 0}
    error = root.find("testsuite[@name='The run itself']/testcase/error")
    assert error is not None
    assert error.get("message") == "Scenarios without a verdict: s.py::test, s/test_lost.py::test_lost."
    for claim in (DETECTION, SWAP):
        error = case(root, claim).find("error")
        assert error is not None
        assert error.get("message", "").endswith("left no verdict: s/test_lost.py::test_lost.")
    failure = case(root, TAINT).find("failure")
    assert failure is not None
    assert "no verdict\nscenario: s/test_lost.py::test_lost" in (failure.text or "")


def test_a_claim_that_only_a_scenario_without_a_verdict_was_to_judge_is_an_error(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", TOLD[:1], None)
    rundir.write_json(run / rundir.DECLARED, {CUT: [DETECTION], OTHER: [TAINT]})
    assert case(of(run), TAINT).find("error") is not None
    assert list(case(of(run), DETECTION)) == []


@pytest.mark.parametrize("text", ["[]", "{", '{"a.py::test_a": 1}', "null"])
def test_what_was_to_run_may_be_malformed(run: Path, text: str) -> None:
    whole = of(run)
    (run / rundir.DECLARED).write_text(text)
    assert ET.tostring(of(run)) == ET.tostring(whole)


def test_properties_and_times(run: Path) -> None:
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, "start": 30.0})
    root = of(run)
    assert [(each.get("name"), each.get("value")) for each in root[0].iter("property")] == [
        ("kubernetes", "v1.36.3"),
        ("lab", "process"),
        ("profile", "fast"),
        ("run", "run"),
    ]
    assert root[0].get("timestamp") == "2026-11-20T14:15:30"
    assert root.get("time") == "362.000"
    assert case(root, DETECTION).get("time") == "12.500"
    assert "time" not in case(root, DEFAULT).attrib


def test_a_claim_of_two_scenarios_has_no_time(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [(CUT, DETECTION, CONFORMS), (OTHER, DETECTION, CONFORMS)])
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, OTHER: 1.0})
    assert "time" not in case(of(run), DETECTION).attrib


def test_a_run_that_was_killed_is_never_all_green(tmp_path: Path) -> None:
    root = of(tell(tmp_path / "run", TOLD[:1], None))
    assert counted(root) == {"tests": 2, "failures": 0, "errors": 1, "skipped": 0}
    error = root.find("testsuite[@name='The run itself']/testcase/error")
    assert error is not None
    assert "did not come to its end" in error.attrib["message"]


def test_text_of_others_is_text_and_no_character_breaks_the_file(tmp_path: Path) -> None:
    scenario, claims = f"s.py::test_{HOSTILE}", {TAINT: replace(CLAIMS[TAINT], statement=HOSTILE)}
    told = digest.read(tell(tmp_path / "other", TOLD))
    row = rundir.row(CLAIMS[TAINT], scenario, deviates(HOSTILE, WINDOW, None, HOSTILE), configuration())
    root = read(junit.render(replace(told, rows=(row,)), claims))
    failure = case(root, TAINT).find("failure")
    assert failure is not None
    for said in (failure.attrib["message"], failure.text or ""):
        assert "<script>&\"' ]]>" in said
        assert "\u05e9\u05dc\u05d5\u05dd" in said
        assert not set("\x00\x1b\x0b\ufffe\ud800") & set(said)


def test_it_is_written_and_printed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "junit.xml"
    assert cli.main(["junit", str(run), "--output", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert cli.main(["junit", str(run)]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert cli.main(["junit", str(run), "--output", "-"]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert not Path("-").exists()
    assert counted(read(path.read_text()))["failures"] == 1


def test_a_file_that_cannot_be_written_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["junit", str(run), "--output", str(tmp_path / "no" / "junit.xml")]) == 2
    assert capsys.readouterr().err.startswith("nodeproof: the JUnit XML cannot be written")
    before = sorted(tmp_path.iterdir())
    assert cli.main(["junit", str(run), "--output", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "this is a folder" in line
    assert sorted(tmp_path.iterdir()) == before
