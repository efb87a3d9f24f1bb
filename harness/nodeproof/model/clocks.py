"""Offsets of nodes' clocks, as measured in the recording, until a clock is set.

A boot, a thaw and the clock setting that follows each give a node another clock: earlier readings do not
apply to it. A node on the host's own clock has no error and is not measured.

All offsets are relative to the host's wall clock at the start of the recording, which later steps do not
change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeproof.model.history import Entry, History, parse_time

SETTING, SET = "clock-setting", "clock-set"
"""Steps of a machine between which its clock is set; in between it may show either time."""
MEASURED_AFTER = ("booted", "restored", "thawed", SET)
"""Steps of a machine after which its clock is measured."""
_NEW_CLOCK = (*MEASURED_AFTER, "reset", SETTING)


@dataclass(frozen=True)
class Reading:
    """Offset of a node's clock at `t` (s, monotonic), and its error: half of the request's duration (s)."""

    node: str
    t: float
    offset_s: float
    error_s: float


def written_t(history: History, timestamp: str, received_t: float) -> float:
    """Return when a node wrote a timestamp (RFC 3339), on the monotonic clock (s).

    The result does not include the offset of the node's clock. `received_t` is when the timestamp was
    received. Later steps of the host's clock do not matter for a node with its own clock.
    """
    if any(not entry.data["error_s"] for entry in history.of_kind("clock")):
        return history.from_wall(timestamp, received_t)
    return parse_time(timestamp) - history.wall_offset_s(history.began_t)


def offset_s(history: History, node: str, t: float) -> float | None:
    """Return the offset of a node's clock at `t` (s); None if it was not measured since it was set.

    The most exact reading of that clock is used: two readings would put a step between two renewals.
    """
    set_t = clock_of(history, node, t)
    readings = [
        reading for reading, since_t in _readings(history) if reading.node == node and since_t == set_t
    ]
    return _best(readings).offset_s if readings else None


def error_s(history: History) -> float | None:
    """Return the largest error of these offsets (s); None without readings.

    This is half the duration of the most exact request, or the movement of a clock beyond the error of its
    other readings, whichever is larger.
    """
    return history.derived(_largest_error_s)


def _largest_error_s(history: History) -> float | None:
    by_clock: dict[tuple[str, float], list[Reading]] = {}
    for reading, set_t in _readings(history):
        by_clock.setdefault((reading.node, set_t), []).append(reading)
    return max(map(_error_s, by_clock.values()), default=None)


def _error_s(readings: Sequence[Reading]) -> float:
    """Return the largest error of one clock's offset (s)."""
    best = _best(readings)
    moved = max(abs(reading.offset_s - best.offset_s) - reading.error_s for reading in readings)
    return max(best.error_s, moved)


def _best(readings: Sequence[Reading]) -> Reading:
    return min(readings, key=lambda reading: reading.error_s)


def _readings(history: History) -> Iterator[tuple[Reading, float]]:
    """Yield the readings of clocks that were not set meanwhile, each with its clock's setting time."""
    for entry in history.of_kind("clock"):
        node, error_s = str(entry.data["node"]), float(entry.data["error_s"])
        set_t = clock_of(history, node, entry.t)
        if set_t is not None and set_t == clock_of(history, node, entry.t - 2 * error_s):
            moved_s = _moved_s(history, entry.t) if error_s else 0.0
            yield Reading(node, entry.t, float(entry.data["offset_s"]) + moved_s, error_s), set_t


def _moved_s(history: History, t: float) -> float:
    """Return the sum of the steps of the host's wall clock from the start up to `t` (s)."""
    return history.wall_offset_s(t) - history.wall_offset_s(history.began_t)


def clock_of(history: History, node: str, t: float) -> float | None:
    """Return when the node's clock at `t` was set, which identifies the clock; None while it is being set."""
    node_steps = (
        entry for entry in history.of_kind("machine") if entry.data["node"] == node and entry.t <= t
    )
    last = max((entry for entry in node_steps if entry.data["step"] in _NEW_CLOCK), key=_when, default=None)
    if last is None:
        return float("-inf")
    return None if last.data["step"] == SETTING else last.t


def _when(entry: Entry) -> float:
    return entry.t
