"""Pictures of a scenario as SVG: its timeline, and the rates that were judged.

They are scalable, light and dark, without scripts. Positions along a time axis are percentages of the
picture's width, and text has a fixed size, so the picture adapts to any window. Labels that do not fit into
the narrowest one are left out; their tooltips remain. The colours are Okabe's and Ito's, which people with
any colour vision can distinguish (https://jfly.uni-koeln.de/color/). What is drawn where is in the templates.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from nodeproof import disk
from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import Undecided, between, moments_in
from nodeproof.checks.invariants import violated_s
from nodeproof.model.cluster import condition_status
from nodeproof.model.history import SENTINEL_ANNOTATION, Entry, History, Version, fence
from nodeproof.model.judgment import Judgment, Moment
from nodeproof.model.pattern import Json
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Window
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


Judged = Sequence[tuple[Judgment, Verdict]]
_AROUND_S = 30.0
"""How much of a recording is drawn before and after the violation of an invariant (s)."""
MOST_NODES, MOST_PODS = 6, 6
"""Numbers of nodes and pods that are shown, those with most changes first."""
_CONDITIONS = {
    "True": ("ready", "Ready"),
    "False": ("not-ready", "not Ready"),
    "Unknown": ("unknown", "Unknown"),
}
_NO_CONDITION = ("no-condition", "no condition")


def render(history: History, judged: Judged, path: Path, title: str = "") -> Path:
    """Draw a scenario's timeline as an SVG."""
    return draw_timeline(compose(history, judged, title), path)


def render_rates(history: History, judged: Judged, path: Path) -> Path | None:
    """Draw the judged rates as an SVG, if there are any."""
    curves = rates(history, judged)
    return draw_rates(curves, path) if curves else None


def compose(history: History, judged: Judged, title: str = "") -> Picture:
    """Return the content of a scenario's timeline."""
    fault_lanes = tuple(_fault_lanes(history))
    faults = tuple(bar for lane in fault_lanes for bar in lane.bars)
    brackets = tuple(_bracket(history, judgment, verdict) for judgment, verdict in judged)
    start, span = history.began_t, _span(history)
    ends = [bracket.high for bracket in brackets if bracket.high is not None]
    own_nodes, other_nodes = _nodes(history, judged)
    violations = [
        (after_s, verdict.reason)
        for _judgment, verdict in judged
        if verdict.outcome == "deviates" and (after_s := violated_s(verdict.reason)) is not None
    ]
    named = {word for _after_s, reason in violations[:1] for word in re.findall(r"[\w-]+", reason)}
    lanes = (
        *fault_lanes,
        *_node_lanes(history, own_nodes),
        *_pod_lanes(history, other_nodes, named),
        *_recording_lanes(history),
    )
    picture = Picture(
        title=title or "timeline",
        zero_name="the fault" if faults else "the recording's start",
        zero=faults[0].start if faults else start,
        start=start,
        end=min(max([start + span, *ends]), start + span * 1.25),
        lanes=lanes,
        brackets=brackets,
        faults=faults,
    )
    return _cut(picture, start + violations[0][0]) if violations else picture


def _cut(picture: Picture, violated_t: float) -> Picture:
    """Return what a picture shows of the minute around the violation of an invariant (s)."""
    start = max(picture.start, violated_t - _AROUND_S)
    end = min(picture.end, violated_t + _AROUND_S)

    def shown(bars: Sequence[Bar]) -> tuple[Bar, ...]:
        return tuple(bar for bar in bars if bar.start < end and bar.end > start)

    lanes = [
        replace(
            lane, bars=shown(lane.bars), marks=tuple(mark for mark in lane.marks if start <= mark.t <= end)
        )
        for lane in picture.lanes
    ]
    return replace(
        picture,
        title=f"{picture.title}: the minute around the violation",
        start=start,
        end=end,
        # A lane without a group says how many others are left out.
        lanes=tuple(lane for lane in lanes if lane.bars or lane.marks or not lane.group),
        faults=shown(picture.faults),
    )


