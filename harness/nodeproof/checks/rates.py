"""How far apart the occurrences of a moment are: the rate at which something is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nodeproof.checks import counting, moments
from nodeproof.checks.anchors import unfenced
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground, Window, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
_MOST_UNSURE = 0.25
"""Of the mean, by what may have been seen late: half the rate and double are far outside then. A stall shifts
one occurrence, not each of several in a row.
"""
_WAITS = 2
"""Before the first occurrence there may be as long a wait as between two, and the last may be late."""


def spaced(event: Moment, window: WindowSpec, *, at_least: int, after: Moment, until: Moment) -> Check:
    """Between two moments each occurrence of an event comes `window` after the one before, at least
    `at_least` times. Something must be waiting all the while.
    """
    told = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    return Check("spaced", {**told, "window": window.to_json(), "at_least": at_least})


def remaining_s(history: History, args: Args, ground: Ground, now_t: float) -> float | None:
    """How long (s) a recording must still go on until there are enough; None before the anchor came."""
    event, anchor, wanted = Moment.from_json(args["event"]), Moment.from_json(args["anchor"]), _wanted(args)
    start = moments.find(history, anchor)
    if start is None:
        return None
    if len([came for came in moments.each(history, event) if came.t >= start.t]) > wanted:
        return 0.0
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    return start.t + (wanted + _WAITS) * window.high_s - now_t


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """See `spaced`. Raises LookupError on a moment that cannot be counted."""
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    event, wanted = Moment.from_json(args["event"]), _wanted(args)
    window = compute(WindowSpec.from_json(args["window"]), ground, {})
    if not window.discerning:
        idle = compute(WindowSpec.from_json(args["window"]), Ground(ground.configuration, 0.0), {})
        said = f"the window {window.arithmetic} would also admit half or double"
        return unproven("host-too-loaded" if idle.discerning else "scaled", said, window)
    times = [came.t for came in moments.each(history, event) if within.since_t <= came.t <= within.until_t]
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    unsure = blind(history, (event, *ends), within.since_t, within.until_t)
    if unsure:
        return unproven("gap", unsure, window)
    apart = [after - before for before, after in pairwise(times)]
    wrong = next((each for each in apart if not window.holds(each)), None)
    if wrong is not None:
        said = f"{event} came {wrong:.3f} s after the one before; {_told(times, within, ground)}"
        return deviates(said, window, Measured(wrong, "s"))
    if len(apart) < wanted:
        return _too_few(history, event, times, within, wanted, window)
    unsure = unfenced(history, event, within.until_t)
    if unsure:
        return unproven("gap", f"more of {event} may have come: {unsure}", window)
    sure = Ground(ground.configuration, ground.slack_s / len(apart))
    holds = compute(WindowSpec.from_json(args["window"]), sure, {}).holds(sum(apart) / len(apart))
    if not holds or ground.slack_s > _MOST_UNSURE * window.nominal_s * len(apart):
        said = f"{_told(times, within, ground)}: too unsure"
        return unproven("host-too-loaded", said, window, Measured(sum(apart) / len(apart), "s"))
    return conforms(_told(times, within, ground), window, Measured(sum(apart) / len(apart), "s"))


def rate(times: Sequence[float], error_s: float) -> tuple[float, float, float]:
    """Occurrences a second, with the lowest and the highest that there can have been where each was seen up
    to `error_s` (s) late. Raises ValueError on fewer than two.
    """
    if len(times) < 2:
        raise ValueError("one occurrence is no rate")
    many, lasted_s = len(times) - 1, times[-1] - times[0]
    shortest_s = max(lasted_s - error_s, 1e-9)
    return many / max(lasted_s, 1e-9), many / (lasted_s + error_s), many / shortest_s


def _told(times: Sequence[float], within: Span, ground: Ground) -> str:
    if len(times) < 2:
        return f"{len(times)} in {within.until_t - within.since_t:.1f} s"
    apart = [after - before for before, after in pairwise(times)]
    mean, low, high = rate(times, ground.slack_s)
    said = f"{len(times)} came {min(apart):.3f} to {max(apart):.3f} s apart"
    return f"{said}: {mean:.3f}/s, surely [{low:.3f}, {high:.3f}]/s"


def _too_few(
    history: History, event: Moment, times: Sequence[float], within: Span, wanted: int, window: Window
) -> Verdict:
    """Fewer than wanted: a deviation where the last is followed by too long a silence."""
    last_t = times[-1] if times else within.since_t
    silence_s = within.until_t - last_t
    said = f"{event} came {len(times)} times in {within.until_t - within.since_t:.1f} s"
    said += f", {wanted + 1} are needed; no more for the last {silence_s:.1f} s"
    unsure = unfenced(history, event, within.until_t)
    if unsure or silence_s <= window.high_s:
        return unproven("gap", f"{said}{': ' if unsure else ''}{unsure}", window)
    return deviates(said, window, Measured(silence_s, "s"), moments.last_state(history, event))


def _wanted(args: Args) -> int:
    return max(1, int(args["at_least"]))
