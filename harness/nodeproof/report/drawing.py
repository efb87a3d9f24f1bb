"""How a timeline is drawn: what a picture consists of, its colours, and the PNG made of it.

This knows nothing of histories and judgments; `timeline` decides what a picture shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

Json = Any
DOTS_PER_INCH = 100
WIDTH_IN, LEAST_HEIGHT_IN = 16.0, 9.0

INK = "#1f2933"
READY = {"True": "#57a773", "False": "#e08e45", "Unknown": "#8f7ab8", "": "#cbd2d9"}
TAINT, BEAT, POD, LEAVING, FAULT, GAP = "#4a6fa5", "#52606d", "#9fc2d8", "#d6a3a3", "#d64545", "#f0b429"
OUTCOME = {"conforms": "#2f8f5b", "deviates": "#d64545", "unproven": "#7b8794"}
CHARACTER_SHARE = 0.0062
"""What one letter of 9.5 points takes of the time axis."""

_FAINT, _GRID, _PAPER = "#7b8794", "#e4e7eb", "#ffffff"
_LANE_IN, _JUDGMENT_IN, _MARGIN_IN = 0.30, 0.50, 1.75
_COLOURS = 128
_GROUP_CHARACTERS, _NAME_CHARACTERS, _TITLE_CHARACTERS = 12, 19, 110


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane, in s of the history's clock, with a word in it where there is room."""

    start: float
    end: float
    colour: str
    word: str = ""
    hatch: str = ""


@dataclass(frozen=True)
class Mark:
    """A point of a lane (s), with a word right of it."""

    t: float
    colour: str
    marker: str
    word: str = ""


@dataclass(frozen=True)
class Lane:
    """One row of the picture; `group` is written once for neighbours that share it."""

    group: str
    name: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Bracket:
    """A judgment's row: anchor, window and observed value, in s of the history's clock."""

    label: str
    colour: str
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


def draw(picture: Picture, path: Path) -> Path:
    """Draw it as a PNG, 1600 pixels wide and 900 high (more with many lanes)."""
    lanes_in = max(len(picture.lanes), 1) * _LANE_IN
    judgments_in = max(sum(map(_rows_of, picture.brackets)), 1.0) * _JUDGMENT_IN
    height = max(LEAST_HEIGHT_IN, lanes_in + judgments_in + _MARGIN_IN)
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DOTS_PER_INCH, facecolor=_PAPER)
    canvas = FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        2,
        1,
        height_ratios=[lanes_in, judgments_in],
        left=0.135,
        right=0.985,
        top=1 - 0.75 / height,
        bottom=0.6 / height,
        hspace=0.4 / height,
    )
    upper = figure.add_subplot(grid[0])
    lower = figure.add_subplot(grid[1], sharex=upper)
    _draw_head(figure, picture, height)
    _draw_lanes(upper, picture)
    _draw_brackets(lower, picture)
    for text in figure.findobj(Text):
        # A dollar sign in a pattern begins no formula.
        text.set_parse_math(False)
    return save(canvas, path)


def save(canvas: FigureCanvasAgg, path: Path) -> Path:
    """Write a PNG of 128 colours, a third as large as one of all: a site has hundreds of them."""
    canvas.draw()
    image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
    image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, "PNG")
    return path


def _draw_head(figure: Figure, picture: Picture, height: float) -> None:
    title = _shortened(picture.title, _TITLE_CHARACTERS)
    figure.text(0.012, 1 - 0.28 / height, title, size=15, weight="bold", color=INK, va="center")
    key = [
        ("■", READY["True"], "Ready"),
        ("■", READY["False"], "not Ready"),
        ("■", READY["Unknown"], "Unknown"),
        ("■", TAINT, "taint"),
        ("|", BEAT, "lease renewed"),
        ("◆", BEAT, "status changed"),
        ("●", OUTCOME["conforms"], "conforms"),
        ("●", OUTCOME["deviates"], "deviates"),
        ("●", OUTCOME["unproven"], "unproven"),
    ]
    for index, (sign, colour, word) in enumerate(key):
        x, y = 0.135 + 0.094 * index, 1 - 0.58 / height
        figure.text(x, y, sign, size=12, color=colour, va="center", ha="left")
        figure.text(x + 0.011, y, word, size=9.5, color=INK, va="center", ha="left")


def _prepare(axes: Axes, rows: float) -> None:
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_facecolor(_PAPER)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(axis="x", colors=INK, labelsize=10)


def _draw_lanes(axes: Axes, picture: Picture) -> None:
    _prepare(axes, len(picture.lanes))
    axes.tick_params(axis="x", labelbottom=False, length=0)
    span = picture.end - picture.start
    axes.set_xlim(picture.start - picture.zero - 0.01 * span, picture.end - picture.zero + 0.02 * span)
    for fault in picture.faults:
        axes.axvspan(fault.start - picture.zero, fault.end - picture.zero, color=FAULT, alpha=0.07, lw=0)
    group = ""
    for index, lane in enumerate(picture.lanes):
        if lane.group != group:
            _write_left(
                axes,
                index,
                _host(lane.group),
                -0.15,
                weight="bold",
                size=10.5,
                ha="left",
            )
            axes.axhline(index - 0.5, color=_GRID, linewidth=1.0, xmin=-0.15, clip_on=False)
            group = lane.group
        _write_left(axes, index, _shortened(lane.name, _NAME_CHARACTERS), -0.006, size=9.5, ha="right")
        for bar in lane.bars:
            _draw_bar(axes, index, bar, picture)
        for mark in lane.marks:
            _draw_mark(axes, index, mark, picture)
    for bracket in picture.brackets:
        if bracket.observed is not None:
            axes.axvline(bracket.observed - picture.zero, color=bracket.colour, lw=0.9, ls=":", zorder=1.5)


