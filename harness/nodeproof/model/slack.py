"""Slack: the time that measuring on this host may add to a true duration, near the recorded times."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodeproof.model import clocks
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.history import Entry, History

BASE_SLACK_S = 0.2
"""Time of a controller between waking up and writing, on an idle host."""
LAB = "lab"
"""Source of a stall that was not measured by the harness."""
NEAR_S = 2.0
"""A stalled process has to catch up, so measurements this long (s) before and after count as well."""
LEAST_STEP_S = 0.001
"""Smallest clock step (s): a smaller difference is an error of reading both clocks."""
_WAIT_REPORT_DELAY_S = 0.5
"""Longest delay (s) with which a CPU wait is recorded after it ended."""


@dataclass(frozen=True)
class Span:
    """An interval of times (s, monotonic), or a single time."""

    since_t: float
    until_t: float

    @classmethod
    def at(cls, t: float) -> Span:
        """Return the span of a single time."""
        return cls(t, t)

    @property
    def length_s(self) -> float:
        """The time from its start to its end (s)."""
        return self.until_t - self.since_t

    def touches(self, other: Span) -> bool:
        """Return whether the spans have a time in common."""
        return self.since_t <= other.until_t and other.since_t <= self.until_t


class Samples:
    """Measurements, each with its time and its value (s), for repeated looks at those near a time."""

    def __init__(self, samples: Iterable[tuple[Span, float]]) -> None:
        self._by_end = sorted(samples, key=lambda sample: sample[0].until_t)
        self._by_start = sorted(self._by_end, key=lambda sample: sample[0].since_t)
        self._ends = [span.until_t for span, _value in self._by_end]
        self._starts = [span.since_t for span, _value in self._by_start]
        self._longest_s = max((span.length_s for span, _value in self._by_end), default=0.0)

    def __iter__(self) -> Iterator[tuple[Span, float]]:
        return iter(self._by_end)

    def worst(self, about: Sequence[Span] | None) -> float:
        """Return the longest of these continuous measurements near `about`; None means all of them."""
        if about is None:
            return max((value for _span, value in self._by_end), default=0.0)
        return max((value for near in _near(about) for value in self._touching(near)), default=0.0)

    def worst_periodic(self, about: Sequence[Span] | None) -> float:
        """Return the longest of these periodic measurements that may have affected `about`.

        Between two measurements there is no data: the nearest ones on both sides, at least one on each side,
        stand for that time.
        """
        worst = self.worst(about)
        for target in about or ():
            before = bisect_left(self._ends, target.since_t)
            after = bisect_right(self._starts, target.until_t)
            nearest = [*self._by_end[max(0, before - 1) : before], *self._by_start[after : after + 1]]
            worst = max([worst, *(value for _span, value in nearest)])
        return worst

    def _touching(self, near: Span) -> Iterator[float]:
        first = bisect_left(self._ends, near.since_t)
        after_last = bisect_right(self._ends, near.until_t + self._longest_s)
        for span, value in self._by_end[first:after_last]:
            if span.since_t <= near.until_t:
                yield value


@dataclass(frozen=True)
class Disturbances:
    """What disturbed a recording: stalls of the harness and of the lab, and the latencies of sentinels."""

    harness: Samples
    lab: Samples
    sentinels: Samples

    @classmethod
    def of(cls, history: History) -> Disturbances:
        """Return those of a recording, which are collected once."""
        return history.derived(cls._collect)

    @classmethod
    def _collect(cls, history: History) -> Disturbances:
        stalls = history.of_kind("stall")
        return cls(
            Samples(_stall(entry) for entry in stalls if entry.data.get("by") != LAB),
            Samples(_stall(entry) for entry in stalls if entry.data.get("by") == LAB),
            Samples(map(_sentinel, history.of_kind("sentinel"))),
        )


def hull(spans: Sequence[Span]) -> Span:
    """Return the span from the earliest to the latest of these times; there must be at least one."""
    return Span(min(span.since_t for span in spans), max(span.until_t for span in spans))


def slack_s(history: History, configuration: Configuration, about: Sequence[Span] | None = None) -> float:
    """Return the time (s) that measuring on this host may add to a true duration.

    This includes the possible error of recorded times. Only measurements near `about` count; None means the
    whole recording.
    """
    return _measured_s(history, configuration, about) + misread_s(history, configuration, about)


def misread_s(history: History, configuration: Configuration, about: Sequence[Span] | None = None) -> float:
    """Return the possible error (s) of times that were recorded near `about`, in either direction.

    None means the whole recording. The error is the size of the steps of the host's wall clock, plus the
    delay of a watch that had no gap and whose sentinels were on time.
    """
    explained_s = max(BASE_SLACK_S, _measured_s(history, configuration, about) - BASE_SLACK_S)
    late_writes = (write for write in history.late if write.least_s > explained_s)
    held_back = Samples((Span(write.t - write.late_s, write.t), write.late_s) for write in late_writes)
    return step_s(history, about) + held_back.worst(about)


def _measured_s(history: History, configuration: Configuration, about: Sequence[Span] | None) -> float:
    """Return the time that measuring takes on this host (s).

    Base plus twice the worst watch latency (calibrated, or of a sentinel: once for the anchor, once for the
    event), the error of the nodes' clock offsets, the API's resolution, the longest delays with which the
    harness and the lab were woken, and the error of the times of witnesses on the nodes. Sentinels and stalls
    only count if they may have affected these times.
    """
    calibration = configuration.calibration
    disturbances = Disturbances.of(history)
    witness_error_s = max((entry.data["error_s"] for entry in history.of_kind("heard")), default=0.0)
    return (
        BASE_SLACK_S
        + 2 * _watch_latency_s(history, configuration, about)
        + _clock_error_s(history, calibration)
        + calibration.api_resolution_s
        + disturbances.harness.worst_periodic(about)
        + disturbances.lab.worst(about)
        + witness_error_s
    )


def _watch_latency_s(history: History, configuration: Configuration, about: Sequence[Span] | None) -> float:
    """Return the worst watch latency (s): calibrated, or of a sentinel that may have affected `about`."""
    latency_s = Disturbances.of(history).sentinels.worst_periodic(about)
    return max(configuration.calibration.watch_latency_s, latency_s)


def step_s(history: History, about: Sequence[Span] | None = None) -> float:
    """Return the size of the steps (s) of the host's wall clock that may have affected the times `about`.

    None means the whole recording. A time that was written on that clock may be this much too early or too
    late.
    """
    offsets_s = [offset_s for _since_t, offset_s in history.wall_offsets]
    steps = zip(
        history.of_kind("wall"), (after - before for before, after in pairwise(offsets_s)), strict=True
    )
    is_near = _is_near(about)
    near_steps = (abs(moved_s) for entry, moved_s in steps if is_near(_ambiguous_span(entry, moved_s)))
    return _unseen_step_s(history) + sum(near_steps)


def longest_slack_s(history: History, configuration: Configuration) -> float:
    """Return the slack (s) for the whole recording, with misread times limited to the slack limit.

    Beyond that limit nothing can be proven, and waiting longer is useless.
    """
    misread_time_s = min(misread_s(history, configuration), configuration.slack_limit_s)
    return _measured_s(history, configuration, None) + misread_time_s


def waited_s(history: History, within: Span, working: Sequence[Span] = ()) -> float:
    """Return the longest possible wait (s) of a change in the lab, from its anchor to its event.

    The waits that began or ended just before the event count, and those in `working`, each without its part
    before the anchor or after the event. A change passes through processes one after another: their CPU
    waits add up, and so do stalls of the whole lab that are too close to each other for all processes to act
    in between. The sum is not slack: it can excuse a late event, but not make it timely. Stalls of the
    harness do not add up: it receives whatever is due each time it is woken.
    """
    times = [Span(within.until_t - NEAR_S, within.until_t), *working]
    return sum(
        min(wait_s, Span(max(wait.since_t, within.since_t), min(wait.until_t, within.until_t)).length_s)
        for wait, wait_s in _lab_waits(history)
        if wait.touches(within) and any(map(wait.touches, times))
    )


def working_until_t(history: History, since_t: float) -> float:
    """Return until when (s) a change that began at `since_t` may be under way: `NEAR_S` after its waits."""
    until_t = since_t + NEAR_S
    for wait in sorted((wait for wait, _wait_s in _lab_waits(history)), key=lambda wait: wait.since_t):
        if wait.touches(Span(since_t, until_t)):
            until_t = max(until_t, wait.until_t + NEAR_S)
    return until_t


def _lab_waits(history: History) -> Iterator[tuple[Span, float]]:
    """Yield the possible time of each stall and CPU wait of the lab, and its length (s)."""
    for entry in history.of_kind("stall"):
        if entry.data.get("by") == LAB:
            wait_s = float(entry.data.get("waited_s", entry.data["late_s"]))
            yield Span(entry.t - wait_s - _WAIT_REPORT_DELAY_S, entry.t), wait_s


def loses_nodes_s(configuration: Configuration) -> float:
    """Return for how long (s) a lab can stall without losing a node.

    When it resumes, its controller may act before the next heartbeats arrive, and the last ones were R old,
    with jitter.

    Raises:
        KeyError: G or R is not known.
    """
    return configuration["G"] - 2 * configuration["R"]


def longest_stall_s(history: History, before_t: float = math.inf) -> float:
    """Return the longest stall (s) of the lab until a time (s).

    Stalls closer to each other than `NEAR_S` are added up.
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
    """Return the slack (s) without stalls and clock steps, and with the best watch latency."""
    calibrated = configuration.calibration.watch_latency_s
    best = _best_latency_s(history, configuration)
    return _measured_s(history, configuration, []) + 2 * (best - calibrated)


