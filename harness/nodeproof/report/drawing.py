"""How a timeline is drawn: what a picture consists of, and the SVG made of it.

This knows nothing of histories and judgments; `timeline` decides what a picture shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from nodeproof.report import files, svg
from nodeproof.report.svg import LINE

READY = {"True": "ready", "False": "not-ready", "Unknown": "unknown", "": "no-condition"}
TAINT, POD, LEAVING, FAULT, GAP = "taint", "pod", "leaving", "fault", "gap"
ATTACHING, ATTACHED, DETACHING = "attaching", "attached", "detaching"
SIGNS = {"conforms": "✓", "deviates": "✗", "unproven": "?"}
"""Of each outcome, so that none is told by its colour alone."""
TICK = "|"
MOST_LANES = 80
_BAR, _WINDOW, _GAP_PX = 16, 14, 6
_TITLE_LETTERS, _NAME_LETTERS = 140, 46
_SAME_S = 1e-6
_KEY = (
    ("ready", "Ready"),
    ("not-ready", "not Ready"),
    ("unknown", "Unknown"),
    ("taint", "taint"),
    ("fault", "fault"),
    ("gap", "nothing was seen"),
)
_KEY_SIGNS = (("|", "Lease renewed"), ("◆", "status changed"), ("●", "observed"))
_KEY_VOLUMES = ((ATTACHING, "attaching"), (ATTACHED, "attached"), (DETACHING, "detaching"))
_KEY_CALLS = (("⊕", "publish"), ("⊖", "unpublish"), ("⊙", "stage"))


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane, in s of the history's clock, with a word in it where there is room.

    Its tooltip says `tip`, or else the word.
    """

    start: float
    end: float
    colour: str
    word: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Mark:
    """A point of a lane (s): a tick, or another sign with a word beside it, and `tip` or the word as its
    tooltip.
    """

    t: float
    sign: str
    word: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Lane:
    """One row of the picture; `group` is written once for neighbours that share it."""

    group: str
    name: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Bracket:
    """A judgment's row: what it says, anchor, window and observed value, in s of the history's clock."""

    label: str
    outcome: str
    reason: str = ""
    anchor: float | None = None
    low: float | None = None
    high: float | None = None
    observed: float | None = None
    negative: bool = False


@dataclass(frozen=True)
class Picture:
    """Everything that is drawn; `zero` is the time (s of the history's clock) that the axis calls 0."""

    title: str
    zero_name: str
    zero: float
    start: float
    end: float
    lanes: tuple[Lane, ...]
    brackets: tuple[Bracket, ...]
    faults: tuple[Bar, ...] = field(default=())

    def share(self, t: float) -> float:
        """Where on the axis a time is, from 0 to 1."""
        return min(max((t - self.start) / max(self.end - self.start, 1e-9), 0.0), 1.0)

    def shows(self, t: float) -> bool:
        """Whether a time is on the axis."""
        return self.start - _SAME_S <= t <= self.end + _SAME_S

    def x(self, t: float) -> float:
        """Where it is, in percent of the width."""
        return svg.LEFT + (svg.RIGHT - svg.LEFT) * self.share(t)


def draw(picture: Picture, path: Path) -> Path:
    """Draw it as an SVG."""
    parts: list[str] = []
    y = _draw_head(parts, picture, LINE * 1.5)
    top = y
    y = _draw_lanes(parts, picture, y)
    y = _draw_axis(parts, picture, y + LINE)
    y = _draw_brackets(parts, picture, y)
    ground = [*_ground(picture, top, y)]
    return files.write(path, svg.document(picture.title, y + LINE, [*ground, *parts]).encode())


def room(before: str, after: str, span: float) -> float:
    """The time (s) that two words take on an axis of `span`; the second may stand left of its mark."""
    return (len(before) + len(after) + 4) * svg.LETTER / svg.NARROW * span


