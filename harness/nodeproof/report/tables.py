"""One run as text: the table of claims, the end of the output, a scenario's verdicts, a Markdown summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from nodeproof.report.digest import (
    LABELS,
    Digest,
    Since,
    describe_kubelets,
    details_of,
    measured_of,
    totals,
    verdict_of,
    worst_by_claim,
)
from nodeproof.report.page import render_template
from nodeproof.report.plain import COMPLETE, aligned, duration, on_terminal, shortened, wrapped
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


def render(
    rows: Iterable[Row], duration_s: float | None, report: str, since: Mapping[str, Since] | None = None
) -> str:
    """Return a line per claim with its worst verdict, reasons below those that do not conform, and totals.

    Claims that deviate or should have been proven come first, then those that this lab cannot prove, then the
    rest. `duration_s` is None if the run has no end.
    """
    rows = list(rows)
    worst = dict(sorted(worst_by_claim(rows).items(), key=lambda entry: (_group(entry[1]), entry[0])))
    scenarios = {claim: {row["scenario"] for row in rows if row["claim"] == claim} for claim in worst}
    cells = [("claim", "verdict", "measured", "window", "")]
    head, *lines = aligned([*cells, *(_cells(row, len(scenarios[claim])) for claim, row in worst.items())])
    output = [head, "-" * len(head)]
    group = _group(next(iter(worst.values()))) if worst else 0
    for line, (claim, row) in zip(lines, worst.items(), strict=True):
        if _group(row) != group:
            group = _group(row)
            output.append("")
        output.append(line)
        if row["verdict"] != "conforms":
            output += [*wrapped(row["reason"]), *_wrapped_details(row)]
        if since and claim in since:
            output += wrapped(str(since[claim]))
    took = "without an end" if duration_s is None else duration(duration_s)
    last = f"{took}; report: {on_terminal(report, COMPLETE)}"
    skewed = dict.fromkeys(filter(None, map(describe_kubelets, rows)))
    kubelets = [line for text in skewed for line in wrapped(f"judged with kubelets {text}")]
    newer = sorted({row["upgraded_to"] for row in rows if "upgraded_to" in row})
    upgrades = [f"judged with an upgrade to {version}" for version in newer]
    return "\n".join([*output, "", *kubelets, *upgrades, totals(worst.values()), last])


def _group(row: Row) -> int:
    verdict = verdict_of(row)
    return 2 if verdict.outcome == "conforms" else 1 if verdict.is_skip or verdict.is_known else 0


def _cells(row: Row, scenarios: int) -> tuple[str, ...]:
    window, page, remark = row["window"], row["page"], f"x{scenarios}"
    if "kubelet_version" in row:
        remark += f"  kubelet {on_terminal(row['kubelet_version'], 16)}"
    allowed = f"[{window['low_s']:.2f}, {window['high_s']:.2f}] s" if window else ""
    if page["agreement"] == "differs":
        is_short = len(page["says"]) <= _SHORT_PAGE_TEXT
        remark += f"  page: {on_terminal(page['says']) if is_short else 'differs'}"
    measured = on_terminal(measured_of(row), 16)
    return on_terminal(row["claim"]), verdict_of(row).label, measured, allowed, remark


def _wrapped_details(row: Row, most: int = COMPLETE) -> Iterator[str]:
    for name, text in details_of(row).items():
        yield from wrapped(f"{name}: {text}", most)


def last_lines(
    rows: Sequence[Row], since: Mapping[str, Since] | None = None, named: Collection[str] = ()
) -> Iterator[str]:
    """Yield the deviating and the unproven claims with reasons, and as the last line the totals.

    A claim that deviates as reported is one line with its issue: it is the same in every run, and fails none.
    Unproven claims that the user `named` are listed even if this lab or profile cannot prove them.
    """
    worst = worst_by_claim(rows)
    deviating = sorted(claim for claim, row in worst.items() if verdict_of(row).is_failure)
    reported = sorted(claim for claim, row in worst.items() if verdict_of(row).reported)
    unproven = [row for row in worst.values() if row["verdict"] == "unproven"]
    still_open = [row for row in unproven if not verdict_of(row).is_skip or row["claim"] in named]
    for claim in deviating:
        yield f"deviates: {on_terminal(claim)}"
        scenarios = [row["scenario"] for row in rows if row["claim"] == claim and verdict_of(row).is_failure]
        describe = _describe if len(deviating) <= MAX_DETAILED else _describe_briefly
        yield from describe(worst[claim], (since or {}).get(claim), list(dict.fromkeys(scenarios)))
        yield ""
    for claim in reported:
        verdict = verdict_of(worst[claim])
        yield on_terminal(f"{verdict.label}: {claim} ({verdict.reported})")
    if reported:
        yield ""
    yield from _open(still_open)
    yield from _skipped([row for row in unproven if row not in still_open])
    yield totals(worst.values())


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
