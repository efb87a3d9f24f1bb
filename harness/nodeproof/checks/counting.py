"""Check of the number of occurrences between two moments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.checks import moments
from nodeproof.checks.anchors import missing, unfenced
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground

Json = Any
Args = Mapping[str, Json]


def counted(event: Moment, low: int, high: int, *, after: Moment, until: Moment) -> Check:
    """Check that an event occurs `low` to `high` times between two moments.

    Raises:
        ValueError: The range is invalid.
    """
    if not 0 <= low <= high:
        raise ValueError(f"{low} to {high} times")
    moments_json = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    return Check("counted", {**moments_json, "low": low, "high": high})


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `counted` check.

    Raises:
        LookupError: The moment cannot be counted.
    """
    within = span(history, args)
    if isinstance(within, Verdict):
        return within
    event, low, high = Moment.from_json(args["event"]), int(args["low"]), int(args["high"])
    times = [occurrence.t for occurrence in moments.each(history, event)]
    count_min, count_max = _within(times, within, -ground.slack_s), _within(times, within, ground.slack_s)
    reason = f"{event} occurred {count_min} times in {within.until_t - within.since_t:.2f} s"
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    # Events that a watch delivers after a gap may have occurred at any time in it.
    gap = blind(history, (event, *ends), within.since_t, within.until_t)
    if gap:
        return unproven("gap", f"{reason}, possibly more: {gap}")
    if count_min > high:
        return deviates(f"{reason}, at most {high} expected", measured=Measured(float(count_min)))
    doubt = unfenced(history, event, within.until_t)
    if doubt:
        return unproven("gap", f"{event} may have occurred more often: {doubt}")
    if count_max < low:
        return deviates(f"{reason}, at least {low} expected", measured=Measured(float(count_min)))
    missing_object = "" if count_max else moments.never_there(history, event, within.until_t)
    if missing_object:
        return unproven("gap", f"{reason}, and could not occur: {missing_object}")
    if count_min < low or count_max > high:
        return unproven("gap", f"{reason}, {count_max} including those within the slack of an end")
    return conforms(reason, measured=Measured(float(count_min)))


def span(history: History, args: Args) -> Span | Verdict:
    """Return the time between the two moments, or the verdict if one is missing."""
    after, until = Moment.from_json(args["anchor"]), Moment.from_json(args["until"])
    start = moments.find(history, after)
    if start is None:
        return missing(history, after)
    end = moments.find(history, until, start.t)
    return missing(history, until) if end is None else Span(start.t, end.t)


def _within(times: list[float], within: Span, slack_s: float) -> int:
    return sum(within.since_t - slack_s <= t <= within.until_t + slack_s for t in times)
