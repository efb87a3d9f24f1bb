"""Draws timelines and rates as SVG: scalable, light and dark, without scripts.

Positions along a time axis are percentages of the picture's width, and text has a fixed size, so the picture
adapts to any window. Labels that do not fit into the narrowest one are left out; their tooltips remain. The
colours are Okabe's and Ito's, which people with any colour vision can distinguish
(https://jfly.uni-koeln.de/color/). What is drawn where is in the templates.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import disk
from nodeproof.report.page import render_template
from nodeproof.report.plain import on_terminal

TICK = "|"
"""The sign of a mark that is drawn as a line."""
LINE_LETTERS = 46
"""Length of a line of text in the narrowest window."""
_LEFT, _RIGHT = 2.0, 98.0
"""Ends of a time axis (percent of the width)."""
_LETTER, _NARROWEST = 7.2, 400
"""Width of a letter, and width of the narrowest window (px)."""
_MOST_LANES = 80
_SAME_S = 1e-6
_KEY = (
    ("ready", "Ready"),
    ("not-ready", "not Ready"),
    ("unknown", "Unknown"),
    ("taint", "taint"),
    ("fault", "fault"),
    ("terminating", "Terminating"),
    ("gap", "no observation"),
    (TICK, "Lease renewed"),
    ("◆", "status changed"),
    ("●", "observed"),
)


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane (s); `tip` replaces the label in its tooltip."""

    start: float
    end: float
    colour: str
    """A class of `picture.css`."""
    label: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Mark:
    """A sign in a lane at a time (s); `tip` replaces the label in its tooltip."""

    t: float
    sign: str
    label: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Lane:
    """A row of a timeline; `group` is the heading that it shares with its neighbours."""

    group: str
    name: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Bracket:
    """A judgment: its anchor, window and observed time (s)."""

    label: str
    outcome: str
    reason: str = ""
    anchor: float | None = None
    low: float | None = None
    high: float | None = None
    observed: float | None = None
    is_negative: bool = False


@dataclass(frozen=True)
class Picture:
    """The content of a timeline, in seconds of the recording's clock; `zero` is 0 on the axis."""

    title: str
    zero_name: str
    zero: float
    start: float
    end: float
    lanes: tuple[Lane, ...]
    brackets: tuple[Bracket, ...]
    faults: tuple[Bar, ...] = ()

    @property
    def shown_lanes(self) -> Sequence[Lane]:
        """The lanes, as far as the picture has room."""
        rest = len(self.lanes) - _MOST_LANES
        return (*self.lanes[:_MOST_LANES], Lane("", f"{rest} more lanes")) if rest > 0 else self.lanes

    @property
    def observed(self) -> Sequence[float]:
        """The observed times that are on the axis."""
        times = {bracket.observed for bracket in self.brackets if bracket.observed is not None}
        return [t for t in sorted(times) if self.shows(t)]

    def share(self, t: float) -> float:
        """Return the position of a time on the axis, limited to 0 and 1."""
        return min(max((t - self.start) / max(self.end - self.start, 1e-9), 0.0), 1.0)

    def x(self, t: float) -> float:
        """Return the position of a time in percent of the width."""
        return _LEFT + (_RIGHT - _LEFT) * self.share(t)

    def span(self, start: float, end: float) -> str:
        """Return a span of time in words."""
        return f"{start - self.zero:.2f} to {end - self.zero:.2f} s"

    def beats(self, lane: Lane) -> Sequence[int]:
        """Return the positions of ticks in thousandths of the axis, which are about a pixel."""
        return list(dict.fromkeys(round(1000 * self.share(m.t)) for m in lane.marks if m.sign == TICK))

    def is_before(self, t: float) -> bool:
        """Return whether a time is before the axis begins."""
        return t < self.start - _SAME_S

    def is_after(self, t: float) -> bool:
        """Return whether a time is after the axis ends."""
        return t > self.end + _SAME_S

    def shows(self, t: float) -> bool:
        """Return whether a time is on the axis."""
        return not self.is_before(t) and not self.is_after(t)


