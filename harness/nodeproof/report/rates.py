"""A picture of what came at a rate: how many by when, against what was allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from nodeproof.checks import counting, moments
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment, Moment
from nodeproof.model.verdict import Verdict
from nodeproof.report.drawing import DOTS_PER_INCH, INK, OUTCOME, WIDTH_IN, save

Judged = tuple[Judgment, Verdict]
_ROW_IN, _MARGIN_IN = 3.2, 0.6
_ALLOWED, _FAINT = "#dfe7f1", "#7b8794"


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
    """Draw them as a PNG, 1600 pixels wide; nothing where no rate was judged."""
    drawn = curves(history, judged)
    if not drawn:
        return None
    height = len(drawn) * _ROW_IN + _MARGIN_IN
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DOTS_PER_INCH, facecolor="#ffffff", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axes, curve in zip(figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True):
        _draw(axes, curve)
    for text in figure.findobj(Text):
        # A dollar sign in a pattern begins no formula.
        text.set_parse_math(False)
    return save(canvas, path)


def _draw(axes: Axes, curve: Curve) -> None:
    """Between the slowest and the fastest that is allowed, from the first occurrence on."""
    last = len(curve.times) - 1
    end = max(curve.times[-1], last * curve.high_s)
    slowest, fastest = [1 + end / curve.high_s], [1 + end / curve.low_s]
    axes.fill_between([0, end], [1, *slowest], [1, *fastest], color=_ALLOWED, label="allowed")
    axes.step([*curve.times, end], [*range(1, last + 2), last + 1], where="post", color=_FAINT)
    axes.plot(curve.times, range(1, last + 2), "o", color=OUTCOME[curve.outcome], label="came")
    axes.set_title(f"{curve.claim}: {curve.said}", loc="left", size=11, color=INK)
    axes.set_xlabel("s after the first", color=INK)
    axes.set_ylabel("how many", color=INK)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.legend(loc="upper left", frameon=False)
