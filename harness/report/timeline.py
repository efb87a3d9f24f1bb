"""A picture of one scenario: what the nodes and pods did, when the fault was, and where each window lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from harness.checks import moments
from harness.model.cluster import condition_status
from harness.model.history import SENTINEL_ANNOTATION, History, Version, fence
from harness.model.judgment import Judgment, Moment
from harness.model.verdict import Verdict
from harness.model.window import Window

Json = Any
Judged = tuple[Judgment, Verdict]
DOTS_PER_INCH = 100
WIDTH_IN, LEAST_HEIGHT_IN = 16.0, 9.0
MOST_NODES, MOST_PODS = 6, 6
"""Lanes of nodes and pods; a wider cluster shows those to which something happened first."""

_INK, _FAINT, _GRID, _PAPER = "#1f2933", "#7b8794", "#e4e7eb", "#ffffff"
_READY = {"True": "#57a773", "False": "#e08e45", "Unknown": "#8f7ab8", "": "#cbd2d9"}
_READY_WORD = {"True": "Ready", "False": "not Ready", "Unknown": "Unknown", "": "no condition"}
_TAINT, _BEAT, _POD, _LEAVING, _FAULT, _GAP = "#4a6fa5", "#52606d", "#9fc2d8", "#d6a3a3", "#d64545", "#f0b429"
_OUTCOME = {"conforms": "#2f8f5b", "deviates": "#d64545", "unproven": "#7b8794"}
_LANE_IN, _JUDGMENT_IN, _MARGIN_IN = 0.30, 0.50, 1.75
_CHARACTERS = 175


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


def render(history: History, judged: Sequence[Judged], path: Path, title: str = "") -> Path:
    """Draw a scenario's timeline as a PNG, 1600 pixels wide and 900 high (more with many lanes)."""
    picture = compose(history, judged, title)
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
    canvas.print_png(str(path))
    return path


def compose(history: History, judged: Sequence[Judged], title: str = "") -> Picture:
    """Decide what the picture shows, without drawing it."""
    faults = _faults(history)
    start = history.entries[0].t if history.entries else 0.0
    brackets = tuple(_bracket(history, judgment, verdict) for judgment, verdict in judged)
    span = max(history.ended_t - start, 1.0)
    ends = [bracket.high for bracket in brackets if bracket.high is not None]
    end = min(max([start + span, *ends]), start + span * 1.25)
    return Picture(
        title or "timeline",
        "the fault" if faults else "the recording's start",
        faults[0].start if faults else start,
        start,
        end,
        (*_fault_lanes(history), *_node_lanes(history), *_pod_lanes(history), *_recording_lanes(history)),
        brackets,
        faults,
    )


def _faults(history: History) -> tuple[Bar, ...]:
    return tuple(bar for lane in _fault_lanes(history) for bar in lane.bars)


def _fault_lanes(history: History) -> tuple[Lane, ...]:
    """Each fault from the probe that proved it to the probe that proved its end."""
    steps: dict[str, dict[str, float]] = {}
    nodes: dict[str, str] = {}
    words: dict[str, str] = {}
    for entry in history.of_kind("fault"):
        steps.setdefault(entry.data["id"], {}).setdefault(entry.data["step"], entry.t)
        nodes[entry.data["id"]] = str(entry.data.get("node") or "")
        made = entry.data.get("fault") or {}
        words[entry.data["id"]] = " ".join(str(made[key]) for key in ("direction", "fault") if key in made)
    lanes = []
    for fault, seen in steps.items():
        name = words[fault] or fault
        word = f"{name} on {nodes[fault]}" if nodes[fault] and nodes[fault] not in name else name
        if "injected" not in seen:
            first = min(seen.values())
            lanes.append(Lane("fault", "", marks=(Mark(first, _FAULT, "x", f"{word}: {', '.join(seen)}"),)))
            continue
        end = seen.get("healed", seen.get("closed", history.ended_t))
        lanes.append(Lane("fault", "", (Bar(seen["injected"], end, _FAULT, word),)))
    return tuple(lanes)