def _draw_head(parts: list[str], picture: Picture, y: float) -> float:
    for line in svg.lines_of(picture.title, _TITLE_LETTERS, svg.HEAD_LETTERS):
        parts.append(svg.write(svg.LEFT, y, line, "head"))
        y += LINE * 1.3
    key = [*_key(picture)]
    for index, (name, word) in enumerate(key):
        x, row = svg.LEFT + 32.5 * (index % 3), y + LINE * (index // 3)
        if len(name) > 1:
            parts.append(f'<svg x="{x:.2f}%" y="{row - 11:.1f}" overflow="visible">')
            parts.append(f'<rect width="12" height="12" class="{name} edged"/>')
            parts.append(f'<text x="17" y="11" class="soft">{word}</text></svg>')
        else:
            parts.append(svg.write(x, row, f"{name}  {word}", "soft"))
    return y + LINE * math.ceil(len(key) / 3)


def _key(picture: Picture) -> Iterator[tuple[str, str]]:
    """Colours and signs with what they mean; those of volumes where there are any."""
    yield from (*_KEY, *_KEY_SIGNS)
    colours = {bar.colour for lane in picture.lanes for bar in lane.bars}
    if not colours.isdisjoint(colour for colour, _ in _KEY_VOLUMES):
        yield from _KEY_VOLUMES
    signs = {mark.sign for lane in picture.lanes for mark in lane.marks}
    if not signs.isdisjoint(sign for sign, _ in _KEY_CALLS):
        yield from _KEY_CALLS


def _ground(picture: Picture, top: float, bottom: float) -> Iterator[str]:
    """What stands behind everything: the faults, the grid, when something was observed."""
    for fault in picture.faults:
        yield svg.bar(picture.x(fault.start), picture.x(fault.end), top, bottom - top, "fault shade")
    for tick in svg.ticks(picture.start - picture.zero, picture.end - picture.zero):
        yield svg.upright(picture.x(tick + picture.zero), top, bottom, "grid")
    observed = {each.observed for each in picture.brackets if each.observed is not None}
    for t in filter(picture.shows, observed):
        yield svg.upright(picture.x(t), top, bottom, "dotted")


def _draw_axis(parts: list[str], picture: Picture, y: float) -> float:
    for tick in svg.ticks(picture.start - picture.zero, picture.end - picture.zero):
        x = picture.x(tick + picture.zero)
        anchor = "start" if x < 8 else "end" if x > 92 else "middle"
        parts.append(svg.write(x, y, f"{tick:g}", "soft", anchor))
    parts.append(svg.write(svg.LEFT, y + LINE, f"seconds from {picture.zero_name}", "soft"))
    return y + LINE * 2.5


def _draw_lanes(parts: list[str], picture: Picture, y: float) -> float:
    shown = picture.lanes[:MOST_LANES]
    if len(shown) < len(picture.lanes):
        shown = (*shown, Lane("", f"{len(picture.lanes) - len(shown)} more lanes"))
    for group, lanes in groupby(shown, key=lambda lane: lane.group):
        parts.append(svg.along(0, 100, y - 2, "grid"))
        if group:
            y += LINE
            parts.append(svg.write(svg.LEFT, y, _shortened(group, _NAME_LETTERS), "group"))
        for lane in lanes:
            y = _draw_lane(parts, picture, lane, y)
    return y


def _draw_lane(parts: list[str], picture: Picture, lane: Lane, y: float) -> float:
    if lane.name:
        y += LINE
        parts.append(svg.write(svg.LEFT, y, _shortened(lane.name, _NAME_LETTERS), "soft"))
    if not lane.bars and not lane.marks:
        return y + _GAP_PX
    y += 4
    wide = [
        each for each in lane.bars if picture.share(each.end) - picture.share(each.start) > 1 / svg.VISIBLE
    ]
    thin = [
        each for each in lane.bars if picture.share(each.end) - picture.share(each.start) <= 1 / svg.VISIBLE
    ]
    kept = svg.thinned(thin, [picture.share(each.start) for each in thin])
    for each in (*wide, *kept):
        _draw_bar(parts, picture, each, y, is_named=each.word == lane.name)
    _draw_ticks(parts, picture, [mark.t for mark in lane.marks if mark.sign == TICK], y)
    others = [mark for mark in lane.marks if mark.sign != TICK]
    for mark in svg.thinned(others, [picture.share(each.t) for each in others]):
        _draw_mark(parts, picture, mark, y, ends_bar=bool(lane.bars))
    return y + _BAR + _GAP_PX


def _draw_bar(parts: list[str], picture: Picture, drawn: Bar, y: float, is_named: bool) -> None:
    left, right = picture.x(drawn.start), picture.x(drawn.end)
    tip = f"{drawn.tip or drawn.word}, {drawn.start - picture.zero:.2f} to {drawn.end - picture.zero:.2f} s"
    parts.append(svg.bar(left, right, y, _BAR, f"{drawn.colour} edged", tip))
    shown = svg.room(drawn.word, picture.share(drawn.end) - picture.share(drawn.start))
    if drawn.word and not is_named and shown is not None and drawn.colour != GAP:
        classes = f"on-{drawn.colour} {shown}".strip()
        parts.append(svg.write((left + right) / 2, y + 12, drawn.word, classes, "middle"))


def _draw_ticks(parts: list[str], picture: Picture, times: Sequence[float], y: float) -> None:
    """All in one path: there may be thousands."""
    places = [picture.share(t) for t in times]
    drawn = "".join(f"M{1000 * place:.1f} 0V1000" for place in svg.thinned(places, places))
    if drawn:
        path = f'<path d="{drawn}" class="beat"/>'
        parts.append(svg.stretched(svg.LEFT, svg.RIGHT, y + 1, _BAR - 2, path))


def _draw_mark(parts: list[str], picture: Picture, mark: Mark, y: float, ends_bar: bool) -> None:
    """A sign with its word on the side that has room; at a bar's end both stand beside the bar."""
    share, told = picture.share(mark.t), mark.tip or mark.word
    tip = f"{told}, at {mark.t - picture.zero:.2f} s" if told else ""
    after, before = (svg.room(f"  {mark.word}", part) for part in (1 - share, share))
    goes_left = not ends_bar and (after is None or (after != "" and before == ""))
    is_beside = ends_bar and svg.room(mark.sign, 1 - share) == ""
    drawn = [svg.beside(3 if is_beside else 0, mark.sign, "", "start" if is_beside else "middle", tip)]
    shown = before if goes_left else after
    if mark.word and shown is not None:
        way = "end" if goes_left else "start"
        drawn.append(svg.beside((-9 if goes_left else 9) + 7 * is_beside, mark.word, shown, way))
    # An svg of their own, as offsets are in pixels.
    inside = "".join(drawn)
    parts.append(f'<svg x="{picture.x(mark.t):.3f}%" y="{y:.1f}" overflow="visible">{inside}</svg>')


def _draw_brackets(parts: list[str], picture: Picture, y: float) -> float:
    if picture.brackets:
        parts.append(svg.along(0, 100, y - LINE * 1.1, "rule"))
        parts.append(svg.write(svg.LEFT, y, "judgments", "group"))
        y += _GAP_PX
    for bracket in picture.brackets:
        for said, classes in (
            (f"{SIGNS[bracket.outcome]} {bracket.label}", "group"),
            (bracket.reason, "soft"),
            (_beyond(picture, bracket), "soft"),
        ):
            for line in svg.lines_of(said, 3 * svg.LETTERS):
                y += LINE
                parts.append(svg.write(svg.LEFT, y, line, classes))
        y = _draw_window(parts, picture, bracket, y + _GAP_PX) + _GAP_PX
    return y


def _draw_window(parts: list[str], picture: Picture, bracket: Bracket, y: float) -> float:
    if bracket.anchor is None or bracket.low is None or bracket.high is None:
        return y
    low, high = picture.x(bracket.low), picture.x(bracket.high)
    middle = y + _WINDOW / 2
    if picture.shows(bracket.anchor):
        parts.append(svg.write(picture.x(bracket.anchor), middle + 4, "◆", "soft", "middle"))
    parts.append(svg.along(min(picture.x(bracket.anchor), low), low, middle, "dotted"))
    if bracket.low < picture.end and bracket.high > picture.start:
        tip = f"window, {_interval(picture, bracket)}"
        parts.append(svg.bar(low, high, y, _WINDOW, f"{bracket.outcome} faint", tip))
        if bracket.negative:
            parts.append(svg.bar(low, high, y, _WINDOW, "not"))
    parts += _edges(picture, bracket, y)
    if bracket.observed is not None and picture.shows(bracket.observed):
        x = picture.x(bracket.observed)
        parts.append(f'<circle cx="{x:.3f}%" cy="{middle:.1f}" r="6" class="dot {bracket.outcome}"/>')
    return y + _WINDOW


def _edges(picture: Picture, bracket: Bracket, y: float) -> Iterator[str]:
    """A line at each end that the picture shows; an arrow where the window goes on, or lies, beyond it."""
    edges = [edge for edge in (bracket.low, bracket.high) if edge is not None]
    for edge in edges:
        if picture.shows(edge):
            yield svg.upright(picture.x(edge), y - 2, y + _WINDOW + 2, "edge")
    if any(edge < picture.start - _SAME_S for edge in edges):
        yield svg.arrow(svg.LEFT, y, _WINDOW, -1)
    if any(edge > picture.end + _SAME_S for edge in edges):
        yield svg.arrow(svg.RIGHT, y, _WINDOW, 1)


def _beyond(picture: Picture, bracket: Bracket) -> str:
    """That not all of a window is in the picture, or nothing."""
    if bracket.anchor is None or bracket.low is None or bracket.high is None:
        return ""
    if picture.shows(bracket.low) and picture.shows(bracket.high):
        return ""
    sides = ["beginning"] * (bracket.low < picture.start) + ["end"] * (bracket.high > picture.end)
    is_whole = bracket.low > picture.end or bracket.high < picture.start
    said = "lies beyond" if is_whole else "goes on beyond"
    return f"the window, {_interval(picture, bracket)}, {said} the picture's {' and '.join(sides)}"


def _interval(picture: Picture, bracket: Bracket) -> str:
    low, high = (edge - picture.zero for edge in (bracket.low or 0.0, bracket.high or 0.0))
    return f"{low:.2f} to {high:.2f} s"


def _shortened(text: str, letters: int) -> str:
    """Cut the middle out: names differ at both ends."""
    if len(text) <= letters:
        return text
    tail = (letters - 1) // 2
    return f"{text[: letters - 1 - tail]}…{text[-tail:]}"
