"""A run in Markdown, for the page of a CI run: what deviates, what could not be proven, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from nodeproof.model.claim import Claim
from nodeproof.report import digest
from nodeproof.report.behaviours import title
from nodeproof.report.digest import SIGNS, Digest, Entry
from nodeproof.report.evidence import Finder
from nodeproof.report.page import LABELS, View
from nodeproof.report.plain import in_markdown, prose_in_markdown
from nodeproof.report.rundir import Row

MOST = 50
"""Claims of one list; a CI run's page takes no more than a megabyte."""


def render(found: Digest, claims: Mapping[str, Claim]) -> str:
    """The summary of one run, also of one that is not whole."""
    run = View(found, claims, Finder(found.run, {}))
    counts = {state: number for state, _label, number in run.counts}
    told = {state: f"{number} {label}" for state, label, number in run.counts}
    verdicts = f"{told['deviates']}, {counts['open'] + counts['skipped']} unproven, {told['conforms']}"
    ran = in_markdown(", ".join(dict.fromkeys((run.kubernetes_version, run.lab, run.profile))))
    parts = [f"## Kubernetes {ran}: {verdicts}", "", _facts(run)]
    if run.missing:
        parts += ["", "**This run is not whole.**", "", *(f"- {in_markdown(said)}" for said in run.missing)]
    nothing = "Nothing deviates." if run.has_rows else "Nothing was judged."
    parts += ["", "### What deviates", "", *_list(run.deviating, partial(_deviating, run), nothing)]
    parts += [
        "",
        "### What could not be proven, and should have been",
        "",
        *_list(run.open, _open, "Nothing."),
    ]
    parts += ["", "### What this lab, profile or version cannot prove", "", *_skipped(run)]
    parts += [
        "",
        "### Where page and code differ, as is known",
        "",
        *_list(run.differing, _differing, "Nowhere."),
    ]
    parts += ["", "| claims that | |", "|---|---:|"]
    parts += [f"| {SIGNS[state]} {label} | {counts[state]} |" for state, label in LABELS.items()]
    return "\n".join([*parts, ""])


def _facts(run: View) -> str:
    told = (run.name, run.load, run.began, run.lasted)
    return " · ".join(in_markdown(each) for each in told if each)


def _list(entries: Sequence[Entry], line: Callable[[Entry], str], nothing: str) -> Iterator[str]:
    """A line for each of the first claims, and how many more there are."""
    if not entries:
        yield nothing
    yield from (f"- {SIGNS[entry.state]} {line(entry)}" for entry in entries[:MOST])
    if len(entries) > MOST:
        yield f"- and {len(entries) - MOST} more"


def _deviating(run: View, entry: Entry) -> str:
    told = [_why(row) for row in entry.rows if row["verdict"] == "deviates"]
    return "<br>".join(filter(None, (_named(entry), *told[:MOST], in_markdown(run.since(entry)))))


def _why(row: Row) -> str:
    parts = [in_markdown(row["reason"])]
    if row["measured"]:
        parts.append(f"measured {in_markdown(digest.measured_of(row))}")
    if row["window"]:
        parts.append(f"allowed {in_markdown(row['window']['arithmetic'])}")
    if row["last_state"]:
        parts.append(f"last seen {in_markdown(row['last_state'])}")
    return "; ".join([*parts, f"scenario: {in_markdown(title(row['scenario']))}"])


def _open(entry: Entry) -> str:
    reason = entry.rows[0]["reason"] if entry.rows else entry.silence
    return f"{_named(entry)}<br>{entry.label}: {in_markdown(reason)}"


def _skipped(run: View) -> Iterator[str]:
    if not run.skipped:
        yield "Nothing."
    for code, reason, entries in run.skipped[:MOST]:
        yield f"- {code} ({len(entries)}): {in_markdown(reason)}"
    if len(run.skipped) > MOST:
        yield f"- and {len(run.skipped) - MOST} more reasons"


def _differing(entry: Entry) -> str:
    return "<br>".join(filter(None, (_named(entry), in_markdown(entry.difference))))


def _named(entry: Entry) -> str:
    # Without the catalogue's claim all of it is the run's.
    statement = prose_in_markdown(entry.statement) if entry.claim else in_markdown(entry.statement)
    return f"**{statement}** ({in_markdown(entry.id)})"
