"""One run as text: the table of claims, the end of the output, a scenario's verdicts, a Markdown summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from nodeproof.report.digest import (
    LABELS,
    Digest,
    Entry,
    Since,
    describe_kubelets,
    details_of,
    measured_of,
    state_of,
    verdict_of,
)
from nodeproof.report.page import render_template
from nodeproof.report.plain import COMPLETE, aligned, on_terminal, shortened, wrapped
from nodeproof.report.rundir import Row
from nodeproof.report.sections import title

FILE = "table.txt"
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
    return on_terminal(entry.id), entry.label, on_terminal(entry.measured, 16), allowed, remark


def _wrapped_details(row: Row, most: int = COMPLETE) -> Iterator[str]:
    for name, text in details_of(row).items():
        yield from wrapped(f"{name}: {text}", most)


def last_lines(run: Digest, named: Collection[str] = ()) -> Iterator[str]:
    """Yield the deviating and the unproven claims with reasons, and as the last line the totals.

    A claim that deviates as reported is one line with its issue: it is the same in every run, and fails none.
    Unproven claims that the user `named` are listed even if this lab or profile cannot prove them.
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
        yield from wrapped(f"{rest} for other reasons: see {FILE}")
    yield ""


def summary(run: Digest) -> str:
    """Return a run in Markdown, for the page of a CI run; also of one that is not whole."""
    counts = {state: (number, label) for state, label, number in run.counts}
    return render_template(
        "summary.md",
        run=run,
        counts=counts,
        labels=LABELS,
        details=details_of,
        scenario_title=title,
        most=MAX_LISTED,
    )