def late_anchor_s(history: History, configuration: Configuration, anchor: Span) -> float:
    """Return how much later (s) than on an undisturbed host an anchor may have been recorded.

    Slack counts the watch latency of an anchor and of its event; here the one of the anchor counts alone.
    """
    added_s = slack_s(history, configuration, [anchor]) - undisturbed_s(history, configuration)
    latency_s = _watch_latency_s(history, configuration, [anchor])
    return added_s - (latency_s - _best_latency_s(history, configuration))


def _best_latency_s(history: History, configuration: Configuration) -> float:
    best = min((latency_s for _span, latency_s in Disturbances.of(history).sentinels), default=0.0)
    return max(configuration.calibration.watch_latency_s, best)


def worst_moment_s(history: History, configuration: Configuration, within: Span) -> float:
    """Return the largest slack (s) at any single time of a span.

    The worst stall and the worst sentinel of a long span need not be near each other.
    """
    disturbances, is_near = Disturbances.of(history), _is_near([within])
    samples = (*disturbances.sentinels, *disturbances.harness, *disturbances.lab)
    # Most disturbances count together where the time near one of them begins.
    near = (span.since_t - NEAR_S for span, _value in samples if is_near(span))
    times = {within.since_t, *(max(t, within.since_t) for t in near if t <= within.until_t)}
    worst_s = max(_measured_s(history, configuration, [Span.at(t)]) for t in times)
    return worst_s + misread_s(history, configuration, [within])


