"""One run as text: for a terminal, in Markdown, as JUnit XML and as OpenMetrics.

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
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree as ET

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from nodeproof.model.problem import Problem
from nodeproof.report import digest, plain, rundir
from nodeproof.report.digest import (
    LABELS,
    Digest,
    Entry,
    Since,
    State,
    describe_kubelets,
    details_of,
    measured_of,
    state_of,
    verdict_of,
)
from nodeproof.report.page import render_template
from nodeproof.report.plain import COMPLETE, aligned, on_terminal, shortened, wrapped
from nodeproof.report.rundir import Row

TABLE_FILE = "table.txt"
"""The table's name in a run's folder."""
MAX_LISTED = 50
"""Claims of one list of the summary; the page of a CI run takes at most a megabyte."""
MAX_DETAILED = 10
"""If more claims deviate, each has only a few lines at the end of the output."""
_REASON, _DETAIL, _SHORT, _VALUE = 300, 200, 95, 40
"""Characters at the end of the output: of a reason (three lines), another detail (two), a short text (one),
and a value.
"""
_MAX_SKIP_REASONS = 3
_SHORT_PAGE_TEXT = 12


def render(run: Digest, report: str, since: Mapping[str, Since]) -> str:
    """Return a line per claim with its worst verdict, reasons below those that do not conform, and totals.

    Claims that deviate or should have been proven come first, then those that this lab cannot prove, then the
    rest. `since` is since when claims deviate, as far as that is of interest.
    """
    entries = sorted(_judged(run), key=lambda entry: (_group(entry), entry.id))
    head, *lines = aligned([("claim", "verdict", "measured", "window", ""), *map(_cells, entries)])
    output = [head, "-" * len(head)]
    for number, (line, entry) in enumerate(zip(lines, entries, strict=True)):
        if number and _group(entry) != _group(entries[number - 1]):
            output.append("")
        output.append(line)
        if entry.state != "conforms":
            output += [*wrapped(entry.reason), *_wrapped_details(entry.rows[0])]
        if entry.id in since:
            output += wrapped(str(since[entry.id]))
    skewed = dict.fromkeys(filter(None, map(describe_kubelets, run.rows)))
    kubelets = [line for text in skewed for line in wrapped(f"judged with kubelets {text}")]
    newer = sorted({row["upgraded_to"] for row in run.rows if "upgraded_to" in row})
    upgrades = [f"judged with an upgrade to {version}" for version in newer]
    last = f"{run.lasted or 'without an end'}; report: {on_terminal(report, COMPLETE)}"
    return "\n".join([*output, "", *kubelets, *upgrades, run.totals, last])


def _judged(run: Digest) -> list[Entry]:
    return [entry for entry in run.entries if entry.rows]


def _group(entry: Entry) -> int:
    return {"conforms": 2, "skipped": 1, "known": 1}.get(entry.state, 0)


def _cells(entry: Entry) -> tuple[str, ...]:
    row = entry.rows[0]
    window, page, remark = row["window"], row["page"], f"x{len({row['scenario'] for row in entry.rows})}"
    if "kubelet_version" in row:
        remark += f"  kubelet {on_terminal(row['kubelet_version'], 16)}"
    allowed = f"[{window['low_s']:.2f}, {window['high_s']:.2f}] s" if window else ""
    if page["agreement"] == "differs":
        is_short = len(page["says"]) <= _SHORT_PAGE_TEXT
        remark += f"  page: {on_terminal(page['says']) if is_short else 'differs'}"
    # The value of an observation may be an object: the page shows it whole.
    measured = "" if entry.measured.startswith(("{", "[", "None")) else on_terminal(entry.measured, 16)
    return on_terminal(entry.id), entry.label, measured, allowed, remark


def _wrapped_details(row: Row, most: int = COMPLETE) -> Iterator[str]:
    for name, text in details_of(row).items():
        yield from wrapped(f"{name}: {text}", most)


def last_lines(run: Digest, named: Collection[str] = ()) -> Iterator[str]:
    """Yield the deviating and the unproven claims with reasons, and as the last line the totals.

    A claim that deviates as reported is one line with its issue: it is the same in every run, and fails none.
    Claims that the user `named` are listed whatever their verdict.
    """
    judged = _judged(run)
    by_id = sorted(judged, key=lambda entry: entry.id)
    deviating = [entry for entry in by_id if entry.state == "deviates"]
    reported = [f"{entry.label}: {entry.id} ({entry.reported})" for entry in by_id if entry.reported]
    still_open = [
        entry for entry in judged if entry.state == "open" or (entry.state == "skipped" and entry.id in named)
    ]
    describe = _describe if len(deviating) <= MAX_DETAILED else _describe_briefly
    for entry in deviating:
        yield f"deviates: {on_terminal(entry.id)}"
        failed = (row["scenario"] for row in entry.rows if state_of(row) == "deviates")
        yield from describe(entry.rows[0], run.since.get(entry.id), list(dict.fromkeys(failed)))
        yield ""
    yield from map(on_terminal, reported)
    if reported:
        yield ""
    yield from _open([entry.rows[0] for entry in still_open])
    skipped = [entry for entry in judged if entry.state == "skipped" and entry not in still_open]
    yield from _skipped([entry.rows[0] for entry in skipped])
    for entry in by_id:
        if entry.id in named and entry.state == "conforms":
            yield f"conforms: {on_terminal(entry.id)}"
            window = entry.rows[0]["window"]
            is_bound = window and window["shape"] != "negative"
            allowed = f"; allowed {window['low_s']:.2f} to {window['high_s']:.2f} s" if is_bound else ""
            yield from wrapped(f"{entry.reason}{allowed}", _REASON)
            yield ""
    yield run.totals


def _describe(row: Row, since: Since | None, scenarios: Sequence[str]) -> Iterator[str]:
    yield from wrapped(row["reason"], _REASON)
    yield from _wrapped_details(row, _DETAIL)
    if since:
        yield from wrapped(str(since), _DETAIL)
    for scenario in scenarios:
        yield from wrapped(f"scenario: {scenario}")


def _describe_briefly(row: Row, since: Since | None, scenarios: Sequence[str]) -> Iterator[str]:
    window, parts = row["window"], [shortened(row["reason"], _DETAIL)]
    if row["measured"]:
        parts.append(f"observed {shortened(measured_of(row), _VALUE)}")
    if window:
        parts.append(f"window [{window['low_s']:.2f}, {window['high_s']:.2f}] s")
    if since:
        parts.append(str(since))
    yield from wrapped("; ".join(parts))
    yield from wrapped(f"in {', '.join(scenarios)}")


def _open(rows: Sequence[Row]) -> Iterator[str]:
    """Group by scenario and code: what ends a scenario leaves all its claims open for one reason."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        reasons = groups.setdefault((verdict_of(row).label, row["scenario"]), {})
        reasons.setdefault(row["reason"], []).append(row["claim"])
    for (label, scenario), reasons in sorted(groups.items()):
        yield f"{label}: {on_terminal(scenario)}"
        for reason, claims in reasons.items():
            yield from wrapped(f"{', '.join(sorted(claims))}: {shortened(reason, _REASON)}")
        yield ""


