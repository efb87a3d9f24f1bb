"""The end of a run's output: what deviates and why, what stayed open and why, and the counts.

The table of all claims (`nodeproof.report.table`) has the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from nodeproof.model.verdict import Measured
from nodeproof.report import table
from nodeproof.report.outcome import verdict_of, worst_by_claim
from nodeproof.report.plain import on_terminal, shortened
from nodeproof.report.rundir import Row
from nodeproof.report.since import Since

DETAILED = 10
"""If more claims deviate, each is kept to a few lines."""
_REASON, _DETAIL, _SHORT, _VALUE = 300, 200, 95, 40
"""Characters of a reason (three lines), of another detail (two), of what is kept short (one), of a value."""
_SKIP_REASONS = 3


def render(
    rows: Sequence[Row], since: Mapping[str, Since] | None = None, by_name: Collection[str] = ()
) -> Iterator[str]:
    """Give the lines; the last one counts the claims by their worst verdict.

    `since` says of claims that deviate since when. Claims in `by_name` were asked for by the user: they are
    listed if they are unproven, even if this lab or profile cannot prove them.
    """
    worst = worst_by_claim(rows)
    deviating = sorted(claim for claim, row in worst.items() if row["verdict"] == "deviates")
    unproven = [row for row in worst.values() if row["verdict"] == "unproven"]
    still_open = [row for row in unproven if not verdict_of(row).is_skip or row["claim"] in by_name]
    skipped = [row for row in unproven if row not in still_open]
    details = _in_full if len(deviating) <= DETAILED else _in_short
    for claim in deviating:
        yield f"deviates: {on_terminal(claim)}"
        where = [row for row in rows if row["claim"] == claim and row["verdict"] == "deviates"]
        yield from details(worst[claim], (since or {}).get(claim), list(dict.fromkeys(map(_scenario, where))))
        yield ""
    yield from _open(still_open)
    yield from _skipped(skipped)
    yield table.totals(worst.values())


def _in_full(row: Row, since: Since | None, scenarios: Sequence[str]) -> Iterator[str]:
    yield from table.wrapped(row["reason"], _REASON)
    if row["window"]:
        yield from table.wrapped(f"window: {row['window']['arithmetic']}", _DETAIL)
    if row["measured"]:
        yield from table.wrapped(f"observed: {_observed(row)}", _SHORT)
    if row["last_state"]:
        yield from table.wrapped(f"last seen: {row['last_state']}", _DETAIL)
    if since:
        yield from table.wrapped(str(since), _DETAIL)
    for scenario in scenarios:
        yield from table.wrapped(f"scenario: {scenario}")


def _in_short(row: Row, since: Since | None, scenarios: Sequence[str]) -> Iterator[str]:
    window, parts = row["window"], [shortened(row["reason"], _DETAIL)]
    if row["measured"]:
        parts.append(f"observed {shortened(_observed(row), _VALUE)}")
    if window:
        parts.append(f"window [{window['low_s']:.2f}, {window['high_s']:.2f}] s")
    if since:
        parts.append(str(since))
    yield from table.wrapped("; ".join(parts))
    yield from table.wrapped(f"in {', '.join(scenarios)}")


def _open(rows: Sequence[Row]) -> Iterator[str]:
    """Group by scenario and code: what ends a scenario leaves all its claims open for one reason."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        reasons = groups.setdefault((verdict_of(row).label, _scenario(row)), {})
        reasons.setdefault(row["reason"], []).append(row["claim"])
    for (label, scenario), reasons in sorted(groups.items()):
        yield f"{label}: {on_terminal(scenario)}"
        for reason, claims in reasons.items():
            yield from table.wrapped(f"{', '.join(sorted(claims))}: {shortened(reason, _REASON)}")
        yield ""


def _skipped(rows: Sequence[Row]) -> Iterator[str]:
    """Say why this lab and profile cannot prove claims, by the most frequent reasons."""
    if not rows:
        return
    reasons = Counter(f"{row['code']}: {row['reason']}" for row in rows)
    yield f"this lab and profile cannot prove {len(rows)} of the claims:"
    for reason, count in reasons.most_common(_SKIP_REASONS):
        yield from table.wrapped(f"{count} {shortened(reason, _SHORT)}")
    if len(reasons) > _SKIP_REASONS:
        rest = sum(count for _reason, count in reasons.most_common()[_SKIP_REASONS:])
        yield from table.wrapped(f"{rest} for other reasons: see {table.FILE}")
    yield ""


def _scenario(row: Row) -> str:
    return str(row["scenario"])


def _observed(row: Row) -> str:
    return str(Measured(row["measured"]["value"], row["measured"]["unit"]))
