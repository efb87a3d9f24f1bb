"""A picture of what came at a rate: how many by when, against what was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof.checks import counting, moments
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment, Moment
from nodeproof.model.verdict import Verdict
from nodeproof.report import files, svg
from nodeproof.report.drawing import SIGNS
from nodeproof.report.svg import LINE

Judged = tuple[Judgment, Verdict]
_PLOT, _LEFT = 220, 10.0
"""How high a plot is (px), and where it begins (percent)."""


@dataclass(frozen=True)
class Curve:
    """The times (s after the first) of one judgment's occurrences, and how far apart each may be (s)."""

    claim: str
    outcome: str
    said: str
    times: tuple[float, ...]
    low_s: float
    high_s: float


def curves(history: History, judged: Sequence[Judged]) -> list[Curve]:
    """Of each rate that was judged and has two occurrences at least, once for all claims about it."""
    found: dict[str, Curve] = {}
    for judgment, verdict in judged:
        check, window = judgment.check, verdict.window
        if check.name != "spaced" or window is None or str(check.args) in found:
            continue
        times = _times(history, judgment)
        if len(times) > 1 and window.low_s > 0:
            shown = tuple(t - times[0] for t in times)
            told = (judgment.claim, verdict.outcome, verdict.reason, shown)
            found[str(check.args)] = Curve(*told, window.low_s, window.high_s)
    return list(found.values())


def _times(history: History, judgment: Judgment) -> list[float]:
    args = judgment.check.args
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return []
    event = Moment.from_json(args["event"])
    return [came.t for came in moments.each(history, event) if within.since_t <= came.t <= within.until_t]


def render(history: History, judged: Sequence[Judged], path: Path) -> Path | None:
    """Draw them as an SVG; nothing where no rate was judged."""
    drawn = curves(history, judged)
    return draw(drawn, path) if drawn else None


def draw(drawn: Sequence[Curve], path: Path) -> Path:
    """Draw curves one below the other."""
    parts: list[str] = []
    y = float(LINE)
    for curve in drawn:
        y = _draw(parts, curve, y) + LINE
    return files.write(path, svg.document("rates: what came by when, beside what may", y, parts).encode())


def _draw(parts: list[str], curve: Curve, y: float) -> float:
    """Between the slowest and the fastest that is allowed, from the first occurrence on."""
    for said, classes in ((f"{SIGNS[curve.outcome]} {curve.claim}", "group"), (curve.said, "soft")):
        for line in svg.lines_of(said, 3 * svg.LETTERS):
            y += LINE
            parts.append(svg.write(svg.LEFT, y, line, classes))
    y += LINE
    parts.append(svg.write(svg.LEFT, y, "how many: ▒ allowed, ● came", "soft"))
    y, last = y + 8, len(curve.times) - 1
    end = max(curve.times[-1], last * curve.high_s)
    most = max(1 + min(end / curve.low_s, 1.5 * (last + 1)), last + 1)
    for tick in svg.ticks(0, most, 5):
        height = y + _PLOT * (1 - tick / most)
        parts.append(svg.along(_LEFT, svg.RIGHT, height, "grid"))
        parts.append(svg.write(_LEFT - 0.5, height + 4, f"{tick:g}", "soft", "end"))
    for tick in svg.ticks(0, end):
        x = _LEFT + (svg.RIGHT - _LEFT) * tick / end
        parts.append(svg.upright(x, y, y + _PLOT, "grid"))
        parts.append(svg.write(x, y + _PLOT + LINE, f"{tick:g}", "soft", "middle" if x < 92 else "end"))
    parts.append(svg.stretched(_LEFT, svg.RIGHT, y, _PLOT, _inside(curve, end, most)))
    y += _PLOT + 2 * LINE
    parts.append(svg.write(_LEFT, y, "seconds after the first", "soft"))
    return y


def _inside(curve: Curve, end: float, most: float) -> str:
    """The allowed rates, what came by when, and each occurrence, in thousandths of the plot."""

    def at(t: float, number: float) -> str:
        return f"{1000 * t / end:.2f} {1000 * (1 - number / most):.2f}"

    # The fastest leaves the plot before its end where it is much faster.
    leaves = min(end, (most - 1) * curve.low_s)
    fastest = f"L{at(leaves, 1 + leaves / curve.low_s)}" + (f"L{at(end, most)}" if leaves < end else "")
    allowed = f"M{at(0, 1)}{fastest}L{at(end, 1 + end / curve.high_s)}Z"
    came = svg.thinned([*enumerate(curve.times, 1)], [t / end for t in curve.times])
    steps = "".join(f"L{at(t, number - 1)}L{at(t, number)}" for number, t in came)
    line = f"M{at(curve.times[0], 0)}{steps}L{at(end, len(curve.times))}"
    dots = "".join(f"M{at(t, number)}h0" for number, t in came)
    return (
        f'<path d="{allowed}" class="pod faint"/><path d="{line}" class="beat"/>'
        f'<path d="{dots}" class="dots {curve.outcome}"/>'
    )
