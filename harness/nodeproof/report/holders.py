"""Who holds which disk: a volume's attachments to nodes, and what its driver was asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.model.history import SENTINEL_ANNOTATION, History, Version
from nodeproof.report import drawing
from nodeproof.report.drawing import Bar, Lane, Mark
from nodeproof.report.lanes import Life, ends, is_going, lives, runs, span_of, stacked

Json = Any
ATTACHMENTS = "volumeattachments"
DRIVER = "csi.nodeproof.dev"
"""Whose volumes are a scenario's own: the driver of the fault `volumes`."""
MOST_VOLUMES = 6
"""Volumes that are shown, the scenario's own first, then those to which most happened."""
MOST_WORDS, MOST_ROWS = 60, 3
"""Calls about a volume that are shown with their words, and the rows that they may take."""

_WORDS = {
    drawing.ATTACHING: "attaching to {}",
    drawing.ATTACHED: "on {}",
    drawing.DETACHING: "detaching from {}",
}
_CALLS = {
    "ControllerPublishVolume": ("⊕", "publish"),
    "ControllerUnpublishVolume": ("⊖", "unpublish"),
    "NodeStageVolume": ("⊙", "stage"),
}
_WELL = ": OK"
# As `VolumeCalls.by` in nodeproof/sources/volumes.py; a claim of the fault and its volume share their name.
_ASKED = re.compile(r"driver asked about (\S+)(?: by \S+)?")


@dataclass(frozen=True)
class _Hold:
    """One attachment of a volume to a node."""

    node: str
    life: Life


def volume_lanes(history: History) -> tuple[Lane, ...]:
    """A lane for each volume that is a scenario's own, or whose attachments changed in the recording.

    Attachments that were there at one time are in rows of their own, one below the other.
    """
    calls = _calls(history)
    held = {
        volume: holds
        for volume, holds in _holds(history).items()
        if volume in calls or any(_is_shown(history, hold.life) for hold in holds)
    }
    own = {volume for volume, holds in held.items() if any(_is_own(hold.life) for hold in holds)} | {*calls}
    volumes = sorted({*held, *calls}, key=lambda each: (each not in own, -len(held.get(each, ())), each))
    found = [
        lane
        for volume in sorted(volumes[:MOST_VOLUMES])
        for lane in _lanes(history, volume, held.get(volume, ()), calls.get(volume, ()))
    ]
    if len(volumes) > MOST_VOLUMES:
        found.append(Lane("", f"{len(volumes) - MOST_VOLUMES} quieter volumes"))
    return tuple(found)


def _holds(history: History) -> Mapping[str, Sequence[_Hold]]:
    """The attachments of each volume, by their beginnings; the recording's own sentinel is none."""
    names: dict[str, bool] = {}
    for version in history.all_versions(ATTACHMENTS):
        meta = version.object["metadata"]
        is_sentinel = SENTINEL_ANNOTATION in (meta.get("annotations") or {})
        names[meta["name"]] = names.get(meta["name"], False) or is_sentinel
    found: dict[str, list[_Hold]] = {}
    for name in (name for name, is_sentinel in names.items() if not is_sentinel):
        for life in lives(history, ATTACHMENTS, "", name):
            spec = life.seen[0].object["spec"]
            volume = (spec.get("source") or {}).get("persistentVolumeName") or f"of {name}"
            found.setdefault(str(volume), []).append(_Hold(str(spec.get("nodeName", "")), life))
    return {volume: sorted(holds, key=lambda hold: hold.life.start) for volume, holds in found.items()}


def _is_own(life: Life) -> bool:
    return bool(life.seen[0].object["spec"].get("attacher") == DRIVER)


def _is_shown(history: History, life: Life) -> bool:
    """Whether an attachment is the scenario's own, or changed while it was recorded."""
    if _is_own(life) or life.is_gone:
        return True
    listed = (entry.t for entry in history.of_kind("listed") if entry.data["resource"] == ATTACHMENTS)
    was_there = life.seen[0].listed and life.start <= next(listed, life.start)
    return not was_there or len({_state(version) for version in life.states()}) > 1


def _lanes(history: History, volume: str, holds: Sequence[_Hold], calls: Sequence[Mark]) -> Iterator[Lane]:
    group, span = f"volume {volume}", span_of(history)
    for at, row in enumerate(_rows(holds)):
        bars = tuple(bar for hold in row for bar in _bars(volume, hold, history.ended_t))
        marks = ends([hold.life for hold in row], "detached", span)
        yield Lane(group, "held at the same time" if at else "held", bars, marks)
    yield from _call_lanes(group, span, calls)


def _call_lanes(group: str, span: float, calls: Sequence[Mark]) -> Iterator[Lane]:
    """Calls with their words; where those need too many rows, a row of ticks for each method."""
    if 0 < len(calls) <= MOST_WORDS:
        rows = stacked(calls, span, group, "what its driver was asked")
        if len(rows) <= MOST_ROWS:
            yield from rows
            return
    for method, (sign, _) in _CALLS.items():
        made = [mark for mark in calls if mark.sign == sign]
        failed = sum(not mark.tip.endswith(_WELL) for mark in made)
        said = f"{method}: {len(made)}{f', {failed} not OK' if failed else ''}"
        if made:
            yield Lane(group, said, marks=tuple(Mark(mark.t, drawing.TICK) for mark in made))


def _rows(holds: Sequence[_Hold]) -> list[list[_Hold]]:
    """As few rows as show each attachment whole."""
    rows: list[list[_Hold]] = []
    for hold in holds:
        row = next((row for row in rows if row[-1].life.end <= hold.life.start), None)
        if row is None:
            row = []
            rows.append(row)
        row.append(hold)
    return rows


def _bars(volume: str, hold: _Hold, ended_t: float) -> Iterator[Bar]:
    states = [(version.t, _state(version)) for version in hold.life.states()]
    for start, end, state in runs(states, hold.life.end):
        word = _WORDS[state].format(hold.node)
        is_last = end == ended_t and not hold.life.is_gone
        yield Bar(
            start, end, state, word, f"{volume}: {word}{' until the recording ended' if is_last else ''}"
        )


def _state(version: Version) -> str:
    if is_going(version):
        return drawing.DETACHING
    attached = (version.object.get("status") or {}).get("attached")
    return drawing.ATTACHED if attached else drawing.ATTACHING


def _calls(history: History) -> Mapping[str, Sequence[Mark]]:
    """What the driver was asked about each volume, each call once, whoever asked what it was asked."""
    found: dict[str, dict[tuple[float, str], Mark]] = {}
    for entry in history.of_kind("told"):
        about = _ASKED.fullmatch(str(entry.data.get("by")))
        method, _, rest = str(entry.data.get("what")).partition(" ")
        if about is None or method not in _CALLS:
            continue
        node, _, code = rest.partition(" ")
        sign, word = _CALLS[method]
        said = f"{word} {node}" if code == "OK" else f"{word} {node}: {code}"
        mark = Mark(entry.t, sign, said, f"{method} {node}: {code}")
        found.setdefault(about[1], {}).setdefault((entry.t, mark.tip), mark)
    return {volume: tuple(marks.values()) for volume, marks in found.items()}
