"""Versions of Kubernetes side by side: what changed between their runs, why, and where the page is true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nodeproof.model.claim import CONTRARY, MOVED, Claim, includes
from nodeproof.report.comparison import Comparison, Line, measured_times, title_of
from nodeproof.report.digest import Entry
from nodeproof.report.page import render_template
from nodeproof.report.plain import on_terminal

_LEAST_CHANGE, _LEAST_CHANGE_S = 0.25, 1.0
"""Change of a median, as a share of the smaller one and in seconds, below which it is noise of one run."""
_REASON = 300
_MARKS = {True: "✓", False: "✗", None: ""}


@dataclass(frozen=True)
class Verdicts:
    """A claim whose verdict differs, with the source of the change, if the catalogue has one."""

    line: Line
    cause: str


@dataclass(frozen=True)
class Default:
    """A default compiled into a component: its value in each version, and its source."""

    name: str
    component: str
    values: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Change:
    """What a minor changed in what scenarios observe of a claim, which holds before and after."""

    claim: Claim
    minor: str
    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of the page: in each version of the page, whether it was true there.

    Args:
        truths: by version of the page; True, False, or None if the page does not have the sentence.
    """

    claim: Claim
    truths: Mapping[str, bool | None]


def render(comparison: Comparison) -> str:
    """Return a page in Markdown about runs on several versions of Kubernetes, in the order of the runs."""
    claims = comparison.claims
    return render_template(
        "versions.md",
        comparison=comparison,
        title=title_of,
        verdicts=list(_verdicts(comparison)),
        defaults=list(_defaults(comparison)),
        medians=list(_medians(comparison)),
        changes=list(_changes(comparison)),
        sentences=list(untrue_sentences(claims)),
        page_versions=list(dict.fromkeys(version for claim in claims.values() for version in claim.page)),
        marks=_MARKS,
        least=_LEAST_CHANGE,
        least_s=_LEAST_CHANGE_S,
    )


def _verdicts(comparison: Comparison) -> Iterator[Verdicts]:
    for line in comparison.lines:
        if not line.is_same:
            yield Verdicts(line, _cause(comparison.claims.get(line.id), line))


def _cause(claim: Claim | None, line: Line) -> str:
    """Return the versions, the difference and the source that the catalogue names, else the runs' reasons."""
    reasons = {entry.reason: None for entry in line.entries if entry and _is_open(entry)}
    if claim is None or "not-applicable" not in " ".join(line.labels):
        return "; ".join(on_terminal(reason, _REASON) for reason in reasons)
    parts = [f"holds for {claim.versions}", claim.drift, *claim.sources]
    return "; ".join(on_terminal(part) for part in parts if part)


def _is_open(entry: Entry) -> bool:
    return entry.state != "conforms" and bool(entry.reason)


def _defaults(comparison: Comparison) -> Iterator[Default]:
    """Yield the defaults of the catalogue that differ between the versions of the runs, each once."""
    seen = set()
    for claim in comparison.claims.values():
        for constant in claim.constants:
            values = tuple(f"{constant.at(run.kubernetes_version):g}" for run in comparison.runs)
            key = (constant.component, constant.name)
            if len({*values}) > 1 and key not in seen:
                seen.add(key)
                in_words = tuple(f"{value} {constant.unit}".strip() for value in values)
                yield Default(constant.name, constant.component, in_words, constant.source)


def _medians(comparison: Comparison) -> Iterator[tuple[Line, tuple[float | None, ...]]]:
    """Yield the claims whose median time changes from one run to another by more than a run's noise."""
    for line in comparison.lines:
        times = [measured_times(entry) for entry in line.entries]
        medians = tuple(median(values) if values else None for values in times)
        measured_s = [value for value in medians if value is not None]
        if len(measured_s) < 2:
            continue
        change_s = max(measured_s) - min(measured_s)
        if _is_in_one_window(line, measured_s):
            continue
        if change_s > max(_LEAST_CHANGE_S, _LEAST_CHANGE * min(measured_s)):
            yield line, medians


def _changes(comparison: Comparison) -> Iterator[Change]:
    """Yield what the catalogue says changed after the oldest minor of the runs, up to the newest one."""
    minors = [_minor(run.kubernetes_version) for run in comparison.runs]
    for claim in comparison.claims.values():
        for minor, text in claim.changed.items():
            if min(minors) < _minor(minor) <= max(minors):
                yield Change(claim, minor, text)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _is_in_one_window(line: Line, times_s: Sequence[float]) -> bool:
    """Return whether a window admits all these times, which then depend on the phase of a controller."""
    rows = [row for entry in line.entries if entry for row in entry.rows]
    windows = [row["window"] for row in rows if row["window"]]
    return any(window["low_s"] <= min(times_s) and max(times_s) <= window["high_s"] for window in windows)


def untrue_sentences(claims: Mapping[str, Claim]) -> Iterator[Sentence]:
    """Yield the sentences that were not true in every version of the page that has them."""
    for claim in claims.values():
        truths = {version: _is_true(claim, version) for version in claim.page}
        if False in truths.values():
            yield Sentence(claim, truths)


def _is_true(claim: Claim, page_version: str) -> bool | None:
    """Return whether a page's sentence described the Kubernetes of that page; None if it has no sentence."""
    remark = claim.page[page_version]
    if remark is False or str(remark).startswith(MOVED):
        return None
    kubernetes = f"{page_version}.0"
    if str(remark).startswith(CONTRARY) or not includes(claim.versions, kubernetes):
        return False
    documented = (constant for constant in claim.constants if constant.page_value is not None)
    return all(constant.page_value == constant.at(kubernetes) for constant in documented)