def _node_lanes(history: History) -> tuple[Lane, ...]:
    names = sorted({version.object["metadata"]["name"] for version in history.all_versions("nodes")})
    nodes = sorted(names, key=lambda name: (-_interest(history, name), name))[:MOST_NODES]
    lanes = [lane for name in sorted(nodes) for lane in _lanes_of_node(history, name)]
    if len(names) > len(nodes):
        lanes.append(Lane("", f"{len(names) - len(nodes)} quieter nodes"))
    return tuple(lanes)


def _interest(history: History, node: str) -> int:
    seen = history.versions("nodes", "", node)
    states = [(condition_status(version.object, "Ready"), _taints(version)) for version in seen]
    changes = sum(before != after for before, after in pairwise(states))
    return changes + 10 * any(entry.data.get("node") == node for entry in history.of_kind("fault"))


def _lanes_of_node(history: History, node: str) -> Iterator[Lane]:
    seen = history.versions("nodes", "", node)
    statuses = [(version.t, "" if version.deleted else _status(version)) for version in seen]
    bands = tuple(
        Bar(start, end, _READY[status], _READY_WORD[status])
        for start, end, status in _runs(statuses, history.ended_t)
    )
    yield Lane(node, "condition", bands)
    taints = {taint: None for version in seen for taint in _taints(version)}
    for taint in taints:
        held = [(version.t, not version.deleted and taint in _taints(version)) for version in seen]
        bars = tuple(
            Bar(start, end, _TAINT, taint) for start, end, holds in _runs(held, history.ended_t) if holds
        )
        yield Lane(node, "taint", bars)
    beats = tuple(
        Mark(beat.t, _BEAT, "|" if beat.detail["heartbeat"] == "lease" else "D")
        for beat in moments.heartbeats(history, node)
    )
    if beats:
        yield Lane(node, "heartbeats", marks=beats)


def _status(version: Version) -> str:
    status = condition_status(version.object, "Ready")
    return status if status in _READY else ""


def _taints(version: Version) -> tuple[str, ...]:
    taints = version.object["spec"].get("taints") or ()
    return tuple(f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}" for taint in taints)


def _runs(states: Sequence[tuple[float, Any]], end: float) -> Iterator[tuple[float, float, Any]]:
    """Join equal neighbours into (start, end, state)."""
    start = 0
    for index in range(1, len(states) + 1):
        if index == len(states):
            yield states[start][0], end, states[start][1]
        elif states[index][1] != states[start][1]:
            yield states[start][0], states[index][0], states[start][1]
            start = index


def _pod_lanes(history: History) -> tuple[Lane, ...]:
    names = {
        (version.object["metadata"].get("namespace", ""), version.object["metadata"]["name"]): None
        for version in history.all_versions("pods")
        if SENTINEL_ANNOTATION not in version.object["metadata"].get("annotations", {})
    }
    changed = sorted(names, key=lambda name: -_pod_interest(history, *name))
    lanes = [_pod_lane(history, *name) for name in changed[:MOST_PODS]]
    if len(names) > MOST_PODS:
        lanes.append(Lane("", f"{len(names) - MOST_PODS} quieter pods"))
    return tuple(lanes)


def _pod_interest(history: History, namespace: str, name: str) -> int:
    seen = history.versions("pods", namespace, name)
    gone = any(version.deleted or version.object["metadata"].get("deletionTimestamp") for version in seen)
    return 10 * gone + len({version.object["spec"].get("nodeName") for version in seen})


