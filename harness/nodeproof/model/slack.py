"""Slack: what measuring on this host may add to a true duration, by the times that it was read off at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodeproof.model import clocks
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.history import Entry, History

BASE_SLACK_S = 0.2
"""What a controller may take between waking up and writing, on an idle host."""
LAB = "lab"
"""Who wrote a stall down, where that was not the harness."""
NEAR_S = 2.0
"""What stood still has to catch up: so long before and after, a measurement counts too."""
_WHOLE_SECONDS_S = 1.0
"""How exactly the API says when something was written."""
LEAST_STEP_S = 0.001
"""So far apart do both clocks of a host move by a step at the least: less is due to how they are read."""
TOLD_WITHIN_S = 0.5
"""So much later a wait is told of, at the most."""


@dataclass(frozen=True)
class Span:
    """Times (s, monotonic) from one to another, or one time."""

    since_t: float
    until_t: float

    @classmethod
    def at(cls, t: float) -> Span:
        """One time."""
        return cls(t, t)

    def touches(self, other: Span) -> bool:
        """Whether they have a time in common."""
        return self.since_t <= other.until_t and other.since_t <= self.until_t


def hull(spans: Sequence[Span]) -> Span:
    """From the earliest to the latest of these times; there is at least one."""
    return Span(min(span.since_t for span in spans), max(span.until_t for span in spans))


def slack_s(history: History, configuration: Configuration, about: Sequence[Span] | None = None) -> float:
    """What measuring on this host may add to a true duration (s) that was read off at the times `about`;
    anywhere in the recording where none are told: what it takes, and by how much times may be read wrong.
    """
    return _measured_s(history, configuration, about) + misread_s(history, configuration, about)


def misread_s(history: History, configuration: Configuration, about: Sequence[Span] | None = None) -> float:
    """By how much times may have been read wrong (s) that were read off at the times `about`; anywhere in the
    recording where none are told. They may be so much too late, or too early: how far the host's wall clock
    was set, and for how long a watch kept back what it delivered while it was neither blind nor, by its
    sentinels, slow.
    """
    explained_s = max(BASE_SLACK_S, _measured_s(history, configuration, about) - BASE_SLACK_S)
    late = ((Span(late.t - late.late_s, late.t), late.late_s) for late in history.late)
    kept_s = _worst_near((pair for pair in late if pair[1] > _WHOLE_SECONDS_S + explained_s), about)
    return step_s(history, about) + kept_s


def _measured_s(history: History, configuration: Configuration, about: Sequence[Span] | None) -> float:
    """What measuring takes on this host (s).

    Base plus twice the worst watch latency (calibrated, or seen by a sentinel: one for the anchor, one for
    the event), how wrong the offsets of nodes' clocks may be, the API's resolution, the longest times that
    the harness and that the lab were not woken, and how wrong the times of witnesses on the nodes may be. Of
    sentinels and stalls count those that can have touched these times.
    """
    calibration = configuration.calibration
    stalls = history.of_kind("stall")
    told = max((entry.data["error_s"] for entry in history.of_kind("heard")), default=0.0)
    return (
        BASE_SLACK_S
        + 2 * max(calibration.watch_latency_s, _worst(map(_sentinel, history.of_kind("sentinel")), about))
        + _clock_error_s(history, calibration)
        + calibration.api_resolution_s
        + _worst((_stall(entry) for entry in stalls if entry.data.get("by") != LAB), about)
        + _worst_near((_stall(entry) for entry in stalls if entry.data.get("by") == LAB), about)
        + told
    )


def step_s(history: History, about: Sequence[Span] | None = None) -> float:
    """How far the host's wall clock was set (s) where that can have touched the times `about`; anywhere in
    the recording where none are told. A time that was written on that clock may be so much earlier, or later.
    """
    offsets_s = [offset_s for _since_t, offset_s in history.wall_offsets]
    set_by = zip(
        history.of_kind("wall"), (after - before for before, after in pairwise(offsets_s)), strict=True
    )
    near = (abs(moved_s) for entry, moved_s in set_by if _is_near(_told_twice(entry, moved_s), about))
    return _unseen_step_s(history) + sum(near)


def longest_slack_s(history: History, configuration: Configuration) -> float:
    """The slack (s) anywhere in the recording, where what was read wrong counts for no more than the limit of
    it: nothing is told beyond that, and nobody has to wait for it.
    """
    misread = min(misread_s(history, configuration), configuration.slack_limit_s)
    return _measured_s(history, configuration, None) + misread


def waited_before_s(history: History, t: float) -> float:
    """How long (s), at most, what came at `t` may have waited in the lab for one processor after another.

    What a change goes through it waits for in turn. As a sum of all of it this is no slack: it takes a
    lateness its meaning, and nothing becomes timely by it.
    """
    return sum(
        float(entry.data["waited_s"])
        for entry in history.of_kind("stall")
        if "waited_s" in entry.data and t - NEAR_S <= entry.t <= t + TOLD_WITHIN_S
    )


def loses_nodes_s(configuration: Configuration) -> float:
    """For how long (s) a lab may stand still, at the most, and lose no node. When it goes on, its controller
    may act before the next heartbeats are there, and the last ones were R old, with jitter. Raises KeyError
    where G or R is not known.
    """
    return configuration["G"] - 2 * configuration["R"]


def stood_still_s(history: History, before_t: float = math.inf) -> float:
    """For how long (s) the lab was not woken until a time (s): in one piece, or in several that are closer to
    each other than `NEAR_S`.
    """
    longest_s, added_s, ended_t = 0.0, 0.0, -math.inf
    for entry in history.of_kind("stall"):
        if entry.data.get("by") != LAB or "waited_s" in entry.data:
            continue
        span, late_s = _stall(entry)
        if span.since_t >= before_t:
            break
        added_s = late_s + (added_s if span.since_t - ended_t < NEAR_S else 0.0)
        longest_s, ended_t = max(longest_s, added_s), span.until_t
    return longest_s


def undisturbed_s(history: History, configuration: Configuration) -> float:
    """The slack (s) where nothing stood still, no clock was set, and watches were at their best."""
    best = min((_sentinel(entry)[1] for entry in history.of_kind("sentinel")), default=0.0)
    calibrated = configuration.calibration.watch_latency_s
    return _measured_s(history, configuration, []) + 2 * max(0.0, best - calibrated)


def _sentinel(entry: Entry) -> tuple[Span, float]:
    """From when a sentinel was sent first until it was back or given up, and its worst latency (s)."""
    worst = max((entry.data.get("latency_s") or {}).values(), default=0.0)
    since_t = min((entry.data.get("sent_t") or {}).values(), default=entry.t - worst)
    return Span(since_t, entry.t), worst


def _stall(entry: Entry) -> tuple[Span, float]:
    """The time for which the harness, or the lab, was not woken, and its length (s)."""
    late_s = float(entry.data["late_s"])
    return Span(entry.t - late_s, entry.t), late_s


def _worst(measured: Iterable[tuple[Span, float]], about: Sequence[Span] | None) -> float:
    """The longest of what was measured that can have touched `about`.

    Between two measurements nobody looked: what happened there is vouched for by those near it on both sides,
    and by one on each side at least.
    """
    everything = list(measured)
    if about is None:
        return max((took for _span, took in everything), default=0.0)
    worst = _worst_near(everything, about)
    for span in about:
        before = [took for seen, took in everything if seen.until_t < span.since_t]
        after = [took for seen, took in everything if seen.since_t > span.until_t]
        worst = max([worst, *before[-1:], *after[:1]])
    return worst


def _worst_near(measured: Iterable[tuple[Span, float]], about: Sequence[Span] | None) -> float:
    """The longest of what was measured near `about`, by somebody who looked all the time."""
    return max((took for seen, took in measured if _is_near(seen, about)), default=0.0)


def _is_near(seen: Span, about: Sequence[Span] | None) -> bool:
    """Whether something can have touched `about`, which is everywhere where it is not told."""
    if about is None:
        return True
    return any(seen.touches(Span(span.since_t - NEAR_S, span.until_t + NEAR_S)) for span in about)


def _clock_error_s(history: History, calibration: Calibration) -> float:
    """What is not known of nodes' clocks (s); all of it in a recording that did not measure them."""
    measured = clocks.error_s(history)
    told = calibration.clock_offset_s.values()
    return max(map(abs, told), default=0.0) if measured is None else measured


def _told_twice(step: Entry, moved_s: float) -> Span:
    """The times in which a wall clock that was set told what it told at others, too."""
    back_s = max(0.0, -moved_s)
    return Span(float(step.data["since"]) - back_s, step.t + back_s)


def _unseen_step_s(history: History) -> float:
    """How far the host's wall clock was set (s) at times that no entry tells: recordings of earlier versions
    tell what it came to in the end.
    """
    ended = history.of_kind("ended")
    ended_at = ended[-1].data.get("wall_offset_s") if ended else None
    if ended_at is None or "wall_offset_s" not in history.begun:
        return 0.0
    moved_s = abs(float(ended_at) - history.wall_offset_s(history.ended_t))
    return moved_s if moved_s > LEAST_STEP_S else 0.0
