"""How often something came between two moments."""

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
    """It came `low` to `high` times between two moments. Raises ValueError on a range that is none."""
    if not 0 <= low <= high:
        raise ValueError(f"{low} to {high} times")
    told = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    return Check("counted", {**told, "low": low, "high": high})


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """See `counted`. Raises LookupError on a moment that cannot be counted."""
    within = span(history, args)
    if isinstance(within, Verdict):
        return within
    event, low, high = Moment.from_json(args["event"]), int(args["low"]), int(args["high"])
    times = [came.t for came in moments.each(history, event)]
    surely, perhaps = _within(times, within, -ground.slack_s), _within(times, within, ground.slack_s)
    said = f"{event} came {surely} times in {within.until_t - within.since_t:.2f} s"
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    # What a watch delivers after a gap may have come at any time of it.
    gap = blind(history, (event, *ends), within.since_t, within.until_t)
    if gap:
        return unproven("gap", f"{said}, as far as was seen: {gap}")
    if surely > high:
        return deviates(f"{said}, at most {high} expected", measured=Measured(float(surely)))
    unsure = unfenced(history, event, within.until_t)
    if unsure:
        return unproven("gap", f"more of {event} may have come: {unsure}")
    if perhaps < low:
        return deviates(f"{said}, at least {low} expected", measured=Measured(float(surely)))
    unable = "" if perhaps else moments.never_there(history, event, within.until_t)
    if unable:
        return unproven("gap", f"{said}, and could not: {unable}")
    if surely < low or perhaps > high:
        return unproven("gap", f"{said}, {perhaps} with those within the slack of an end")
    return conforms(said, measured=Measured(float(surely)))


def span(history: History, args: Args) -> Span | Verdict:
    """From the one moment to the other, or why there is none."""
    after, until = Moment.from_json(args["anchor"]), Moment.from_json(args["until"])
    start = moments.find(history, after)
    if start is None:
        return missing(history, after)
    end = moments.find(history, until, start.t)
    return missing(history, until) if end is None else Span(start.t, end.t)


def _within(times: list[float], within: Span, slack_s: float) -> int:
    return sum(within.since_t - slack_s <= t <= within.until_t + slack_s for t in times)