def rates(history: History, judged: Judged) -> list[Curve]:
    """Return the curve of each judged rate with at least two occurrences, once for several claims."""
    curves: dict[str, Curve] = {}
    for judgment, verdict in judged:
        window, args = verdict.window, judgment.check.args
        if judgment.check.name == "spaced" and window and window.low_s > 0 and str(args) not in curves:
            times = _occurrences(history, judgment)
            since_first = tuple(t - times[0] for t in times)
            if len(times) > 1:
                about = (judgment.claim, verdict.outcome, verdict.reason)
                curves[str(args)] = Curve(*about, since_first, window.low_s, window.high_s)
    return list(curves.values())


def _occurrences(history: History, judgment: Judgment) -> list[float]:
    event, after, until = moments_in(judgment.check.args, "event", "anchor", "until")
    try:
        span = between(history, after, until)
    except Undecided:
        return []
    times = (occurrence.t for occurrence in moments.occurrences(history, event))
    return [t for t in times if span.since_t <= t <= span.until_t]


def _span(history: History) -> float:
    """Return the length of a recording (s)."""
    return max(history.ended_t - history.began_t, 1.0)


def _nodes(history: History, judged: Judged) -> tuple[set[str], set[str]]:
    """Return the nodes of the scenario, and those of other scenarios in the same lab.

    The watches deliver the nodes of all zones. A scenario's own nodes are those of its zone, those that its
    machines joined as, and those that its judgments name, such as nodes that it created through the API.
    """
    names = {version.object["metadata"]["name"] for version in history.all_versions("nodes")}
    zone = history.begun.get("nodes")
    if not zone:
        return names, set()
    joined = (entry.data.get("as", entry.data["node"]) for entry in history.of_kind("machine"))
    own = names & {*zone, *joined}
    judgments = json.dumps([judgment.check.args for judgment, _verdict in judged])
    own |= {name for name in names if json.dumps(name) in judgments}
    return own, names - own


def _fault_lanes(history: History) -> Iterator[Lane]:
    """Yield each fault from the probe that confirmed it to the probe that confirmed its end."""
    faults: dict[str, dict[str, Entry]] = {}
    for entry in history.of_kind("fault"):
        faults.setdefault(entry.data["id"], {}).setdefault(entry.data["step"], entry)
    for id_, steps in faults.items():
        entries = list(steps.values())
        fault, node = entries[-1].data.get("fault") or {}, str(entries[-1].data.get("node") or "")
        name = " ".join(str(fault[key]) for key in ("direction", "fault") if key in fault) or id_
        label = f"{name} on {node}" if node and node not in name else name
        if "injected" in steps:
            end = steps.get("healed", steps.get("closed"))
            end_t = end.t if end else history.ended_t
            yield Lane("fault", label, (Bar(steps["injected"].t, end_t, "fault", label),))
        else:
            yield Lane("fault", "", marks=(Mark(entries[0].t, "✕", f"{label}: {', '.join(steps)}"),))


def _node_lanes(history: History, names: set[str]) -> Iterator[Lane]:
    shown = sorted(names, key=lambda name: (-_node_changes(history, name), name))[:MOST_NODES]
    for name in sorted(shown):
        yield from _lanes_of_node(history, name)
    if len(names) > len(shown):
        yield Lane("", f"{len(names) - len(shown)} quieter nodes")


def _node_changes(history: History, node: str) -> int:
    versions = history.versions("nodes", "", node)
    states = [(condition_status(version.object, "Ready"), _taints(version)) for version in versions]
    changes = sum(before != after for before, after in pairwise(states))
    return changes + 10 * any(entry.data.get("node") == node for entry in history.of_kind("fault"))