def _pod_lane(history: History, namespace: str, name: str) -> Lane:
    seen = history.versions("pods", namespace, name)
    leaving = next((v.t for v in seen if v.object["metadata"].get("deletionTimestamp")), None)
    removed = next((v.t for v in seen if v.deleted), None)
    end = removed if removed is not None else history.ended_t
    on = next((v.object["spec"]["nodeName"] for v in seen if v.object["spec"].get("nodeName")), "")
    word = f"on {on}" if on else "not bound"
    marks = [Mark(removed, _INK, "x", "removed")] if removed is not None else []
    if leaving is None or leaving >= end:
        return Lane("pods", name, (Bar(seen[0].t, end, _POD, word),), tuple(marks))
    bars = (Bar(seen[0].t, leaving, _POD, word), Bar(leaving, end, _LEAVING, "deletion asked for"))
    return Lane("pods", name, bars, tuple(marks))


def _recording_lanes(history: History) -> tuple[Lane, ...]:
    """What bears on the recording's worth: gaps, the fence, dead-man's switches, components that ended."""
    bars = tuple(
        Bar(entry.data["since"], entry.t, _GAP, f"no {entry.data['resource']}")
        for entry in history.of_kind("gap")
    )
    marks = [Mark(entry.t, _FAULT, "X", "dead-man's switch") for entry in history.of_kind("deadman")]
    marks += [
        Mark(entry.t, _GAP if entry.data["expected"] else _FAULT, "v", f"{entry.data['name']} ended")
        for entry in history.of_kind("component")
    ]
    if history.of_kind("fence"):
        passed = fence(history)
        word = "fence passed" if passed.passed else "fence failed"
        marks.append(Mark(passed.t, _OUTCOME["conforms" if passed.passed else "deviates"], "P", word))
    gaps = (Lane("recording", "gaps", bars),) if bars else ()
    return (*gaps, *_stacked(marks, history.ended_t - history.entries[0].t if history.entries else 1.0))


def _stacked(marks: Sequence[Mark], span: float) -> tuple[Lane, ...]:
    """Marks in as few lanes as keep their words apart; `span` is the length of the time axis (s)."""
    rows: list[list[Mark]] = [[]]
    for mark in sorted(marks, key=lambda mark: mark.t):
        free = (row for row in rows if not row or mark.t - row[-1].t > _room(row[-1].word, mark.word, span))
        row = next(free, None)
        if row is None:
            row = []
            rows.append(row)
        row.append(mark)
    return tuple(Lane("recording", "", marks=tuple(row)) for row in rows)


def _room(before: str, after: str, span: float) -> float:
    """The time (s) that two words take, the second of which may stand left of its mark."""
    return (len(before) + len(after) + 4) * _CHARACTER_SHARE * span


def _bracket(history: History, judgment: Judgment, verdict: Verdict) -> Bracket:
    value, window = verdict.measured, verdict.window
    label = f"{judgment.claim}   {verdict.label}"
    if value is not None:
        label += f"   {value}"
    if window is not None:
        label += f"   {window.arithmetic}"
    if window is None or value is None or verdict.outcome == "unproven":
        label += f"   {verdict.reason}"
    label = label if len(label) <= _CHARACTERS else f"{label[: _CHARACTERS - 1]}…"
    colour = _OUTCOME[verdict.outcome]
    anchor = _anchor(history, judgment, window)
    if anchor is None or window is None:
        return Bracket(label, colour, anchor)
    measured = value.value if value is not None and isinstance(value.value, float) else None
    observed = anchor + measured if measured is not None else None
    negative = window.shape == "negative"
    return Bracket(label, colour, anchor, anchor + window.low_s, anchor + window.high_s, observed, negative)


def _anchor(history: History, judgment: Judgment, window: Window | None) -> float | None:
    stored: Mapping[str, Json] | None = judgment.check.args.get("anchor")
    if stored is None:
        return None
    anchor = Moment.from_json(stored)
    found = moments.find(history, anchor)
    if found is None and window is not None and anchor.name == "last-heartbeat":
        found = moments.long_silence(history, anchor, window.high_s)
    return found.t if found else None


