"""Draws timelines and rates as SVG: scalable, light and dark, without scripts.

Positions along a time axis are percentages of the picture's width, and text has a fixed size, so the picture
adapts to any window. Labels that do not fit into the narrowest one are left out; their tooltips remain. The
colours are Okabe's and Ito's, which people with any colour vision can distinguish
(https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from nodeproof import disk
from nodeproof.report.plain import on_terminal

TICK = "|"
"""The sign of a mark that is drawn as a line."""
LINE_LETTERS, TITLE_LETTERS = 46, 36
"""Length of a line of text, and of the title, in the narrowest window."""
SIGNS = {"conforms": "✓", "deviates": "✗", "unproven": "?"}
_LEFT, _RIGHT, _PLOT_LEFT = 2.0, 98.0, 10.0
"""Ends of a time axis (percent of the width); a plot of a rate begins right of its labels."""
_LINE, _LETTER, _NARROWEST = 17, 7.2, 400
"""Height of a line, width of a letter, and width of the narrowest window (px)."""
_BAR, _WINDOW, _SPACE, _PLOT = 16, 14, 6, 220
"""Heights of a bar, of a judgment's window, of the space below them, and of a plot of a rate (px)."""
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
# A page may include the picture: every rule of the style is limited to it.
_STYLE = (Path(__file__).parent / "templates" / "picture.css").read_text().rstrip()
_PATTERNS = (
    "<defs>"
    '<pattern id="np-gap" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="7" height="7" class="paper"/><rect width="3" height="7" class="inked"/></pattern>'
    '<pattern id="np-not" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect width="1.5" height="6" class="inked"/></pattern></defs>'
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

    def share(self, t: float) -> float:
        """Return the position of a time on the axis, limited to 0 and 1."""
        return min(max((t - self.start) / max(self.end - self.start, 1e-9), 0.0), 1.0)

    def x(self, t: float) -> float:
        """Return the position of a time in percent of the width."""
        return _LEFT + (_RIGHT - _LEFT) * self.share(t)

    def shows(self, t: float) -> bool:
        """Return whether a time is on the axis."""
        return self.start - _SAME_S <= t <= self.end + _SAME_S


@dataclass(frozen=True)
class Curve:
    """The times of a judgment's occurrences (s after the first), and their allowed distance (s)."""

    claim: str
    outcome: str
    reason: str
    times: tuple[float, ...]
    low_s: float
    high_s: float


def draw_timeline(picture: Picture, path: Path) -> Path:
    """Write a timeline as an SVG."""
    drawing = _Drawing()
    _draw_head(drawing, picture)
    top = drawing.y
    _draw_lanes(drawing, picture)
    _draw_axis(drawing, picture)
    _draw_brackets(drawing, picture)
    drawing.elements[:0] = _background(picture, top, drawing.y)
    return drawing.save(path, picture.title)


def draw_rates(curves: Sequence[Curve], path: Path) -> Path:
    """Write plots of rates, one below the other, as an SVG."""
    drawing = _Drawing()
    for curve in curves:
        _draw_curve(drawing, curve)
    return drawing.save(path, "rates: occurrences beside what is allowed")


def seconds_of(label: str, next_label: str, span_s: float) -> float:
    """Return the distance (s) that two labels need on an axis of `span_s`.

    The second may be on the left of its mark.
    """
    return (len(label) + len(next_label) + 4) * _LETTER / _NARROWEST * span_s


class _Drawing:
    """The elements of a picture, from top to bottom; `y` is the present height (px)."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = 0.0

    def add(self, *elements: str) -> None:
        self.elements += elements

    def write_lines(self, text: str, classes: str, most: int = 3 * LINE_LETTERS) -> None:
        """Write text of any length as short lines."""
        letters, height = (TITLE_LETTERS, _LINE * 1.3) if classes == "head" else (LINE_LETTERS, _LINE)
        for line in textwrap.wrap(on_terminal(text, most), letters, break_on_hyphens=False):
            self.y += height
            self.add(_text(_LEFT, self.y, line, classes))

    def save(self, path: Path, title: str) -> Path:
        body = "\n".join(self.elements)
        document = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{self.y + _LINE:.0f}"'
            f' class="nodeproof">\n{_tooltip(title)}\n<style>{_STYLE}</style>\n{_PATTERNS}\n'
            f'<rect width="100%" height="100%" class="paper"/>\n{body}\n</svg>\n'
        )
        return disk.replace(path, document.encode())


def _draw_head(drawing: _Drawing, picture: Picture) -> None:
    drawing.write_lines(picture.title, "head", most=140)
    drawing.y += _LINE * 1.3
    for index, (name, meaning) in enumerate(_KEY):
        x, y = _LEFT + 32.5 * (index % 3), drawing.y + _LINE * (index // 3)
        if len(name) == 1:
            drawing.add(_text(x, y, f"{name}  {meaning}", "soft"))
        else:
            square = f'<rect width="12" height="12" class="{name} edged"/>'
            text = f'<text x="17" y="11" class="soft">{meaning}</text>'
            drawing.add(_place(x, y - 11, square + text))
    drawing.y += _LINE * math.ceil(len(_KEY) / 3)


def _background(picture: Picture, top: float, bottom: float) -> Iterator[str]:
    """Yield the faults, the grid, and a line for each observed time."""
    for fault in picture.faults:
        yield _bar(picture.x(fault.start), picture.x(fault.end), top, bottom - top, "fault shade")
    for tick in _ticks(picture.start - picture.zero, picture.end - picture.zero):
        yield _vertical(picture.x(tick + picture.zero), top, bottom, "grid")
    observed = {bracket.observed for bracket in picture.brackets if bracket.observed is not None}
    for t in filter(picture.shows, sorted(observed)):
        yield _vertical(picture.x(t), top, bottom, "dotted")


def _draw_lanes(drawing: _Drawing, picture: Picture) -> None:
    shown = picture.lanes[:_MOST_LANES]
    if len(shown) < len(picture.lanes):
        shown = (*shown, Lane("", f"{len(picture.lanes) - len(shown)} more lanes"))
    for group, lanes in groupby(shown, key=lambda lane: lane.group):
        drawing.add(_horizontal(0, 100, drawing.y - 2, "grid"))
        if group:
            drawing.y += _LINE
            drawing.add(_text(_LEFT, drawing.y, _shortened(group), "group"))
        for lane in lanes:
            _draw_lane(drawing, picture, lane)


def _draw_lane(drawing: _Drawing, picture: Picture, lane: Lane) -> None:
    if lane.name:
        drawing.y += _LINE
        drawing.add(_text(_LEFT, drawing.y, _shortened(lane.name), "soft"))
    if lane.bars or lane.marks:
        drawing.y += 4
        for bar in lane.bars:
            _draw_bar(drawing, picture, bar, is_labelled=bar.label != lane.name)
        # One path: there may be thousands. A thousandth of the axis is about a pixel.
        ticks = {round(1000 * picture.share(mark.t)): None for mark in lane.marks if mark.sign == TICK}
        if ticks:
            path = f'<path d="{"".join(f"M{x} 0V1000" for x in ticks)}" class="beat"/>'
            drawing.add(_scaled(_LEFT, drawing.y + 1, _BAR - 2, path))
        for mark in lane.marks:
            if mark.sign != TICK:
                _draw_mark(drawing, picture, mark, is_at_bar=bool(lane.bars))
        drawing.y += _BAR
    drawing.y += _SPACE


def _draw_bar(drawing: _Drawing, picture: Picture, bar: Bar, is_labelled: bool) -> None:
    left, right = picture.x(bar.start), picture.x(bar.end)
    tip = f"{bar.tip or bar.label}, {bar.start - picture.zero:.2f} to {bar.end - picture.zero:.2f} s"
    drawing.add(_bar(left, right, drawing.y, _BAR, f"{bar.colour} edged", tip))
    share = picture.share(bar.end) - picture.share(bar.start)
    if is_labelled and bar.label and bar.colour != "gap" and _fits(bar.label, share):
        drawing.add(_text((left + right) / 2, drawing.y + 12, bar.label, f"on-{bar.colour}", "middle"))


def _draw_mark(drawing: _Drawing, picture: Picture, mark: Mark, is_at_bar: bool) -> None:
    """Draw a sign with its label on the side that has room; at the end of a bar, beside the bar."""
    share, name = picture.share(mark.t), mark.tip or mark.label
    tip = f"{name}, at {mark.t - picture.zero:.2f} s" if name else ""
    fits_right = _fits(f"  {mark.label}", 1 - share)
    is_beside = is_at_bar and _fits(mark.sign, 1 - share)
    parts = [_offset_text(3 if is_beside else 0, mark.sign, "start" if is_beside else "middle", tip)]
    if mark.label and fits_right:
        parts.append(_offset_text(16 if is_beside else 9, mark.label, "start"))
    elif mark.label and not is_at_bar and _fits(f"  {mark.label}", share):
        parts.append(_offset_text(-9, mark.label, "end"))
    drawing.add(_place(picture.x(mark.t), drawing.y, "".join(parts)))


def _draw_axis(drawing: _Drawing, picture: Picture) -> None:
    drawing.y += _LINE
    for tick in _ticks(picture.start - picture.zero, picture.end - picture.zero):
        x = picture.x(tick + picture.zero)
        anchor = "start" if x < 8 else "end" if x > 92 else "middle"
        drawing.add(_text(x, drawing.y, f"{tick:g}", "soft", anchor))
    drawing.y += _LINE
    drawing.add(_text(_LEFT, drawing.y, f"seconds from {picture.zero_name}", "soft"))
    drawing.y += _LINE * 1.5


def _draw_brackets(drawing: _Drawing, picture: Picture) -> None:
    if picture.brackets:
        drawing.add(_horizontal(0, 100, drawing.y - _LINE * 1.1, "rule"))
        drawing.add(_text(_LEFT, drawing.y, "judgments", "group"))
        drawing.y += _SPACE
    for bracket in picture.brackets:
        drawing.write_lines(f"{SIGNS[bracket.outcome]} {bracket.label}", "group")
        drawing.write_lines(bracket.reason, "soft")
        if bracket.anchor is not None and bracket.low is not None and bracket.high is not None:
            _draw_window(drawing, picture, bracket, bracket.anchor, bracket.low, bracket.high)
        drawing.y += 2 * _SPACE


def _draw_window(
    drawing: _Drawing, picture: Picture, bracket: Bracket, anchor: float, low: float, high: float
) -> None:
    interval = f"{low - picture.zero:.2f} to {high - picture.zero:.2f} s"
    ends = ["beginning"] * (low < picture.start - _SAME_S) + ["end"] * (high > picture.end + _SAME_S)
    is_outside = low > picture.end or high < picture.start
    if ends:
        verb = "lies" if is_outside else "goes on"
        drawing.write_lines(
            f"the window, {interval}, {verb} beyond the picture's {' and '.join(ends)}", "soft"
        )
    y = drawing.y + _SPACE
    middle = y + _WINDOW / 2
    anchor_x, left, right = picture.x(anchor), picture.x(low), picture.x(high)
    if picture.shows(anchor):
        drawing.add(_text(anchor_x, middle + 4, "◆", "soft", "middle"))
    drawing.add(_horizontal(min(anchor_x, left), left, middle, "dotted"))
    if not is_outside:
        drawing.add(_bar(left, right, y, _WINDOW, f"{bracket.outcome} faint", f"window, {interval}"))
        if bracket.is_negative:
            drawing.add(_bar(left, right, y, _WINDOW, "not"))
    for edge in filter(picture.shows, (low, high)):
        drawing.add(_vertical(picture.x(edge), y - 2, y + _WINDOW + 2, "edge"))
    if min(low, high) < picture.start - _SAME_S:
        drawing.add(_arrow(_LEFT, y, -1))
    if max(low, high) > picture.end + _SAME_S:
        drawing.add(_arrow(_RIGHT, y, 1))
    if bracket.observed is not None and picture.shows(bracket.observed):
        x = picture.x(bracket.observed)
        drawing.add(f'<circle cx="{x:.3f}%" cy="{middle:.1f}" r="6" class="dot {bracket.outcome}"/>')
    drawing.y += _WINDOW


def _draw_curve(drawing: _Drawing, curve: Curve) -> None:
    """Draw the occurrences between the slowest and the fastest allowed rate."""
    drawing.y += _LINE
    drawing.write_lines(f"{SIGNS[curve.outcome]} {curve.claim}", "group")
    drawing.write_lines(curve.reason, "soft")
    drawing.y += _LINE
    drawing.add(_text(_LEFT, drawing.y, "count: ▒ allowed, ● occurred", "soft"))
    top, count = drawing.y + 8, len(curve.times)
    end = max(curve.times[-1], (count - 1) * curve.high_s)
    most = max(1 + min(end / curve.low_s, 1.5 * count), count)
    for tick in _ticks(0, most, 5):
        y = top + _PLOT * (1 - tick / most)
        drawing.add(_horizontal(_PLOT_LEFT, _RIGHT, y, "grid"))
        drawing.add(_text(_PLOT_LEFT - 0.5, y + 4, f"{tick:g}", "soft", "end"))
    for tick in _ticks(0, end):
        x = _PLOT_LEFT + (_RIGHT - _PLOT_LEFT) * tick / end
        drawing.add(_vertical(x, top, top + _PLOT, "grid"))
        drawing.add(_text(x, top + _PLOT + _LINE, f"{tick:g}", "soft", "middle" if x < 92 else "end"))
    drawing.add(_scaled(_PLOT_LEFT, top, _PLOT, _plot(curve, end, most)))
    drawing.y = top + _PLOT + 2 * _LINE
    drawing.add(_text(_PLOT_LEFT, drawing.y, "seconds after the first", "soft"))


def _plot(curve: Curve, end: float, most: float) -> str:
    """Return the allowed band, the number of occurrences over time, and a dot for each occurrence."""

    def point(t: float, number: float) -> str:
        return f"{1000 * t / end:.2f} {1000 * (1 - number / most):.2f}"

    # A much higher rate than the slowest leaves the plot at its top.
    leaves_t = min(end, (most - 1) * curve.low_s)
    fastest = f"L{point(leaves_t, 1 + leaves_t / curve.low_s)}"
    corner = f"L{point(end, most)}" if leaves_t < end else ""
    allowed = f"M{point(0, 1)}{fastest}{corner}L{point(end, 1 + end / curve.high_s)}Z"
    numbered = [*enumerate(curve.times, 1)]
    steps = "".join(f"L{point(t, number - 1)}L{point(t, number)}" for number, t in numbered)
    line = f"M{point(curve.times[0], 0)}{steps}L{point(end, len(numbered))}"
    dots = "".join(f"M{point(t, number)}h0" for number, t in numbered)
    return (
        f'<path d="{allowed}" class="pod faint"/><path d="{line}" class="beat"/>'
        f'<path d="{dots}" class="dots {curve.outcome}"/>'
    )


def _ticks(low: float, high: float, most: int = 6) -> Iterator[float]:
    """Yield at most `most` round numbers between the two."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    yield from (number * step for number in range(first, math.floor(high / step + 1e-9) + 1))


def _fits(label: str, share: float) -> bool:
    """Return whether a share of the axis has room for a label in the narrowest window."""
    return (len(label) + 1) * _LETTER <= share * _NARROWEST * (_RIGHT - _LEFT) / 100


def _shortened(text: str) -> str:
    """Cut the middle out of a long name: names differ at both ends."""
    if len(text) <= LINE_LETTERS:
        return text
    tail = (LINE_LETTERS - 1) // 2
    return f"{text[: LINE_LETTERS - 1 - tail]}…{text[-tail:]}"


# Elements. `x`, `left` and `right` are percentages of the width, `y` and heights are pixels.


def _escaped(text: str) -> str:
    """Return foreign text as XML: one line, without control characters."""
    return escape(on_terminal(text), {'"': "&quot;"})


def _tooltip(text: str) -> str:
    return f"<title>{_escaped(text)}</title>" if text else ""


def _text(x: float, y: float, text: str, classes: str, anchor: str = "start") -> str:
    return f'<text x="{x:.2f}%" y="{y:.1f}" class="{classes}" text-anchor="{anchor}">{_escaped(text)}</text>'


def _offset_text(offset: float, text: str, anchor: str, tip: str = "") -> str:
    """Return text at an offset (px), in the middle of a bar's height."""
    return f'<text x="{offset:g}" y="12" text-anchor="{anchor}">{_escaped(text)}{_tooltip(tip)}</text>'


def _place(x: float, y: float, inside: str) -> str:
    """Move elements that have offsets in pixels."""
    return f'<svg x="{x:.3f}%" y="{y:.1f}" overflow="visible">{inside}</svg>'


def _scaled(left: float, y: float, height: float, inside: str) -> str:
    """Scale elements in thousandths to the axis; the width of lines stays."""
    return (
        f'<svg x="{left:.3f}%" y="{y:.1f}" width="{_RIGHT - left:.3f}%" height="{height:.1f}"'
        f' viewBox="0 0 1000 1000" preserveAspectRatio="none" overflow="visible">{inside}</svg>'
    )


def _bar(left: float, right: float, y: float, height: float, classes: str, tip: str = "") -> str:
    """Return a rectangle that is visible even if it is short."""
    width = max(right - left, 0.1)
    place = f'x="{left:.3f}%" y="{y:.1f}" width="{width:.3f}%" height="{height:.1f}"'
    return f'<rect {place} class="{classes}">{_tooltip(tip)}</rect>'


def _vertical(x: float, top: float, bottom: float, classes: str) -> str:
    return f'<line x1="{x:.3f}%" x2="{x:.3f}%" y1="{top:.1f}" y2="{bottom:.1f}" class="{classes}"/>'


def _horizontal(left: float, right: float, y: float, classes: str) -> str:
    return f'<line x1="{left:.3f}%" x2="{right:.3f}%" y1="{y:.1f}" y2="{y:.1f}" class="{classes}"/>'


def _arrow(x: float, y: float, direction: int) -> str:
    """Return the head of an arrow to the right (1) or to the left (-1)."""
    half = _WINDOW / 2
    base = -direction * (half + 2)
    path = f"M{base:.1f} 1L{-direction * 2} {half:.1f}L{base:.1f} {_WINDOW - 1:.1f}"
    return _place(x, y, f'<path d="{path}" class="beat"/>')