def _lanes_of_node(history: History, node: str) -> Iterator[Lane]:
    conditions, taints = [], []
    for version in history.versions("nodes", "", node):
        conditions.append((version.t, "" if version.deleted else condition_status(version.object, "Ready")))
        taints.append((version.t, () if version.deleted else _taints(version)))
    spans = _runs(conditions, history.ended_t)
    states = (Bar(start, end, *_CONDITIONS.get(state, _NO_CONDITION)) for start, end, state in spans)
    yield Lane(node, "condition", tuple(states))
    for taint in dict.fromkeys(taint for _t, present in taints for taint in present):
        spans = _runs([(t, taint in present) for t, present in taints], history.ended_t)
        bars = (Bar(start, end, "taint", taint) for start, end, is_present in spans if is_present)
        yield Lane(node, taint, tuple(bars))
    beats = tuple(
        Mark(beat.t, TICK if beat.detail["heartbeat"] == "lease" else "◆")
        for beat in heartbeats.heartbeats(history, node)
    )
    if beats:
        yield Lane(node, "heartbeats", marks=beats)


def _taints(version: Version) -> tuple[str, ...]:
    taints = version.object["spec"].get("taints") or ()
    return tuple(f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}" for taint in taints)


@dataclass(frozen=True)
class _Life:
    """One of the objects that had a name: its versions, and its end (s)."""

    versions: tuple[Version, ...]
    end: float
    is_removed: bool
    """Whether its removal was recorded; otherwise it ends with the recording, or where a successor begins."""


def _lives(history: History, resource: str, namespace: str, name: str) -> list[_Life]:
    """Return every object that had this name, in order, distinguished by uid."""
    objects: list[list[Version]] = []
    for version in history.versions(resource, namespace, name):
        last = objects[-1][-1] if objects else None
        if last is None or _uid(last) != _uid(version) or (last.deleted and not version.deleted):
            objects.append([])
        objects[-1].append(version)
    ends = [versions[0].t for versions in objects[1:]] + [history.ended_t]
    lives = []
    for versions, end in zip(objects, ends, strict=True):
        removed_t = next((version.t for version in versions if version.deleted), None)
        lives.append(_Life(tuple(versions), end if removed_t is None else removed_t, removed_t is not None))
    return lives


def _uid(version: Version) -> Json:
    return version.object["metadata"].get("uid")


def _pod_lanes(history: History, other_nodes: set[str], named: set[str]) -> Iterator[Lane]:
    """Yield a lane for each name of a pod that was not only on other scenarios' nodes, those named first."""
    pods: dict[tuple[str, str], set[str]] = {}
    for version in history.all_versions("pods"):
        meta = version.object["metadata"]
        if SENTINEL_ANNOTATION not in meta.get("annotations", {}):
            nodes = pods.setdefault((meta.get("namespace", ""), meta["name"]), set())
            nodes.update(filter(None, [version.object["spec"].get("nodeName")]))
    own = [pod for pod, nodes in pods.items() if not nodes or nodes - other_nodes]
    namesakes = Counter(name for _namespace, name in own)
    changed = sorted(own, key=lambda pod: (pod[1] not in named, -_pod_changes(history, *pod)))
    for namespace, name in changed[:MOST_PODS]:
        label = f"{namespace}/{name}" if namesakes[name] > 1 else name
        lives = _lives(history, "pods", namespace, name)
        bars = tuple(bar for life in lives for bar in _pod_bars(life))
        yield Lane("pods", label, bars, tuple(_removals(lives, _span(history))))
    if len(own) > MOST_PODS:
        yield Lane("", f"{len(own) - MOST_PODS} quieter pods")


def _pod_changes(history: History, namespace: str, name: str) -> int:
    versions = history.versions("pods", namespace, name)
    has_ended = any(version.deleted or _is_terminating(version) for version in versions)
    return 10 * has_ended + len({version.object["spec"].get("nodeName") for version in versions})


def _pod_bars(life: _Life) -> Iterator[Bar]:
    node = next(filter(None, (version.object["spec"].get("nodeName") for version in life.versions)), "")
    label = f"on {node}" if node else "not bound"
    states = [(version.t, _is_terminating(version)) for version in life.versions]
    for start, end, is_terminating in _runs(states, life.end):
        if is_terminating and start < life.end:
            yield Bar(start, end, "terminating", "Terminating", f"{label}, Terminating")
        elif not is_terminating:
            yield Bar(start, end, "pod", label)


