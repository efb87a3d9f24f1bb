"""A run as JUnit XML: a test suite for each heading of the page, a test case for each claim.

What deviates is a failure; what should have been proven and was not is an error; what this lab, profile or
version cannot prove is skipped, with why. Claims that the run was not to judge are left out. A run that is
not whole has an error that says so, as its other cases tell no more than what is left of it; a claim that a
scenario without a verdict was to judge is an error, too, whatever others say of it, unless it deviates.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import behaviours, declared, digest, rundir
from nodeproof.report.digest import Digest, Entry
from nodeproof.report.outcome import verdict_of
from nodeproof.report.rundir import Row
from nodeproof.report.whole import write as write_whole

Json = Any
FILE = "junit.xml"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold (its production 2), whichever way it is written."""
_ELEMENTS: Mapping[digest.State, str] = {"deviates": "failure", "open": "error", "skipped": "skipped"}


@dataclass(frozen=True)
class Case:
    """A test case, as JUnit has it; `element` is what it holds where it did not pass."""

    area: str
    name: str
    element: str = ""
    message: str = ""
    type: str = ""
    text: str = ""
    took_s: float | None = None


def write(run: Path, claims: Mapping[str, Claim], path: Path) -> Path:
    """Write the JUnit XML of a run, whatever of it is there.

    Raises Problem where there is no run, and where the file cannot be written.
    """
    text = render(digest.read(run), claims)
    return write_whole(path, text.encode(), "the JUnit XML cannot be written")


def render(told: Digest, claims: Mapping[str, Claim]) -> str:
    """The JUnit XML of a run as text."""
    took, without = _times(told.run), _without_verdict(told)
    root = ET.Element("testsuites", {"name": "nodeproof"})
    if told.missing:
        _suite(root, "The run itself", told, [_broken_off(told)])
    for section, entries in digest.by_section(digest.entries(told, claims)):
        known = [entry for entry in entries if entry.state != "silent" or entry.id in without]
        cases = [_case(entry, took, without.get(entry.id, ())) for entry in known]
        if cases:
            _suite(root, section.title, told, cases)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    if told.facts and told.facts.ended:
        root.set("time", _seconds(told.facts.duration_s))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(root: ET.Element, title: str, told: Digest, cases: Sequence[Case]) -> None:
    elements = [case.element for case in cases]
    counts = {
        "tests": len(cases),
        "failures": elements.count("failure"),
        "errors": elements.count("error"),
        "skipped": elements.count("skipped"),
    }
    about = {"name": title, **{name: str(number) for name, number in counts.items()}}
    if told.facts and told.facts.began:
        # JUnit's own schema takes no zone; it is UTC.
        about["timestamp"] = told.facts.began[:19]
    suite = ET.SubElement(root, "testsuite", _clean(about))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(told):
        ET.SubElement(properties, "property", _clean({"name": name, "value": value}))
    for case in cases:
        _add(suite, case)


def _properties(told: Digest) -> Iterable[tuple[str, str]]:
    yield "kubernetes", told.kubernetes_version
    yield "lab", told.lab
    yield "profile", told.profile
    yield "run", told.facts.run if told.facts else told.run.name
    if told.is_judged_again:
        yield "judged", "again, from the recordings, by nodeproof recheck"


def _add(suite: ET.Element, case: Case) -> None:
    about = {"classname": case.area, "name": case.name}
    if case.took_s is not None:
        about["time"] = _seconds(case.took_s)
    made = ET.SubElement(suite, "testcase", _clean(about))
    if case.element == "skipped":
        # Its schema gives it a message and nothing else.
        ET.SubElement(made, "skipped", _clean({"message": case.message}))
    elif case.element:
        said = ET.SubElement(made, case.element, _clean({"message": case.message, "type": case.type}))
        said.text = _FORBIDDEN.sub("", case.text)


def _without_verdict(told: Digest) -> Mapping[str, Sequence[str]]:
    """Of each claim the scenarios that were to judge it and left no verdict."""
    found: dict[str, list[str]] = {}
    for scenario, claims in declared.without_verdict(told.run, told.rows).items():
        for claim in claims:
            found.setdefault(claim, []).append(scenario)
    return found


def _case(entry: Entry, took: Mapping[str, float], without: Sequence[str]) -> Case:
    scenarios = {row["scenario"] for row in entry.rows} | set(without)
    told = [_told(row) for row in entry.rows if _is_alike(row, entry)]
    told += [f"no verdict\nscenario: {scenario}" for scenario in without]
    element, message = _told_by(entry)
    label = entry.label
    if without and element not in ("failure", "error"):
        element, label = "error", "no verdict"
        message = f"These were to judge it, and left no verdict: {', '.join(without)}."
    return Case(
        area=entry.area,
        name=behaviours.feature(entry.id, entry.claim),
        element=element,
        message=message,
        type=label,
        text="\n\n".join(told),
        took_s=took.get(next(iter(scenarios))) if len(scenarios) == 1 else None,
    )


def _told_by(entry: Entry) -> tuple[str, str]:
    """What a case holds by the verdict alone, and with which message."""
    element = _ELEMENTS.get(entry.state, "")
    reason = entry.verdict.reason if entry.verdict else entry.silence
    if element == "skipped":
        reason = f"{entry.label}: {reason}"
    return element, reason if element else ""


def _is_alike(row: Row, entry: Entry) -> bool:
    """Whether a row says what the claim came to, too."""
    return Entry(entry.id, None, (row,)).state == entry.state


def _told(row: Row) -> str:
    """All that is known of one judgment."""
    lines = [f"{verdict_of(row).label}: {row['reason']}", f"scenario: {row['scenario']}"]
    if row["window"]:
        lines.append(f"window:   {row['window']['arithmetic']}")
    if row["measured"]:
        lines.append(f"measured: {digest.measured_of(row)}")
    if row["last_state"]:
        lines.append(f"last:     {row['last_state']}")
    return "\n".join(lines)


def _broken_off(told: Digest) -> Case:
    return Case("run", "The run is whole", "error", " ".join(told.missing), "not whole")


def _times(run: Path) -> Mapping[str, float]:
    """How long each scenario took (s), as far as the run says it."""
    with contextlib.suppress(Problem, TypeError, ValueError, AttributeError):
        return {str(name): float(took_s) for name, took_s in rundir.read_json(run / rundir.TIMES).items()}
    return {}


def _seconds(time_s: float) -> str:
    return f"{time_s:.3f}"


def _clean(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: _FORBIDDEN.sub("", value) for name, value in attributes.items()}
