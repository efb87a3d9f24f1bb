"""Nodes' clocks: what each was ahead by, as measured in the recording, for as long as nobody set it.

A boot, a thaw and the setting that follows each give a node another clock: what was measured before tells
nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeproof.model.history import Entry, History

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


def offset_s(history: History, node: str, t: float) -> float | None:
    """What a node's clock was ahead by at `t` (s); None where nobody measured it since it was set.

    By the most exact reading of that clock: two of them would put a step between two renewals.
    """
    set_t = clock_of(history, node, t)
    own = [entry for entry, since_t in _readings(history) if entry.data["node"] == node and since_t == set_t]
    return float(_best(own).data["offset_s"]) if own else None


def error_s(history: History) -> float | None:
    """How wrong these offsets may be (s): half of what the most exact answer took, and how far a clock was
    seen to move beyond what its other readings left open; None where nobody measured.
    """
    clocks: dict[tuple[str, float], list[Entry]] = {}
    for entry, set_t in _readings(history):
        clocks.setdefault((entry.data["node"], set_t), []).append(entry)
    return max(map(_error_s, clocks.values()), default=None)


def _error_s(readings: Sequence[Entry]) -> float:
    """How wrong the offset of one clock may be (s)."""
    best = _best(readings).data
    moved: float = max(
        abs(entry.data["offset_s"] - best["offset_s"]) - entry.data["error_s"] for entry in readings
    )
    return max(float(best["error_s"]), moved)


def _best(readings: Sequence[Entry]) -> Entry:
    return min(readings, key=lambda entry: entry.data["error_s"])


def _readings(history: History) -> Iterator[tuple[Entry, float]]:
    """The readings of clocks that nobody set meanwhile, each with when its clock was set."""
    for entry in history.of_kind("clock"):
        asked_t = entry.t - 2 * entry.data["error_s"]
        set_t = clock_of(history, entry.data["node"], entry.t)
        if set_t is not None and set_t == clock_of(history, entry.data["node"], asked_t):
            yield entry, set_t


def clock_of(history: History, node: str, t: float) -> float | None:
    """When the clock that a node has at `t` was set, which tells one from another; None while it is set."""
    own = (entry for entry in history.of_kind("machine") if entry.data["node"] == node and entry.t <= t)
    last = max((entry for entry in own if entry.data["step"] in _NEW_CLOCK), key=_when, default=None)
    if last is None:
        return float("-inf")
    return None if last.data["step"] == SETTING else last.t


def _when(entry: Entry) -> float:
    return entry.t