def _skipped(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the most frequent reasons why this lab and profile cannot prove claims."""
    if not rows:
        return
    reasons = Counter(f"{row['code']}: {row['reason']}" for row in rows)
    yield f"this lab and profile cannot prove {len(rows)} of the claims:"
    for reason, count in reasons.most_common(_MAX_SKIP_REASONS):
        yield from wrapped(f"{count} {shortened(reason, _SHORT)}")
    if len(reasons) > _MAX_SKIP_REASONS:
        rest = sum(count for _reason, count in reasons.most_common()[_MAX_SKIP_REASONS:])
        yield from wrapped(f"{rest} for other reasons: see {TABLE_FILE}")
    yield ""


def summary(run: Digest) -> str:
    """Return a run in Markdown, for the page of a CI run; also of one that is not whole."""
    counts = {state: (number, label) for state, label, number in run.counts}
    return render_template("summary.md", run=run, counts=counts, labels=LABELS, most=MAX_LISTED)


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
    times, unjudged = rundir.read_times(run.run / rundir.TIMES), _scenarios_without_verdict(run)
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
        "set": " ".join(run.overrides),
        "run": run.facts.run if run.facts else run.run.name,
        "judged": "again, from the recordings, by nodeproof recheck" if run.is_judged_again else "",
    }
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
    case = _element("testcase", classname=entry.area, name=plain.feature(entry.id, entry.claim))
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
        texts = [_describe_row(row) for row in entry.rows if digest.state_of(row) == entry.state]
        texts += [f"no verdict\nscenario: {scenario}" for scenario in unjudged]
        element = _element(tag, message=message, type=label)
        element.text = _FORBIDDEN.sub("", "\n\n".join(texts))
        case.append(element)
    return case


def _describe_row(row: Row) -> str:
    details = digest.listed({"scenario": row["scenario"], **details_of(row)})
    return "\n".join([f"{verdict_of(row).label}: {row['reason']}", *details])


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
_GAUGES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "run_start": ("start of the run since the epoch", (), "seconds"),
    "run_duration": ("duration of a run that ended", (), "seconds"),
    "run_complete": ("1 if the run ended and all of it can be read, else 0", (), ""),
    "claims": ("number of claims in each state", ("state",), ""),
    "claim_state": ("1 for the state of each judged claim", ("claim", "area", "state"), ""),
    "claim_measured": ("measured time of a claim", ("claim",), "seconds"),
    "claim_window_low": ("earliest time that conforms", ("claim",), "seconds"),
    "claim_window_high": ("latest time that conforms", ("claim",), "seconds"),
}
"""Meaning, own labels and unit of each metric."""


def open_metrics(runs: Sequence[Digest]) -> str:
    """Return the metrics of runs. Raises Problem if two have the same set-up."""
    setups = [[run.kubernetes_version, run.lab, run.profile, " ".join(run.overrides)] for run in runs]
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"nodeproof_{name}", text, (*_SETUP, *labels), unit=unit, registry=registry)
        for name, (text, labels, unit) in _GAUGES.items()
    }
    for run, setup in zip(runs, setups, strict=True):
        if setups.count(setup) > 1:
            message = f"two runs have the set-up {' '.join(filter(None, setup))}"
            raise Problem(message, str(run.run), "pass only one of them")
        for name, labels, value in _samples(run):
            gauges[name].labels(*setup, *labels).set(value)
    metrics: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return metrics.decode()


def _samples(run: Digest) -> Iterator[tuple[str, Sequence[str], float]]:
    """Yield the metrics of a run with their own labels."""
    if run.facts and run.facts.began:
        yield "run_start", (), datetime.fromisoformat(run.facts.began).timestamp()
    if run.facts and run.facts.ended:
        yield "run_duration", (), run.facts.duration_s
    yield "run_complete", (), run.is_whole
    yield from (("claims", (state,), number) for state, _label, number in run.counts if state != "silent")
    for entry in (entry for entry in run.entries if entry.state != "silent"):
        yield "claim_state", (entry.id, entry.area, entry.state), 1
        row = entry.rows[0] if entry.rows else {}
        if row.get("measured") and row["measured"]["unit"] == "s":
            yield "claim_measured", (entry.id,), row["measured"]["value"]
        if row.get("window"):
            yield "claim_window_low", (entry.id,), row["window"]["low_s"]
            yield "claim_window_high", (entry.id,), row["window"]["high_s"]