def _write_left(axes: Axes, y: float, text: str, x: float, **style: Json) -> None:
    where = axes.get_yaxis_transform()
    axes.text(x, y, text, transform=where, va="center", color=INK, clip_on=False, **style)


def _host(name: str) -> str:
    """A node's name without its domain, where the whole is too long."""
    return name if len(name) <= _GROUP_CHARACTERS else _shortened(name.partition(".")[0], _GROUP_CHARACTERS)


def _shortened(text: str, characters: int) -> str:
    """Cut the middle out: names differ at both ends."""
    if len(text) <= characters:
        return text
    tail = (characters - 1) // 2
    return f"{text[: characters - 1 - tail]}…{text[-tail:]}"


def _draw_bar(axes: Axes, index: int, bar: Bar, picture: Picture) -> None:
    width = bar.end - bar.start
    axes.barh(
        index,
        width,
        left=bar.start - picture.zero,
        height=0.66,
        color=bar.colour,
        edgecolor=_PAPER,
        linewidth=1.0,
        zorder=3,
    )
    share = width / max(picture.end - picture.start, 1.0)
    if len(bar.word) * CHARACTER_SHARE <= share:
        middle = bar.start + width / 2 - picture.zero
        dark = bar.colour in (POD, LEAVING, GAP, READY[""])
        colour = INK if dark else _PAPER
        axes.text(middle, index, bar.word, ha="center", va="center", size=9.5, color=colour, zorder=4)


def _draw_mark(axes: Axes, index: int, mark: Mark, picture: Picture) -> None:
    x = mark.t - picture.zero
    size = 9 if mark.marker == "|" else 6
    axes.plot(x, index, mark.marker, color=mark.colour, markersize=size, markeredgewidth=1.4, zorder=4)
    if not mark.word:
        return
    share = len(mark.word) * CHARACTER_SHARE * (picture.end - picture.start)
    fits = mark.t + share < picture.end
    offset, side = ((7, 0), "left") if fits else ((-7, 0), "right")
    axes.annotate(
        mark.word,
        (x, index),
        offset,
        textcoords="offset points",
        ha=side,
        va="center",
        size=9.5,
        color=INK,
        zorder=4,
    )


def _draw_brackets(axes: Axes, picture: Picture) -> None:
    _prepare(axes, max(sum(map(_rows_of, picture.brackets)), 1.0))
    axes.set_xlabel(f"seconds from {picture.zero_name}", color=INK, size=10.5)
    _write_left(axes, -0.24, "judgments", -0.15, weight="bold", size=10.5, ha="left")
    for fault in picture.faults:
        axes.axvspan(fault.start - picture.zero, fault.end - picture.zero, color=FAULT, alpha=0.07, lw=0)
    top = 0.0
    for bracket in picture.brackets:
        _draw_bracket(axes, top, bracket, picture)
        top += _rows_of(bracket)


def _rows_of(bracket: Bracket) -> float:
    """The height of a judgment: its words alone take less than words above a window."""
    return 1.0 if bracket.low is not None else 0.6


def _draw_bracket(axes: Axes, top: float, bracket: Bracket, picture: Picture) -> None:
    where = axes.get_yaxis_transform()
    paper = {"facecolor": _PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
    axes.text(
        0.004,
        top - 0.24,
        bracket.label,
        transform=where,
        va="center",
        size=9.5,
        color=bracket.colour,
        bbox=paper,
        zorder=5,
    )
    if bracket.anchor is None or bracket.low is None or bracket.high is None:
        return
    y, zero = top + 0.2, picture.zero
    axes.plot(bracket.anchor - zero, y, "d", color=_FAINT, markersize=6, zorder=4)
    low, high = bracket.low - zero, min(bracket.high, picture.end) - zero
    axes.plot([bracket.anchor - zero, low], [y, y], ls=":", color=_FAINT, lw=1.2, zorder=2)
    hatch = "////" if bracket.negative else ""
    axes.barh(
        y,
        high - low,
        left=low,
        height=0.3,
        color=bracket.colour,
        alpha=0.22,
        hatch=hatch,
        edgecolor=bracket.colour,
        zorder=2,
    )
    for edge in (low, high):
        axes.plot([edge, edge], [y - 0.2, y + 0.2], color=bracket.colour, lw=2.0, zorder=3)
    if bracket.observed is not None:
        axes.plot(bracket.observed - zero, y, "o", color=bracket.colour, mec=_PAPER, markersize=10, zorder=6)
