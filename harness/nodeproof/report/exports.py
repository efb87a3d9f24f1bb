"""Runs for other programs: verdicts as JUnit XML, and OpenMetrics.

JUnit XML has a test suite for each heading of the page, and a test case for each claim. A claim that deviates
is a failure; one that should have been proven is an error; one that deviates as reported, or that this lab,
profile or version cannot prove, is skipped, with the reason. Claims that the run was not to judge are left
out. A run that is not whole has an error that says so, because its other cases do not show what was lost. A
claim that a scenario without a verdict was to judge is an error, too, unless it deviates.

The metrics are for the textfile collector of a node exporter or a push gateway. The labels of a run are its
set-up, not its name: the next night continues the series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree as ET

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest

from nodeproof.model.problem import Problem
from nodeproof.report import digest, rundir, sections
from nodeproof.report.digest import Digest, Entry, State, details_of, verdict_of
from nodeproof.report.rundir import Row

JUNIT_FILE = "junit.xml"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 documents cannot contain, even escaped (its production 2)."""
_ELEMENTS: Mapping[State, str] = {
    "deviates": "failure",
    "open": "error",
    "known": "skipped",
    "skipped": "skipped",
}
_COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def junit_xml(run: Digest) -> str:
    """Return the JUnit XML of a run."""
    times, unjudged = rundir.read_times(run.run), _scenarios_without_verdict(run)
    root = _element("testsuites", name="nodeproof")
    if run.missing:
        case = _element("testcase", classname="run", name="The run is whole")
        case.append(_element("error", message=" ".join(run.missing), type="not whole"))
        root.append(_suite("The run itself", run, [case]))
    for section, entries in run.sections:
        cases = [
            _case(entry, unjudged.get(entry.id, ()), times)
            for entry in entries
            if entry.state != "silent" or entry.id in unjudged
        ]
        if cases:
            root.append(_suite(section.title, run, cases))
    _set_counts(root)
    if run.facts and run.facts.ended:
        root.set("time", f"{run.facts.duration_s:.3f}")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(title: str, run: Digest, cases: Iterable[ET.Element]) -> ET.Element:
    suite = _element("testsuite", name=title)
    if run.facts and run.facts.began:
        # The schema of JUnit has no time zone; this is UTC.
        suite.set("timestamp", run.facts.began[:19])
    properties = ET.SubElement(suite, "properties")
    facts = {
        "kubernetes": run.kubernetes_version,
        "lab": run.lab,
        "profile": run.profile,
        **({"set": " ".join(run.overrides)} if run.overrides else {}),
        "run": run.facts.run if run.facts else run.run.name,
    }
    if run.is_judged_again:
        facts["judged"] = "again, from the recordings, by nodeproof recheck"
    properties.extend(_element("property", name=name, value=value) for name, value in facts.items())
    suite.extend(cases)
    _set_counts(suite)
    return suite


