"""Times of a recording at which checks read their result; stalls at other times do not affect it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodeproof.checks import counting, lasting, looks, moments, observations
from nodeproof.checks.occurrence import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span, longest_slack_s
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import Ground, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
Times = Sequence[Span] | None
"""None means any time of the recording."""
LOOK_BACK_S = 5.0
"""Time before the anchor (s) that is searched for an event that came too early."""


def read_off(check: Check, history: History, configuration: Configuration) -> Times:
    """Return the times of a check's anchor and event; for an absence or a state, its whole window.

    None means any time: for a count of the whole recording, and if an anchor is missing.

    Raises:
        KeyError: This version does not know the check.
    """
    return _TIMES[check.name](history, check.args, configuration)


def find_event(
    history: History, event: Moment, start: Occurrence, configuration: Configuration
) -> Occurrence | None:
    """Return the first event after an anchor, or just before it if the event came too early."""
    return moments.find(history, event, start.t - configuration.slack_limit_s - LOOK_BACK_S)


def _after(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    if start is None:
        return None
    occurrence = find_event(history, Moment.from_json(args["event"]), start, configuration)
    if occurrence is None:
        return _window(history, args, configuration, start)
    received_t = float(start.detail.get("received_t", start.t))
    return [Span(min(start.t, received_t), max(start.t, received_t)), Span.at(occurrence.t)]


def _never(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    return None if start is None else _window(history, args, configuration, start)


def _window(history: History, args: Args, configuration: Configuration, start: Occurrence) -> Times:
    """Return the time from the anchor to the latest end of the window."""
    ground = Ground(configuration, longest_slack_s(history, configuration))
    window = compute(WindowSpec.from_json(args["window"]), ground, start.detail)
    return [Span(start.t, start.t + window.high_s)]


def _throughout(history: History, args: Args, _configuration: Configuration) -> Times:
    span = looks.span(history, args)
    return None if isinstance(span, Verdict) else [Span(*span)]


def _counted(history: History, args: Args, _configuration: Configuration) -> Times:
    span = counting.span(history, args)
    return None if isinstance(span, Verdict) else [span]


def _between(history: History, args: Args, _configuration: Configuration) -> Times:
    ends = (moments.find(history, Moment.from_json(args[part])) for part in ("anchor", "event"))
    times = [end.t for end in ends if end is not None]
    return [Span(min(times), max(times))] if times else None


def _looks(history: History, args: Args, _configuration: Configuration) -> Times:
    entries = (observations.find(history, args[part]) for part in ("before", "seen") if part in args)
    return [Span(float(entry.data["asked_t"]), entry.t) for entry in entries if entry is not None] or None


def _steps(history: History, args: Args, _configuration: Configuration) -> Times:
    return [Span.at(entry.t) for entry in lasting.steps(history, args)] or None


def _anywhere(_history: History, _args: Args, _configuration: Configuration) -> Times:
    return None


_TIMES: Mapping[str, Callable[[History, Args, Configuration], Times]] = {
    "after": _after,
    "never": _never,
    "renewals": _anywhere,
    "default": _anywhere,
    "shown-throughout": _throughout,
    "listed": _throughout,
    "not-listed": _throughout,
    "amounts-to": _throughout,
    "lives-on": _throughout,
    "in-order": _between,
    "shows": _looks,
    "same-as": _looks,
    "grew": _looks,
    "lasted": _steps,
    "counted": _counted,
    "spaced": _counted,
    "outweighs": _counted,
    "doubled": _counted,
    "in-bursts": _counted,
}
