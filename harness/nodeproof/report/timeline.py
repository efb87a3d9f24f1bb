"""A picture of one scenario: what the nodes and pods did, when the fault was, and where each window lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from nodeproof.checks import heartbeats, moments
from nodeproof.model.cluster import condition_status
from nodeproof.model.history import SENTINEL_ANNOTATION, History, Version, fence
from nodeproof.model.judgment import Judgment, Moment
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Window
from nodeproof.report import drawing
from nodeproof.report.drawing import Bar, Bracket, Lane, Mark, Picture
from nodeproof.report.holders import volume_lanes
from nodeproof.report.lanes import Life, ends, is_going, lives, runs, span_of, stacked

Json = Any
Judged = tuple[Judgment, Verdict]
MOST_NODES, MOST_PODS = 6, 6
"""Lanes of nodes and pods; a wider cluster shows those to which something happened first."""

_READY_WORD = {"True": "Ready", "False": "not Ready", "Unknown": "Unknown", "": "no condition"}


def render(history: History, judged: Sequence[Judged], path: Path, title: str = "") -> Path:
    """Draw a scenario's timeline as an SVG."""
    return drawing.draw(compose(history, judged, title), path)


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
        tuple(_lanes(history)),
        brackets,
        faults,
    )


def _lanes(history: History) -> Iterator[Lane]:
    yield from _fault_lanes(history)
    yield from _node_lanes(history)
    yield from _pod_lanes(history)
    yield from volume_lanes(history)
    yield from _recording_lanes(history)


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
            lanes.append(Lane("fault", "", marks=(Mark(first, "✕", f"{word}: {', '.join(seen)}"),)))
            continue
        end = seen.get("healed", seen.get("closed", history.ended_t))
        lanes.append(Lane("fault", word, (Bar(seen["injected"], end, drawing.FAULT, word),)))
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
        Bar(start, end, drawing.READY[status], _READY_WORD[status])
        for start, end, status in runs(statuses, history.ended_t)
    )
    yield Lane(node, "condition", bands)
    worn = [(version.t, () if version.deleted else _taints(version)) for version in seen]
    for taint in {taint: None for version in seen for taint in _taints(version)}:
        held = [(t, taint in taints) for t, taints in worn]
        bars = tuple(
            Bar(start, end, drawing.TAINT, taint)
            for start, end, holds in runs(held, history.ended_t)
            if holds
        )
        yield Lane(node, taint, bars)
    beats = tuple(
        Mark(beat.t, drawing.TICK if beat.detail["heartbeat"] == "lease" else "◆")
        for beat in heartbeats.heartbeats(history, node)
    )
    if beats:
        yield Lane(node, "heartbeats", marks=beats)


def _status(version: Version) -> str:
    status = condition_status(version.object, "Ready")
    return status if status in drawing.READY else ""


def _taints(version: Version) -> tuple[str, ...]:
    taints = version.object["spec"].get("taints") or ()
    return tuple(f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}" for taint in taints)


def _pod_lanes(history: History) -> tuple[Lane, ...]:
    names = {
        (version.object["metadata"].get("namespace", ""), version.object["metadata"]["name"]): None
        for version in history.all_versions("pods")
        if SENTINEL_ANNOTATION not in version.object["metadata"].get("annotations", {})
    }
    changed = sorted(names, key=lambda name: -_pod_interest(history, *name))
    shared = Counter(name for _, name in names)
    lanes = [
        Lane("pods", f"{namespace}/{name}" if shared[name] > 1 else name, *_pod(history, namespace, name))
        for namespace, name in changed[:MOST_PODS]
    ]
    if len(names) > MOST_PODS:
        lanes.append(Lane("", f"{len(names) - MOST_PODS} quieter pods"))
    return tuple(lanes)


def _pod_interest(history: History, namespace: str, name: str) -> int:
    seen = history.versions("pods", namespace, name)
    gone = any(version.deleted or is_going(version) for version in seen)
    return 10 * gone + len({version.object["spec"].get("nodeName") for version in seen})


def _pod(history: History, namespace: str, name: str) -> tuple[tuple[Bar, ...], tuple[Mark, ...]]:
    """Every pod that had this name, each with its own node: one may be made anew elsewhere."""
    found = lives(history, "pods", namespace, name)
    bars = tuple(bar for life in found for bar in _pod_bars(life))
    return bars, ends(found, "removed", span_of(history))


def _pod_bars(life: Life) -> Iterator[Bar]:
    bound = (version.object["spec"].get("nodeName") for version in life.seen)
    on = next(filter(None, bound), "")
    word = f"on {on}" if on else "not bound"
    for start, end, leaves in runs([(version.t, is_going(version)) for version in life.seen], life.end):
        if leaves and start < life.end:
            yield Bar(start, end, drawing.LEAVING, "deletion asked for", f"{word}, deletion asked for")
        elif not leaves:
            yield Bar(start, end, drawing.POD, word)


def _recording_lanes(history: History) -> tuple[Lane, ...]:
    """What bears on the recording's worth: gaps, the fence, dead-man's switches, components that ended."""
    bars = tuple(
        Bar(entry.data["since"], entry.t, drawing.GAP, f"no {entry.data['resource']}")
        for entry in history.of_kind("gap")
    )
    marks = [Mark(entry.t, "✕", "dead-man's switch") for entry in history.of_kind("deadman")]
    marks += [
        Mark(entry.t, "▽" if entry.data["expected"] else "▼", f"{entry.data['name']} ended")
        for entry in history.of_kind("component")
    ]
    if history.of_kind("fence"):
        passed = fence(history)
        marks.append(
            Mark(passed.t, "✓", "fence passed") if passed.passed else Mark(passed.t, "✗", "fence failed")
        )
    gaps = (Lane("recording", "gaps", bars),) if bars else ()
    return (*gaps, *stacked(marks, span_of(history), "recording"))


def _bracket(history: History, judgment: Judgment, verdict: Verdict) -> Bracket:
    value, window = verdict.measured, verdict.window
    label = " · ".join(filter(None, (judgment.claim, verdict.label, str(value or ""))))
    tells = window is not None and value is not None and verdict.outcome != "unproven"
    reason = " · ".join(filter(None, (window.arithmetic if window else "", "" if tells else verdict.reason)))
    # A check that raised would raise here, too.
    anchor = None if verdict.code == "check-failed" else _anchor(history, judgment, window)
    if anchor is None or window is None:
        return Bracket(label, verdict.outcome, reason, anchor)
    measured = value.value if value is not None and isinstance(value.value, float) else None
    observed = anchor + measured if measured is not None else None
    negative = window.shape == "negative"
    return Bracket(
        label,
        verdict.outcome,
        reason,
        anchor,
        anchor + window.low_s,
        anchor + window.high_s,
        observed,
        negative,
    )


def _anchor(history: History, judgment: Judgment, window: Window | None) -> float | None:
    stored: Mapping[str, Json] | None = judgment.check.args.get("anchor")
    if stored is None:
        return None
    anchor = Moment.from_json(stored)
    found = moments.find(history, anchor)
    if found is None and window is not None and anchor.name == "last-heartbeat":
        found = moments.long_silence(history, anchor, window.high_s)
    return found.t if found else None