def _is_terminating(version: Version) -> bool:
    return bool(version.object["metadata"].get("deletionTimestamp"))


def _removals(lives: Sequence[_Life], span: float) -> Iterator[Mark]:
    """Yield a mark for each removal that no successor follows at once; only the last one has a label."""
    for life, successor in pairwise(lives):
        if life.is_removed and successor.versions[0].t - life.end > seconds_of("", "", span):
            yield Mark(life.end, "✕", tip="removed")
    if lives[-1].is_removed:
        yield Mark(lives[-1].end, "✕", "removed")


def _runs(states: Sequence[tuple[float, Json]], end: float) -> Iterator[tuple[float, float, Json]]:
    """Join equal neighbours into (start, end, state)."""
    changes = [after for before, after in pairwise(states) if before[1] != after[1]]
    for (start, state), (next_start, _state) in pairwise([*states[:1], *changes, (end, None)]):
        yield start, next_start, state


def _recording_lanes(history: History) -> Iterator[Lane]:
    """Yield what limits the recording: gaps, the fence, dead-man's switches, and components that ended."""
    gaps = tuple(
        Bar(entry.data["since"], entry.t, "gap", f"no {entry.data['resource']}")
        for entry in history.of_kind("gap")
    )
    if gaps:
        yield Lane("recording", "gaps", gaps)
    marks = [Mark(entry.t, "✕", "dead-man's switch") for entry in history.of_kind("deadman")]
    marks += [
        Mark(entry.t, "▽" if entry.data["expected"] else "▼", f"{entry.data['name']} ended")
        for entry in history.of_kind("component")
    ]
    if history.of_kind("fence"):
        end = fence(history)
        marks.append(Mark(end.t, "✓", "fence passed") if end.passed else Mark(end.t, "✗", "fence failed"))
    for row in _rows(marks, _span(history)):
        yield Lane("recording", "", marks=tuple(row))


def _rows(marks: Sequence[Mark], span: float) -> list[list[Mark]]:
    """Distribute marks over as few rows as keep their labels apart."""
    rows: list[list[Mark]] = []
    for mark in sorted(marks, key=lambda mark: mark.t):
        for row in rows:
            if mark.t - row[-1].t > seconds_of(row[-1].label, mark.label, span):
                row.append(mark)
                break
        else:
            rows.append([mark])
    return rows


def _bracket(history: History, judgment: Judgment, verdict: Verdict) -> Bracket:
    measured, window = verdict.measured, verdict.window
    label = " · ".join(filter(None, (judgment.claim, verdict.label, str(measured or ""))))
    explains_itself = window is not None and measured is not None and verdict.outcome != "unproven"
    arithmetic = window.arithmetic if window else ""
    reason = " · ".join(filter(None, (arithmetic, "" if explains_itself else verdict.reason)))
    # A check that raised an error would raise it here as well.
    anchor = None if verdict.code == "check-failed" else _anchor(history, judgment, window)
    if anchor is None or window is None:
        return Bracket(label, verdict.outcome, reason, anchor)
    low, high, is_negative = anchor + window.low_s, anchor + window.high_s, window.shape == "negative"
    delay_s = measured.value if measured is not None and isinstance(measured.value, float) else None
    observed = None if delay_s is None else anchor + delay_s
    return Bracket(label, verdict.outcome, reason, anchor, low, high, observed, is_negative)


def _anchor(history: History, judgment: Judgment, window: Window | None) -> float | None:
    stored: Mapping[str, Json] | None = judgment.check.args.get("anchor")
    if stored is None:
        return None
    moment = Moment.from_json(stored)
    event = moments.find(history, moment)
    if event is None and window is not None and moment.name == "last-heartbeat":
        event = moments.long_silence(history, moment, window.high_s)
    return event.t if event else None