def calmest_s(latencies_s: Sequence[float], in_a_row: int, none_s: float) -> float:
    """Return the worst of the calmest `in_a_row` successive latencies (s); `none_s` if there are fewer."""
    ends = range(in_a_row, len(latencies_s) + 1)
    return min((max(latencies_s[end - in_a_row : end]) for end in ends), default=none_s)


def _sentinel(entry: Entry) -> tuple[Span, float]:
    """Return the time from sending a sentinel until its delivery or timeout, and its worst latency (s)."""
    worst = max((entry.data.get("latency_s") or {}).values(), default=0.0)
    since_t = min((entry.data.get("sent_t") or {}).values(), default=entry.t - worst)
    return Span(since_t, entry.t), worst


def _stall(entry: Entry) -> tuple[Span, float]:
    """Return the time of a stall of the harness or the lab, and its length (s)."""
    late_s = float(entry.data["late_s"])
    return Span(entry.t - late_s, entry.t), late_s


def _near(about: Sequence[Span]) -> Sequence[Span]:
    """Return the times near `about`, in time order and without overlaps."""
    merged: list[Span] = []
    for target in sorted(about, key=lambda target: target.since_t):
        near = Span(target.since_t - NEAR_S, target.until_t + NEAR_S)
        if merged and merged[-1].touches(near):
            near = hull([merged.pop(), near])
        merged.append(near)
    return merged


def _is_near(about: Sequence[Span] | None) -> Callable[[Span], bool]:
    """Return a test of whether a measurement may have affected `about`; None means the whole recording."""
    if about is None:
        return lambda _span: True
    merged = _near(about)
    return lambda span: any(map(span.touches, merged))


def _clock_error_s(history: History, calibration: Calibration) -> float:
    """Return the error of nodes' clocks (s); the whole offset if the recording did not measure them."""
    measured_s = clocks.error_s(history)
    offsets_s = calibration.clock_offset_s.values()
    return max(map(abs, offsets_s), default=0.0) if measured_s is None else measured_s


def _ambiguous_span(step: Entry, moved_s: float) -> Span:
    """Return the times for which a stepped wall clock showed two values."""
    back_s = max(0.0, -moved_s)
    return Span(float(step.data["since"]) - back_s, step.t + back_s)


def _unseen_step_s(history: History) -> float:
    """Return the size of clock steps (s) without an entry.

    Recordings of earlier versions only have the offset at the end.
    """
    ended = history.of_kind("ended")
    ended_at = ended[-1].data.get("wall_offset_s") if ended else None
    if ended_at is None or "wall_offset_s" not in history.begun:
        return 0.0
    moved_s = abs(float(ended_at) - history.wall_offset_s(history.ended_t))
    return moved_s if moved_s > LEAST_STEP_S else 0.0