def _set_counts(element: ET.Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for name, tag in _COUNTS.items():
        element.set(name, str(sum(case.find(tag) is not None for case in cases)))


def _case(entry: Entry, unjudged: Sequence[str], times: Mapping[str, float]) -> ET.Element:
    """Return a claim's test case; `unjudged` are scenarios that were to judge it and left no verdict."""
    case = _element("testcase", classname=entry.area, name=sections.feature(entry.id, entry.claim))
    scenarios = {row["scenario"] for row in entry.rows} | set(unjudged)
    if len(scenarios) == 1 and (took_s := times.get(scenarios.pop())) is not None:
        case.set("time", f"{took_s:.3f}")
    tag, label, message = _ELEMENTS.get(entry.state), entry.label, entry.reason
    if unjudged and tag not in ("failure", "error"):
        tag, label = "error", "no verdict"
        message = f"These were to judge it, and left no verdict: {', '.join(unjudged)}."
    if tag == "skipped":
        # The schema gives it a message and nothing else.
        case.append(_element(tag, message=f"{label}: {message}"))
    elif tag:
        texts = [_describe(row) for row in entry.rows if digest.state_of(row) == entry.state]
        texts += [f"no verdict\nscenario: {scenario}" for scenario in unjudged]
        element = _element(tag, message=message, type=label)
        element.text = _FORBIDDEN.sub("", "\n\n".join(texts))
        case.append(element)
    return case


def _describe(row: Row) -> str:
    details = {"scenario": row["scenario"], **details_of(row)}
    lines = [f"{f'{name}:':<10} {text}" for name, text in details.items()]
    return "\n".join([f"{verdict_of(row).label}: {row['reason']}", *lines])


def _scenarios_without_verdict(run: Digest) -> Mapping[str, Sequence[str]]:
    """Return for each claim the scenarios that were to judge it and left no verdict."""
    by_claim: dict[str, list[str]] = {}
    for scenario, claims in rundir.without_verdict(run.run, run.rows).items():
        for claim in claims:
            by_claim.setdefault(claim, []).append(scenario)
    return by_claim


def _element(tag: str, **attributes: str) -> ET.Element:
    return ET.Element(tag, {name: _FORBIDDEN.sub("", value) for name, value in attributes.items()})


_SETUP = ("kubernetes_version", "lab", "profile", "settings")


def open_metrics(runs: Sequence[Digest]) -> str:
    """Return the metrics of runs. Raises Problem if two have the same set-up."""
    setups = [_setup(run) for run in runs]
    for run, setup in zip(runs, setups, strict=True):
        if setups.count(setup) > 1:
            message = f"two runs have the set-up {' '.join(filter(None, setup))}"
            raise Problem(message, str(run.run), "pass only one of them")
    registry = CollectorRegistry()
    registry.register(_Runs(runs))
    metrics: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return metrics.decode()


class _Runs:
    """A collector of prometheus_client over runs."""

    def __init__(self, runs: Sequence[Digest]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs."""
        started = _gauge("run_start", "start of the run since the epoch", unit="seconds")
        duration = _gauge("run_duration", "duration of a run that ended", unit="seconds")
        whole = _gauge("run_complete", "1 if the run ended and all of it can be read, else 0")
        counts = _gauge("claims", "number of claims in each state", "state")
        state = _gauge("claim_state", "1 for the state of each judged claim", "claim", "area", "state")
        measured = _gauge("claim_measured", "measured time of a claim", "claim", unit="seconds")
        low = _gauge("claim_window_low", "earliest time that conforms", "claim", unit="seconds")
        high = _gauge("claim_window_high", "latest time that conforms", "claim", unit="seconds")
        for run in self._runs:
            setup = _setup(run)
            if run.facts and run.facts.began:
                started.add_metric(setup, datetime.fromisoformat(run.facts.began).timestamp())
            if run.facts and run.facts.ended:
                duration.add_metric(setup, run.facts.duration_s)
            whole.add_metric(setup, float(run.is_whole))
            for name, _label, number in run.counts:
                if name != "silent":
                    counts.add_metric([*setup, name], number)
            for entry in (entry for entry in run.entries if entry.state != "silent"):
                state.add_metric([*setup, entry.id, entry.area, entry.state], 1)
                row = entry.rows[0] if entry.rows else {}
                if row.get("measured") and row["measured"]["unit"] == "s":
                    measured.add_metric([*setup, entry.id], row["measured"]["value"])
                if row.get("window"):
                    low.add_metric([*setup, entry.id], row["window"]["low_s"])
                    high.add_metric([*setup, entry.id], row["window"]["high_s"])
        yield from (started, duration, whole, counts, state, measured, low, high)


def _setup(run: Digest) -> list[str]:
    return [run.kubernetes_version, run.lab, run.profile, " ".join(run.overrides)]


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"nodeproof_{name}", text, labels=[*_SETUP, *labels], unit=unit)
