"""Check of the time between occurrences of a moment: the rate of an operation."""

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
"""Highest uncertainty, as a share of the mean, that still excludes half and double the rate. A stall shifts
one occurrence, not several in a row.
"""
_WAITS = 2
"""Extra gaps to wait for: one before the first occurrence, and one for a late last occurrence."""


def spaced(event: Moment, window: WindowSpec, *, at_least: int, after: Moment, until: Moment) -> Check:
    """Check that each occurrence of an event comes `window` after the previous, at least `at_least` times.

    The check covers the time between two moments, in which there must always be work waiting.
    """
    moments_json = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    return Check("spaced", {**moments_json, "window": window.to_json(), "at_least": at_least})


def remaining_s(history: History, args: Args, ground: Ground, now_t: float) -> float | None:
    """Return how much longer (s) a recording must go on for enough occurrences; None before the anchor."""
    event, anchor, min_gaps = (
        Moment.from_json(args["event"]),
        Moment.from_json(args["anchor"]),
        _min_gaps(args),
    )
    start = moments.find(history, anchor)
    if start is None:
        return None
    if len([occurrence for occurrence in moments.each(history, event) if occurrence.t >= start.t]) > min_gaps:
        return 0.0
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    return start.t + (min_gaps + _WAITS) * window.high_s - now_t


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `spaced` check.

    Raises:
        LookupError: The moment cannot be counted.
    """
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    event, min_gaps = Moment.from_json(args["event"]), _min_gaps(args)
    window = compute(WindowSpec.from_json(args["window"]), ground, {})
    if not window.discerning:
        idle = compute(WindowSpec.from_json(args["window"]), Ground(ground.configuration, 0.0), {})
        reason = f"the window {window.arithmetic} also admits half or double the value"
        return unproven("host-too-loaded" if idle.discerning else "scaled", reason, window)
    times = [
        occurrence.t
        for occurrence in moments.each(history, event)
        if within.since_t <= occurrence.t <= within.until_t
    ]
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    doubt = blind(history, (event, *ends), within.since_t, within.until_t)
    if doubt:
        return unproven("gap", doubt, window)
    gaps = [after - before for before, after in pairwise(times)]
    outside = next((gap for gap in gaps if not window.holds(gap)), None)
    if outside is not None:
        reason = (
            f"{event} occurred {outside:.3f} s after the previous; {_describe_rate(times, within, ground)}"
        )
        return deviates(reason, window, Measured(outside, "s"))
    if len(gaps) < min_gaps:
        return _too_few(history, event, times, within, min_gaps, window)
    doubt = unfenced(history, event, within.until_t)
    if doubt:
        return unproven("gap", f"{event} may have occurred more often: {doubt}", window)
    narrow = Ground(ground.configuration, ground.slack_s / len(gaps))
    holds = compute(WindowSpec.from_json(args["window"]), narrow, {}).holds(sum(gaps) / len(gaps))
    if not holds or ground.slack_s > _MOST_UNSURE * window.nominal_s * len(gaps):
        reason = f"{_describe_rate(times, within, ground)}: too uncertain"
        return unproven("host-too-loaded", reason, window, Measured(sum(gaps) / len(gaps), "s"))
    return conforms(_describe_rate(times, within, ground), window, Measured(sum(gaps) / len(gaps), "s"))


def rate(times: Sequence[float], error_s: float) -> tuple[float, float, float]:
    """Return the rate (1/s) of occurrences with its lowest and highest possible value.

    Each occurrence may have been seen up to `error_s` late.

    Raises:
        ValueError: There are fewer than two times.
    """
    if len(times) < 2:
        raise ValueError("one occurrence is no rate")
    gaps, duration_s = len(times) - 1, times[-1] - times[0]
    shortest_s = max(duration_s - error_s, 1e-9)
    return gaps / max(duration_s, 1e-9), gaps / (duration_s + error_s), gaps / shortest_s


def _describe_rate(times: Sequence[float], within: Span, ground: Ground) -> str:
    if len(times) < 2:
        return f"{len(times)} in {within.until_t - within.since_t:.1f} s"
    gaps = [after - before for before, after in pairwise(times)]
    mean, low, high = rate(times, ground.slack_s)
    summary = f"{len(times)} occurrences, {min(gaps):.3f} to {max(gaps):.3f} s apart"
    return f"{summary}: {mean:.3f}/s, within [{low:.3f}, {high:.3f}]/s"


def _too_few(
    history: History, event: Moment, times: Sequence[float], within: Span, min_gaps: int, window: Window
) -> Verdict:
    """Return the verdict for too few occurrences: a deviation if the last silence is too long."""
    last_t = times[-1] if times else within.since_t
    silence_s = within.until_t - last_t
    reason = f"{event} occurred {len(times)} times in {within.until_t - within.since_t:.1f} s"
    reason += f", need {min_gaps + 1}; none in the last {silence_s:.1f} s"
    doubt = unfenced(history, event, within.until_t)
    if doubt or silence_s <= window.high_s:
        return unproven("gap", f"{reason}{': ' if doubt else ''}{doubt}", window)
    return deviates(reason, window, Measured(silence_s, "s"), moments.last_state(history, event))


def _min_gaps(args: Args) -> int:
    return max(1, int(args["at_least"]))
