"""Nodes' clocks: what each was ahead by, as measured in the recording, for as long as nobody set it.

A boot, a thaw and the setting that follows each give a node another clock: what was measured before tells
nothing of it. A node on the host's own clock is read without an error, and nobody has to ask it.

All offsets are against the host's wall clock as it was when the recording began, which nobody sets later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeproof.model.history import Entry, History, parse_time

SETTING, SET = "clock-setting", "clock-set"
"""Steps of a machine between which its clock is set: in between it may tell either time."""
MEASURED_AFTER = ("booted", "restored", "thawed", SET)
"""Steps of a machine after which its clock is measured."""
_NEW_CLOCK = (*MEASURED_AFTER, "reset", SETTING)


@dataclass(frozen=True)
class Reading:
    """What a node's clock was ahead of the harness's when its answer came at `t` (s, monotonic), and half of
    what asking took (s).
    """

    node: str
    t: float
    offset_s: float
    error_s: float


def written_t(history: History, timestamp: str, seen_t: float) -> float:
    """When a node wrote a timestamp (RFC 3339) that was seen at `seen_t`, on the monotonic clock (s), but for
    what its clock was ahead by: whatever the host's clock was set to since then is no matter to a clock of
    the node's own.
    """
    if any(not entry.data["error_s"] for entry in history.of_kind("clock")):
        return history.from_wall(timestamp, seen_t)
    return parse_time(timestamp) - history.wall_offset_s(history.began_t)


def offset_s(history: History, node: str, t: float) -> float | None:
    """What a node's clock was ahead by at `t` (s); None where nobody measured it since it was set.

    By the most exact reading of that clock: two of them would put a step between two renewals.
    """
    set_t = clock_of(history, node, t)
    own = [reading for reading, since_t in _readings(history) if reading.node == node and since_t == set_t]
    return _best(own).offset_s if own else None


def error_s(history: History) -> float | None:
    """How wrong these offsets may be (s): half of what the most exact answer took, and how far a clock was
    seen to move beyond what its other readings left open; None where nobody measured.
    """
    clocks: dict[tuple[str, float], list[Reading]] = {}
    for reading, set_t in _readings(history):
        clocks.setdefault((reading.node, set_t), []).append(reading)
    return max(map(_error_s, clocks.values()), default=None)


def _error_s(readings: Sequence[Reading]) -> float:
    """How wrong the offset of one clock may be (s)."""
    best = _best(readings)
    moved = max(abs(reading.offset_s - best.offset_s) - reading.error_s for reading in readings)
    return max(best.error_s, moved)


def _best(readings: Sequence[Reading]) -> Reading:
    return min(readings, key=lambda reading: reading.error_s)


def _readings(history: History) -> Iterator[tuple[Reading, float]]:
    """The readings of clocks that nobody set meanwhile, each with when its clock was set."""
    for entry in history.of_kind("clock"):
        node, error_s = str(entry.data["node"]), float(entry.data["error_s"])
        set_t = clock_of(history, node, entry.t)
        if set_t is not None and set_t == clock_of(history, node, entry.t - 2 * error_s):
            moved_s = _moved_s(history, entry.t) if error_s else 0.0
            yield Reading(node, entry.t, float(entry.data["offset_s"]) + moved_s, error_s), set_t


def _moved_s(history: History, t: float) -> float:
    """How far the host's wall clock was set from the beginning up to `t` (s)."""
    return history.wall_offset_s(t) - history.wall_offset_s(history.began_t)


def clock_of(history: History, node: str, t: float) -> float | None:
    """When the clock that a node has at `t` was set, which tells one from another; None while it is set."""
    own = (entry for entry in history.of_kind("machine") if entry.data["node"] == node and entry.t <= t)
    last = max((entry for entry in own if entry.data["step"] in _NEW_CLOCK), key=_when, default=None)
    if last is None:
        return float("-inf")
    return None if last.data["step"] == SETTING else last.t


def _when(entry: Entry) -> float:
    return entry.t