def _draw_head(figure: Figure, picture: Picture, height: float) -> None:
    title = _shortened(picture.title, _TITLE_CHARACTERS)
    figure.text(0.012, 1 - 0.28 / height, title, size=15, weight="bold", color=_INK, va="center")
    key = [
        ("■", _READY["True"], "Ready"),
        ("■", _READY["False"], "not Ready"),
        ("■", _READY["Unknown"], "Unknown"),
        ("■", _TAINT, "taint"),
        ("|", _BEAT, "lease renewed"),
        ("◆", _BEAT, "status changed"),
        ("●", _OUTCOME["conforms"], "conforms"),
        ("●", _OUTCOME["deviates"], "deviates"),
        ("●", _OUTCOME["unproven"], "unproven"),
    ]
    for index, (sign, colour, word) in enumerate(key):
        x, y = 0.135 + 0.094 * index, 1 - 0.58 / height
        figure.text(x, y, sign, size=12, color=colour, va="center", ha="left")
        figure.text(x + 0.011, y, word, size=9.5, color=_INK, va="center", ha="left")


def _prepare(axes: Axes, rows: float) -> None:
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_facecolor(_PAPER)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(axis="x", colors=_INK, labelsize=10)


def _draw_lanes(axes: Axes, picture: Picture) -> None:
    _prepare(axes, len(picture.lanes))
    axes.tick_params(axis="x", labelbottom=False, length=0)
    span = picture.end - picture.start
    axes.set_xlim(picture.start - picture.zero - 0.01 * span, picture.end - picture.zero + 0.02 * span)
    for fault in picture.faults:
        axes.axvspan(fault.start - picture.zero, fault.end - picture.zero, color=_FAULT, alpha=0.07, lw=0)
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
    axes.text(x, y, text, transform=where, va="center", color=_INK, clip_on=False, **style)


def _host(name: str) -> str:
    """A node's name without its domain, where the whole is too long."""
    return name if len(name) <= _GROUP_CHARACTERS else _shortened(name.partition(".")[0], _GROUP_CHARACTERS)


def _shortened(text: str, characters: int) -> str:
    """Cut the middle out: names differ at both ends."""
    if len(text) <= characters:
        return text
    tail = (characters - 1) // 2
    return f"{text[: characters - 1 - tail]}…{text[-tail:]}"


_GROUP_CHARACTERS, _NAME_CHARACTERS, _TITLE_CHARACTERS = 12, 19, 110


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
    if len(bar.word) * _CHARACTER_SHARE <= share:
        middle = bar.start + width / 2 - picture.zero
        dark = bar.colour in (_POD, _LEAVING, _GAP, _READY[""])
        colour = _INK if dark else _PAPER
        axes.text(middle, index, bar.word, ha="center", va="center", size=9.5, color=colour, zorder=4)


_CHARACTER_SHARE = 0.0062
"""What one letter of 9.5 points takes of the time axis."""


def _draw_mark(axes: Axes, index: int, mark: Mark, picture: Picture) -> None:
    x = mark.t - picture.zero
    size = 9 if mark.marker == "|" else 6
    axes.plot(x, index, mark.marker, color=mark.colour, markersize=size, markeredgewidth=1.4, zorder=4)
    if not mark.word:
        return
    share = len(mark.word) * _CHARACTER_SHARE * (picture.end - picture.start)
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
        color=_INK,
        zorder=4,
    )


def _draw_brackets(axes: Axes, picture: Picture) -> None:
    _prepare(axes, max(sum(map(_rows_of, picture.brackets)), 1.0))
    axes.set_xlabel(f"seconds from {picture.zero_name}", color=_INK, size=10.5)
    _write_left(axes, -0.24, "judgments", -0.15, weight="bold", size=10.5, ha="left")
    for fault in picture.faults:
        axes.axvspan(fault.start - picture.zero, fault.end - picture.zero, color=_FAULT, alpha=0.07, lw=0)
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