@dataclass(frozen=True)
class Curve:
    """The times of a judgment's occurrences (s after the first), and their allowed distance (s).

    Paths are in thousandths of the plot.
    """

    claim: str
    outcome: str
    reason: str
    times: tuple[float, ...]
    low_s: float
    high_s: float

    @property
    def end(self) -> float:
        """The end of the time axis (s)."""
        return max(self.times[-1], (len(self.times) - 1) * self.high_s)

    @property
    def most(self) -> float:
        """The end of the axis of occurrences."""
        return max(1 + min(self.end / self.low_s, 1.5 * len(self.times)), len(self.times))

    @property
    def band(self) -> str:
        """The path of what is between the slowest and the fastest allowed rate."""
        # A much higher rate than the slowest leaves the plot at its top.
        leaves_t = min(self.end, (self.most - 1) * self.low_s)
        fastest = f"L{self._point(leaves_t, 1 + leaves_t / self.low_s)}"
        corner = f"L{self._point(self.end, self.most)}" if leaves_t < self.end else ""
        slowest = self._point(self.end, 1 + self.end / self.high_s)
        return f"M{self._point(0, 1)}{fastest}{corner}L{slowest}Z"

    @property
    def steps(self) -> str:
        """The path of the number of occurrences over time."""
        numbered = enumerate(self.times, 1)
        steps = "".join(f"L{self._point(t, number - 1)}L{self._point(t, number)}" for number, t in numbered)
        return f"M{self._point(self.times[0], 0)}{steps}L{self._point(self.end, len(self.times))}"

    @property
    def dots(self) -> str:
        """A path with a point for each occurrence."""
        return "".join(f"M{self._point(t, number)}h0" for number, t in enumerate(self.times, 1))

    def _point(self, t: float, number: float) -> str:
        return f"{1000 * t / self.end:.2f} {1000 * (1 - number / self.most):.2f}"


def draw_timeline(picture: Picture, path: Path) -> Path:
    """Write a timeline as an SVG."""
    return disk.replace(path, _render("timeline.svg", picture=picture, lanes=picture.shown_lanes))


def draw_rates(curves: Sequence[Curve], path: Path) -> Path:
    """Write plots of rates, one below the other, as an SVG."""
    return disk.replace(path, _render("rates.svg", curves=curves))


def seconds_of(label: str, next_label: str, span_s: float) -> float:
    """Return the distance (s) that two labels need on an axis of `span_s`.

    The second may be on the left of its mark.
    """
    return (len(label) + len(next_label) + 4) * _LETTER / _NARROWEST * span_s


def ticks_between(low: float, high: float, most: int = 6) -> Iterator[float]:
    """Yield at most `most` round numbers between the two."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    yield from (number * step for number in range(first, math.floor(high / step + 1e-9) + 1))


def fits(label: str, share: float) -> bool:
    """Return whether a share of the axis has room for a label in the narrowest window."""
    return (len(label) + 1) * _LETTER <= share * _NARROWEST * (_RIGHT - _LEFT) / 100


def _wrapped(text: str, letters: int, most: int) -> Sequence[str]:
    return textwrap.wrap(on_terminal(text, most), letters, break_on_hyphens=False)


def _shortened(text: str) -> str:
    """Cut the middle out of a long name: names differ at both ends."""
    if len(text) <= LINE_LETTERS:
        return text
    tail = (LINE_LETTERS - 1) // 2
    return f"{text[: LINE_LETTERS - 1 - tail]}…{text[-tail:]}"


_CONTEXT: Mapping[str, Any] = {
    "KEY": _KEY,
    "SIGNS": {"conforms": "✓", "deviates": "✗", "unproven": "?"},
    "TICK": TICK,
    "LINE": 17,
    "LINE_LETTERS": LINE_LETTERS,
    "LEFT": _LEFT,
    "RIGHT": _RIGHT,
    "ticks_between": ticks_between,
    "fits": fits,
    "wrapped": _wrapped,
    "shortened": _shortened,
}


def _render(template: str, **content: Any) -> bytes:
    return f"{render_template(template, **_CONTEXT, **content)}\n".encode()
