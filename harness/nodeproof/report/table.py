"""The table of all claims of a run: plain text, at most 110 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodeproof.model.verdict import Measured
from nodeproof.report.outcome import verdict_of, worst_by_claim
from nodeproof.report.plain import on_terminal
from nodeproof.report.rundir import Row
from nodeproof.report.since import Since

COLUMNS = 110
FILE = "table.txt"
"""The table's name in a run's folder."""
_HEAD = ("claim", "verdict", "measured", "window", "page", "")
_GAP = "  "
_MOST = 4000
"""Characters of a text: who reads the table has no other place for the whole reason."""


def render(
    rows: Iterable[Row], duration_s: float | None, report: str, since: Mapping[str, Since] | None = None
) -> str:
    """One line per claim with its worst verdict and the reasons of what does not conform, then totals; of
    each claim that deviates, `since` when. The duration (s) is None where the run has no end.

    What does not conform comes first, then the rest, both by area; what this lab can't prove is between them.
    """
    rows = list(rows)
    worst = dict(sorted(worst_by_claim(rows).items(), key=lambda entry: (_group(entry[1]), entry[0])))
    scenarios = {claim: {row["scenario"] for row in rows if row["claim"] == claim} for claim in worst}
    cells = [_HEAD, *(_cells(row, len(scenarios[claim])) for claim, row in worst.items())]
    head, *lines = _aligned(cells)
    out = [head, "-" * len(head)]
    group = _group(next(iter(worst.values()))) if worst else 0
    for line, (claim, row) in zip(lines, worst.items(), strict=True):
        if _group(row) != group:
            group = _group(row)
            out.append("")
        out += [line, *_reason(row)]
        if since and claim in since:
            out += wrapped(str(since[claim]))
    took = "without an end" if duration_s is None else duration(duration_s)
    return "\n".join([*out, "", totals(worst.values()), f"{took}; report: {on_terminal(report, _MOST)}"])


def _group(row: Row) -> int:
    """What deviates or should have been proven, what can't be proven here, what conforms."""
    verdict = verdict_of(row)
    return 2 if verdict.outcome == "conforms" else 1 if verdict.is_skip else 0


def totals(worst: Iterable[Row]) -> str:
    """Count claims by their worst verdict: `conforms 12  deviates 0  unproven 3 (scaled: 2, gap: 1)`."""
    worst = list(worst)
    outcomes = Counter(row["verdict"] for row in worst)
    codes = Counter(row["code"] for row in worst if row["verdict"] == "unproven")
    totals = _GAP.join(f"{name} {outcomes[name]}" for name in ("conforms", "deviates", "unproven"))
    return f"{totals} {counted(codes)}".rstrip()


def counted(codes: Counter[str]) -> str:
    """Say how often each code came, the most frequent one first: `(scaled: 2, gap: 1)`; nothing for none."""
    detail = ", ".join(f"{code}: {count}" for code, count in codes.most_common())
    return f"({detail})" if detail else ""


def _cells(row: Row, scenarios: int) -> tuple[str, ...]:
    window, measured, page = row["window"], row["measured"], row["page"]
    value = str(Measured(measured["value"], measured["unit"])) if measured else ""
    allowed = f"[{window['low_s']:.2f}, {window['high_s']:.2f}] s" if window else ""
    differs = on_terminal(page["says"]) if len(page["says"]) <= _SHORT_SAYING else "differs"
    mark = f"page: {differs}" if page["agreement"] == "differs" else ""
    label, value = verdict_of(row).label, on_terminal(value, 16)
    return on_terminal(row["claim"]), label, value, allowed, mark, f"x{scenarios}"


_SHORT_SAYING = 12


def _aligned(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Pad every column to its widest cell; empty ones are left out, a long claim gets a line of its own."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    filled = [any(column[1:]) or not index for index, column in enumerate(zip(*cells, strict=True))]
    others = [index for index in range(1, len(widths)) if filled[index]]
    room = COLUMNS - sum(widths[index] + len(_GAP) for index in others)
    return [_line(line, min(widths[0], room), widths, others) for line in cells]


def _line(cells: Sequence[str], first: int, widths: Sequence[int], others: Sequence[int]) -> str:
    rest = "".join(_GAP + cells[index].ljust(widths[index]) for index in others).rstrip()
    if len(cells[0]) <= first:
        return f"{cells[0]:{first}}{rest}".rstrip()
    return f"{cells[0]}\n{'':{first}}{rest}"


def _reason(row: Row) -> list[str]:
    if row["verdict"] == "conforms":
        return []
    said = [row["reason"]]
    if row["window"] and row["verdict"] == "deviates":
        said.append(f"allowed: {row['window']['arithmetic']}")
    if row["last_state"]:
        said.append(f"last seen: {row['last_state']}")
    return [line for text in said for line in wrapped(text)]


def wrapped(text: str, most: int = _MOST) -> list[str]:
    """Wrap a text to the table's width, indented; control characters are replaced, and it is cut at `most`
    characters.
    """
    return textwrap.wrap(
        on_terminal(text, most),
        COLUMNS,
        initial_indent="    ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )


def duration(seconds: float) -> str:
    """A time in words: `1 h 5 min`, `2 min 3 s`, `9 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
