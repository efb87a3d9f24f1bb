"""Checks of repeated events: their number, rate, back-off, bursts and bytes between two moments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from nodeproof.checks import moments, shapes
from nodeproof.checks.checks import (
    Args,
    Case,
    Measurement,
    Times,
    Undecided,
    between,
    events_of_bursts,
    indiscernible,
    measures,
    moments_in,
    outliers_of,
    require,
    unfenced,
    window_of,
)
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.pattern import Json
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Outlier
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute


def _times(history: History, args: Args, *_: object) -> Times:
    return [between(history, *moments_in(args, "anchor", "until"))]


def _all_times(history: History, event: Moment) -> list[float]:
    return [occurrence.t for occurrence in moments.occurrences(history, event)]


def _times_of(history: History, event: Moment, within: Span) -> list[float]:
    """Return the times (s) of an event between two moments."""
    return [t for t in _all_times(history, event) if within.since_t <= t <= within.until_t]


def _every(events: Sequence[Moment], within: Span, if_missed: str = "") -> Measurement:
    """Return the evidence for a measurement of every occurrence within a time."""
    if_missed = if_missed or f"{events[0]} may have occurred more often"
    return Measurement("", read=within, complete=events, complete_t=within.until_t, if_missed=if_missed)


def _invalid_range(low: int, high: int, **_: object) -> str:
    return "" if 0 <= low <= high else f"invalid range: {low} to {high} (need 0 <= low <= high)"


@measures("counted", times=_times, refuse=_invalid_range, after="anchor")
def counted(case: Case, event: Moment, low: int, high: int, *, after: Moment, until: Moment) -> Measurement:
    """Check that an event occurs `low` to `high` times between two moments.

    If it does not occur, its object must have existed all the time.

    Raises:
        ValueError: The range is invalid.
    """
    history, slack_s = case.history, case.context.slack_s
    within = between(history, after, until)
    times = _all_times(history, event)
    state = moments.find_state(history, event, within.since_t + slack_s) if high == 0 else None
    if state is not None:
        # An object that was created in the state, in place of one that was not, breaks an absence, too.
        times = sorted({*times, state.t})
    count_min, count_max = _count(times, within, -slack_s), _count(times, within, slack_s)
    reason = f"{event} occurred {count_min} times in {within.until_t - within.since_t:.2f} s"
    # Events that a watch delivers after a gap may have occurred at any time in it, also just outside, and
    # before the start if the gap begins near it.
    since_t = min(within.since_t, max(within.since_t - slack_s, history.began_t))
    until_t = max(within.until_t, min(within.until_t + slack_s, history.ended_t))
    measurement = replace(
        _every([event], within),
        reason=reason,
        measured=Measured(float(count_min)),
        read=Span(since_t, until_t),
        exact=(Span(since_t, within.since_t + slack_s), Span(within.until_t, until_t)),
        if_lost=f"{reason}, possibly more",
    )
    if count_min > high:
        return replace(measurement, reason=f"{reason}, at most {high} expected", finding="deviates")
    if count_max < low:
        return replace(measurement, reason=f"{reason}, at least {low} expected", finding="lacks")
    possible = count_max - _count_before(times, event, after, Span(within.since_t - slack_s, within.since_t))
    certain = Span(within.since_t + slack_s, within.until_t - slack_s)
    unable = "" if possible else moments.vacuous(history, event, certain)
    doubt = f"and could not occur: {unable}" if unable else ""
    if not unable and (count_min < low or possible > high):
        doubt = f"{count_max} including those within the slack of an end"
    if doubt:
        return replace(measurement, reason=f"{reason}, {doubt}", measured=None, code="gap")
    return measurement


def _count(times: list[float], within: Span, slack_s: float) -> int:
    return sum(within.since_t - slack_s <= t <= within.until_t + slack_s for t in times)


def _count_before(times: list[float], event: Moment, after: Moment, ahead: Span) -> int:
    """Return how many of the events just before a moment certainly occurred before it.

    A watch delivers nothing before it occurs, and an action of the harness has no later time than its record.
    """
    if not moments.is_on_our_clock(after) or not moments.is_watched(event):
        return 0
    return sum(ahead.since_t <= t < ahead.until_t for t in times)


_MOST_UNSURE = 0.25
"""Highest uncertainty, as a share of the mean, that still excludes half and double the rate. A stall shifts
one occurrence, not several in a row.
"""
_WAITS = 2
"""Extra gaps to wait for: one before the first occurrence, and one for a late last occurrence."""


def _remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float | None:
    event, anchor = moments_in(args, "event", "anchor")
    start, min_gaps = require(history, anchor), max(1, int(args["at_least"]))
    if len(_times_of(history, event, Span(start.t, history.ended_t))) > min_gaps:
        return 0.0
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    return start.t + (min_gaps + _WAITS) * window.high_s - now_t


@measures("spaced", times=_times, remaining_s=_remaining_s, after="anchor")
def spaced(
    case: Case, event: Moment, window: WindowSpec, *, at_least: int, after: Moment, until: Moment
) -> Measurement:
    """Check that each occurrence of an event comes `window` after the previous, at least `at_least` times.

    The check covers the time between two moments, in which there must always be work waiting.
    """
    context, within, min_gaps = case.context, between(case.history, after, until), max(1, at_least)
    allowed = window_of(window, context, {})
    times = _times_of(case.history, event, within)
    gaps = [after - before for before, after in pairwise(times)]
    outliers = outliers_of((allowed, Span(*ends)) for ends in pairwise(times))
    evidence = replace(_every([event], within), window=allowed)
    reason = _describe_rate(times, within, context)
    if outliers:
        gap_s = outliers[0].gaps[0].length_s
        reason = f"{event} occurred {gap_s:.3f} s after the previous; {reason}"
        measured = Measured(gap_s, "s")
        return replace(evidence, reason=reason, measured=measured, finding="deviates", outliers=outliers)
    if len(gaps) < min_gaps:
        return _too_few(case.history, event, times, within, min_gaps, allowed)
    # A stall shifts one occurrence, so the mean is known better than each gap.
    narrow = WindowContext(context.configuration, context.slack_s / len(gaps))
    mean_s = sum(gaps) / len(gaps)
    evidence = replace(evidence, reason=reason, measured=Measured(mean_s, "s"))
    is_certain = context.slack_s <= _MOST_UNSURE * allowed.nominal_s * len(gaps)
    if is_certain and compute(window, narrow, {}).holds(mean_s):
        return evidence
    return replace(evidence, reason=f"{reason}: too uncertain", code="host-too-loaded")


def rate(times: Sequence[float], error_s: float) -> tuple[float, float, float]:
    """Return the rate (1/s) of occurrences with its lowest and highest possible value.

    Each occurrence may have been seen up to `error_s` late.

    Raises:
        ValueError: There are fewer than two times.
    """
    if len(times) < 2:
        raise ValueError("a rate needs at least two occurrences")
    gaps, duration_s = len(times) - 1, times[-1] - times[0]
    shortest_s = max(duration_s - error_s, 1e-9)
    return gaps / max(duration_s, 1e-9), gaps / (duration_s + error_s), gaps / shortest_s


def _describe_rate(times: Sequence[float], within: Span, context: WindowContext) -> str:
    if len(times) < 2:
        return f"{len(times)} in {within.until_t - within.since_t:.1f} s"
    gaps = [after - before for before, after in pairwise(times)]
    mean, low, high = rate(times, context.slack_s)
    summary = f"{len(times)} occurrences, {min(gaps):.3f} to {max(gaps):.3f} s apart"
    return f"{summary}: {mean:.3f}/s, within [{low:.3f}, {high:.3f}]/s"


def _too_few(
    history: History, event: Moment, times: Sequence[float], within: Span, min_gaps: int, window: Window
) -> Measurement:
    """Return the measurement of too few occurrences: a deviation if the last silence is too long."""
    silence = Span(times[-1] if times else within.since_t, within.until_t)
    silence_s = silence.length_s
    reason = f"{event} occurred {len(times)} times in {within.until_t - within.since_t:.1f} s"
    reason += f", need {min_gaps + 1}; none in the last {silence_s:.1f} s"
    evidence = replace(_every([event], within, reason), reason=reason, window=window)
    if silence_s <= window.high_s:
        return replace(evidence, code="gap")
    state = moments.last_state(history, event)
    measured = Measured(silence_s, "s")
    outlier = Outlier(window, (silence,))
    return replace(evidence, measured=measured, finding="lacks", last_state=state, outliers=[outlier])


def _constant_waits(first_s: float, most_s: float, **_: object) -> str:
    if 0 < first_s < most_s:
        return ""
    return f"need 0 < first_s < most_s, not first_s={first_s:g} and most_s={most_s:g}"


@measures("doubled", times=_times, refuse=_constant_waits, after="anchor")
def doubled(
    case: Case,
    event: Moment,
    first_s: float,
    most_s: float,
    *,
    takes_s: float,
    at_least: int,
    after: Moment,
    until: Moment,
) -> Measurement:
    """Check that an event repeats with waits that double from `first_s` up to `most_s`.

    The check covers the time between `after` and `until`, in which there must be `at_least` waits. A try may
    add up to `takes_s` to each wait.

    Raises:
        ValueError: The waits do not grow.
    """
    history, slack_s, min_waits = case.history, case.context.slack_s, max(1, at_least)
    within = between(history, after, until)
    # Each wait has its own window, and only together these tell doubled waits from others.
    if not _is_discerning(first_s, most_s, min_waits, takes_s, slack_s):
        idle = _is_discerning(first_s, most_s, min_waits, takes_s, 0.0)
        reason = f"{min_waits} waits from {first_s:g} to {most_s:g} s also admit half or double the ends"
        raise Undecided("host-too-loaded" if idle else "scaled", reason)
    times = _times_of(history, event, within)
    gaps = [Span(*ends) for ends in pairwise(times)]
    waits = [gap.length_s for gap in gaps]
    expected = _waits(first_s, most_s, len(waits) + 1)
    windows = [_wait_window(expected_s, takes_s, slack_s) for expected_s in expected]
    outliers = outliers_of(zip(windows, gaps, strict=False))
    if outliers:
        gap = outliers[0].gaps[0]
        reason = f"wait {gaps.index(gap) + 1} of {event} was {gap.length_s:.3f} s; {_describe_waits(waits)}"
        measured = Measured(gap.length_s, "s")
        return Measurement(reason, measured, outliers[0].window, "deviates", read=within, outliers=outliers)
    if len(waits) < min_waits:
        longest = windows[-1] if times else _wait_window(most_s, takes_s, slack_s)
        return _too_few(history, event, times, within, min_waits, longest)
    measured = Measured(float(len(waits)), "waits")
    return replace(_every([event], within), reason=_describe_waits(waits), measured=measured)


def _waits(first_s: float, most_s: float, many: int) -> Sequence[float]:
    return [min(first_s * 2**number, most_s) for number in range(many)]


def _wait_window(wait_s: float, takes_s: float, slack_s: float) -> Window:
    low, high = f"{wait_s:g} - slack", f"{wait_s:g} + {takes_s:g} + slack"
    return Window(wait_s - slack_s, wait_s + takes_s + slack_s, wait_s, "period", low, high)


def _is_discerning(first_s: float, most_s: float, many: int, takes_s: float, slack_s: float) -> bool:
    """Return whether the windows exclude waits of half or double the ends, and waits that do not grow."""
    windows = [_wait_window(wait, takes_s, slack_s) for wait in _waits(first_s, most_s, many)]
    ends = [(first_s / 2, most_s), (first_s * 2, most_s), (first_s, most_s / 2), (first_s, most_s * 2)]
    others = [_waits(*end, many) for end in (*ends, (most_s, most_s))]
    return all(
        any(not window.holds(wait) for window, wait in zip(windows, waits, strict=True)) for waits in others
    )


def _describe_waits(waits: Sequence[float]) -> str:
    return f"waits of {', '.join(f'{wait:.3f}' for wait in waits)} s"


Run = tuple[str, int]
"""An event, and how often it occurred in a row."""
Burst = Sequence[tuple[float, str]]
"""Times (s) of tries, each with its event."""


def in_bursts(
    *runs: tuple[Moment, int],
    apart: WindowSpec,
    at_least: int,
    after: Moment,
    until: Moment,
    lasting_s: float | None = None,
) -> Check:
    """Check that events come in bursts: each `(event, times)` in turn, exactly that often.

    The check covers the time between `after` and `until`. Events less than half of `apart` from each other
    are one burst.

    Args:
        *runs: The events of a burst, in order, each with its number of occurrences.
        apart: Window from the end of a burst to the start of the next.
        at_least: Minimum number of complete bursts.
        after: Start of the checked time.
        until: End of the checked time.
        lasting_s: Longest time (s) from the first event of a burst to its last; by default any.

    Raises:
        ValueError: A burst is empty.
    """
    if not runs or any(times < 1 for _event, times in runs):
        raise ValueError(f"each burst needs at least one event: {[times for _event, times in runs]}")
    stored = [{"event": event.to_json(), "times": times} for event, times in runs]
    return _in_bursts(stored, window=apart, at_least=at_least, after=after, until=until, lasting_s=lasting_s)


@measures("in-bursts", times=_times, runs="each", after="anchor")
def _in_bursts(
    case: Case,
    runs: Json,
    *,
    window: WindowSpec,
    at_least: int,
    after: Moment,
    until: Moment,
    lasting_s: float | None = None,
) -> Measurement:
    history, slack_s, within = case.history, case.context.slack_s, between(case.history, after, until)
    allowed = compute(window, case.context, {})
    burst_events = events_of_bursts({"each": runs})
    tries = [(t, str(event)) for event in burst_events for t in _all_times(history, event)]
    tries.sort(key=itemgetter(0))
    silences = _silences([t for t, _event in tries], within, allowed)
    if silences and not unfenced(history, burst_events, within.until_t):
        # No slack can hide a silence of this length. After a missed try, the bursts can still deviate.
        silence_s = silences[0].gaps[0].length_s
        reason, measured = f"no tries for {silence_s:.1f} s", Measured(silence_s, "s")
        return Measurement(reason, measured, allowed, "deviates", read=within, outliers=silences)
    if not allowed.discerning or slack_s >= allowed.nominal_s / 2:
        raise indiscernible(window, case.context, {})
    compare = partial(_compare_bursts, runs, max(1, at_least), within, allowed, slack_s, lasting_s)
    half_s = allowed.nominal_s / 2
    bursts, unclear = _split(tries, half_s, slack_s)
    if not any(within.since_t <= t <= within.until_t for t in unclear):
        return compare(bursts)
    joined, _unclear = _split(tries, half_s + slack_s, 0.0)
    measurement = compare(joined)
    if measurement.finding == "deviates" and not allowed.holds(half_s + slack_s):
        # As separate bursts they are too close to each other.
        return measurement
    reason = f"cannot tell within the slack whether tries {half_s:g} s apart are one burst"
    return Measurement(reason, window=allowed, code="host-too-loaded", read=within)


def _compare_bursts(
    runs: Json,
    min_bursts: int,
    within: Span,
    window: Window,
    slack_s: float,
    lasting_s: float | None,
    bursts: Sequence[Burst],
) -> Measurement:
    """Compare the contents of the bursts, then the pauses between them, their lengths and their number."""
    expected = [(str(Moment.from_json(run["event"])), int(run["times"])) for run in runs]
    # A burst near an end of the checked time may be incomplete.
    certain = Span(within.since_t + slack_s, within.until_t - slack_s)
    complete_bursts = [
        burst for burst in bursts if certain.since_t <= burst[0][0] and burst[-1][0] <= certain.until_t
    ]
    deviating = [burst for burst in complete_bursts if _runs(burst) != expected]
    # An incomplete burst must not have more tries than a complete one.
    most = sum(times for _event, times in expected)
    parts = ([try_ for try_ in burst if certain.since_t <= try_[0] <= certain.until_t] for burst in bursts)
    deviating += [part for part in parts if len(part) > most and part not in deviating]
    if deviating:
        reason = f"a burst of {_describe_runs(_runs(deviating[0]))}"
        reason += f", expected {_describe_runs(expected)}"
        measured = Measured(float(len(deviating[0])), "times")
        times = [t for burst in bursts for t, _event in burst]
        half_s = window.nominal_s / 2
        wrong = [_wrong_pauses(burst, times, within, half_s, slack_s) for burst in deviating]
        return Measurement(reason, measured, finding="deviates", read=within, outliers=wrong)
    touching = [b for b in bursts if b[-1][0] >= within.since_t and b[0][0] <= within.until_t]
    pauses = ((window, Span(before[-1][0], after[0][0])) for before, after in pairwise(touching))
    outliers = outliers_of(pauses)
    if outliers:
        pause_s = outliers[0].gaps[0].length_s
        reason, measured = f"{pause_s:.3f} s from one burst to the next", Measured(pause_s, "s")
        return Measurement(reason, measured, window, "deviates", read=within, outliers=outliers)
    long = [] if lasting_s is None else _long_bursts(complete_bursts, lasting_s, slack_s)
    if long:
        length_s, allowed = long[0].gaps[0].length_s, long[0].window
        reason, measured = f"a burst lasted {length_s:.3f} s", Measured(length_s, "s")
        return Measurement(reason, measured, allowed, "deviates", read=within, outliers=long)
    evidence = _every(events_of_bursts({"each": runs}), within, "there may be more tries")
    if len(complete_bursts) < min_bursts:
        reason = f"{len(complete_bursts)} complete bursts, need {min_bursts}"
        return replace(evidence, reason=reason, window=window, code="gap")
    reason = f"{len(complete_bursts)} bursts of {_describe_runs(_runs(complete_bursts[0]))}"
    return replace(evidence, reason=reason, measured=Measured(float(len(complete_bursts[0])), "times"))


def _silences(times: Sequence[float], within: Span, window: Window) -> Sequence[Outlier]:
    """Return the times without tries that are longer than a pause may be."""
    inside = [t for t in times if within.since_t <= t <= within.until_t]
    ends = pairwise([within.since_t, *inside, within.until_t])
    return outliers_of((replace(window, low_s=0.0), Span(*pair)) for pair in ends)


def _long_bursts(bursts: Sequence[Burst], lasting_s: float, slack_s: float) -> Sequence[Outlier]:
    """Return the bursts that last longer than `lasting_s`."""
    window = Window(0.0, lasting_s + slack_s, lasting_s, "within", "0", f"{lasting_s:g} + slack")
    return outliers_of((window, Span(burst[0][0], burst[-1][0])) for burst in bursts)


def _wrong_pauses(
    burst: Burst, times: Sequence[float], within: Span, half_s: float, slack_s: float
) -> Outlier:
    """Return the pauses in and around a burst, of which one is on the wrong side of half of `apart`."""
    first_t, last_t = burst[0][0], burst[-1][0]
    before_t = max((t for t in times if t < first_t), default=within.since_t)
    after_t = min((t for t in times if t > last_t), default=within.until_t)
    pauses = pairwise([before_t, *(t for t, _event in burst), after_t])
    window = Window(half_s - slack_s, half_s + slack_s, half_s, "period", "", "")
    return Outlier(window, tuple(Span(*ends) for ends in pauses))


def _split(tries: Burst, max_pause_s: float, slack_s: float) -> tuple[list[Burst], list[float]]:
    """Return the bursts, and the times of tries that may or may not belong to the burst before them."""
    bursts: list[list[tuple[float, str]]] = []
    unclear = []
    for t, event in tries:
        pause_s = t - bursts[-1][-1][0] if bursts else float("inf")
        if abs(pause_s - max_pause_s) < slack_s:
            unclear.append(t)
        if pause_s < max_pause_s:
            bursts[-1].append((t, event))
        else:
            bursts.append([(t, event)])
    return [*bursts], unclear


def _runs(burst: Burst) -> list[Run]:
    return [(event, len(list(run))) for event, run in groupby(event for _t, event in burst)]


def _describe_runs(runs: Sequence[Run]) -> str:
    return ", ".join(f"{times} x {event}" for event, times in runs)


def _not_positive(times: float, **_: object) -> str:
    return "" if times > 0 else f"times must be positive, not {times}"


@measures("outweighs", times=_times, refuse=_not_positive, after="anchor")
def writes_more_than(
    case: Case, event: Moment, other: Moment, times: float, *, after: Moment, until: Moment
) -> Measurement:
    """Check that the updates of one event write at least `times` the bytes of another event's updates.

    The check covers the time between two moments. Each update counts as the whole object in JSON, without
    managedFields.

    Raises:
        ValueError: `times` is not positive.
    """
    within, weighed = between(case.history, after, until), (event, other)
    heavy, light = (_sizes(case.history, moment, within) for moment in weighed)
    evidence = _every(weighed, within, "one of them may have occurred more often")
    if not heavy or not light:
        reason = f"{event} came {len(heavy)} times, {other} {len(light)} times"
        return replace(evidence, reason=reason, code="no-anchor")
    ratio = sum(heavy) / sum(light)
    reason = " beside ".join(f"{sum(sizes)} bytes in {len(sizes)} writes" for sizes in (heavy, light))
    evidence = replace(evidence, reason=reason, measured=Measured(round(ratio, 2)))
    if ratio >= times:
        return evidence
    return replace(evidence, reason=f"{reason}, at least {times:g} times as much expected", finding="lacks")


def _sizes(history: History, moment: Moment, within: Span) -> list[int]:
    """Return the size in bytes of each written object."""
    shape = shapes.shape(moment)
    if not isinstance(shape, shapes.Changed):
        raise LookupError(f"{moment} is not a change of one object")
    times = set(_times_of(history, moment, within))
    return [_bytes(version.object) for version in shape.of.versions(history) if version.t in times]


def _bytes(stored: Json) -> int:
    metadata = {key: field for key, field in stored["metadata"].items() if key != "managedFields"}
    return len(json.dumps({**stored, "metadata": metadata}, separators=(",", ":")).encode())


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
