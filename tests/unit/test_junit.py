"""The JUnit report of a run: failures, errors, skips, properties and times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodeproof.report import digest, junit, rundir
from tests.unit.synthetic_runs import (
    CLAIMS,
    CONFORMS,
    CUT,
    DEFAULT,
    DETECTION,
    DEVIATES,
    FACTS,
    GAP,
    LACKS,
    OTHER,
    ROWS,
    SWAP,
    TAINT,
    WINDOW,
    tell,
)


def of(run: Path) -> ET.Element:
    return ET.fromstring(junit.render(digest.read(run), CLAIMS))  # noqa: S314


def counts(element: ET.Element) -> dict[str, int]:
    """Count the cases, independent of their attributes."""
    cases = list(element.iter("testcase"))
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {
        "tests": len(cases),
        **{name: sum(case.find(tag) is not None for case in cases) for name, tag in names.items()},
    }


def case(root: ET.Element, claim: str) -> ET.Element:
    (element,) = (
        element for element in root.iter("testcase") if element.get("name", "").endswith(f"({claim})")
    )
    return element


def result(root: ET.Element, claim: str) -> ET.Element:
    """Return the only child of a claim's case."""
    (element,) = case(root, claim)
    return element


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tell(tmp_path / "run", ROWS)


def test_each_claim_is_a_case_below_its_heading(run: Path) -> None:
    root = of(run)
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["Manual Node administration", "Node controller", "Swap memory management"]
    names = {element.get("name") for element in suites["Node controller"].iter("testcase")}
    assert names == {f"{CLAIMS[claim].statement} ({claim})" for claim in (DETECTION, DEFAULT)}
    assert case(root, DETECTION).get("classname") == "monitoring"
    assert list(case(root, DETECTION)) == []


def test_counts_match_the_cases(run: Path) -> None:
    root = of(run)
    assert counts(root) == {"tests": 4, "failures": 1, "errors": 1, "skipped": 1}
    for element in (root, *root):
        assert {name: int(element.attrib[name]) for name in counts(root)} == counts(element)


def test_failure_shows_window_measurement_and_last_state(run: Path) -> None:
    failure = result(of(run), TAINT)
    assert failure.tag == "failure"
    assert failure.attrib == {"message": DEVIATES.reason, "type": "deviates"}
    for text in (WINDOW.arithmetic, "15.200 s", DEVIATES.last_state, CUT):
        assert text in (failure.text or "")


def test_unproven_claim_is_an_error_and_unprovable_one_is_skipped(run: Path) -> None:
    error, skipped = result(of(run), DEFAULT), result(of(run), SWAP)
    assert (error.tag, error.attrib) == ("error", {"message": GAP.reason, "type": "unproven: gap"})
    assert skipped.tag == "skipped"
    assert skipped.attrib == {"message": f"unproven: lab-lacks: {LACKS.reason}"}


def test_selected_claim_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS[:1], replace(FACTS, selected=(DETECTION, TAINT)))
    error = result(of(run), TAINT)
    assert error.tag == "error"
    assert error.get("message") == "It was to be judged, and the run has no verdict on it."


def test_scenario_without_files_is_an_error_for_each_claim(run: Path) -> None:
    scenarios = {"s/test_lost.py::test_lost": [DETECTION, SWAP, TAINT], CUT: [DETECTION], "s.py::test": []}
    rundir.write_json(run / rundir.DECLARED, scenarios)
    root = of(run)
    assert counts(root) == {"tests": 5, "failures": 1, "errors": 4, "skipped": 0}
    message = "Scenarios without a verdict: s.py::test, s/test_lost.py::test_lost."
    assert root.find(f"testsuite[@name='The run itself']/testcase/error[@message='{message}']") is not None
    for claim in (DETECTION, SWAP):
        error = result(root, claim)
        assert error.tag == "error"
        assert error.get("message", "").endswith("left no verdict: s/test_lost.py::test_lost.")
    failure = result(root, TAINT)
    assert failure.tag == "failure"
    assert "no verdict\nscenario: s/test_lost.py::test_lost" in (failure.text or "")


def test_claim_whose_only_scenario_has_no_verdict_is_an_error(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", ROWS[:1], None)
    rundir.write_json(run / rundir.DECLARED, {CUT: [DETECTION], OTHER: [TAINT]})
    assert result(of(run), TAINT).tag == "error"
    assert list(case(of(run), DETECTION)) == []


@pytest.mark.parametrize("text", ["[]", "{", '{"a.py::test_a": 1}', "null"])
def test_malformed_list_of_scenarios_is_ignored(run: Path, text: str) -> None:
    whole = of(run)
    (run / rundir.DECLARED).write_text(text)
    assert ET.tostring(of(run)) == ET.tostring(whole)


def test_report_has_properties_and_times(run: Path) -> None:
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, "start": 30.0})
    root = of(run)
    assert [(element.get("name"), element.get("value")) for element in root[0].iter("property")] == [
        ("kubernetes", "v1.36.3"),
        ("lab", "process"),
        ("profile", "fast"),
        ("run", "run"),
    ]
    assert root[0].get("timestamp") == "2026-11-20T14:15:30"
    assert root.get("time") == "362.000"
    assert case(root, DETECTION).get("time") == "12.500"
    assert "time" not in case(root, DEFAULT).attrib


def test_claim_of_two_scenarios_has_no_time(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [(CUT, DETECTION, CONFORMS), (OTHER, DETECTION, CONFORMS)])
    rundir.write_json(run / rundir.TIMES, {CUT: 12.5, OTHER: 1.0})
    assert "time" not in case(of(run), DETECTION).attrib
