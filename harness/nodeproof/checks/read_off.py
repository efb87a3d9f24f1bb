"""At which times of a recording a check reads its answer off: what disturbed others does not matter to it."""

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
"""None is anywhere in the recording."""
LOOK_BACK_S = 5.0
"""How far before the anchor an early event is looked for: one that came too early must not be overlooked."""


def read_off(check: Check, history: History, configuration: Configuration) -> Times:
    """The times of a check's anchor and event; for an absence or a state, all that lies in its window.

    None where that is anywhere: for a count of the whole recording, and where an anchor is missing. Raises
    KeyError on a check that this version does not know.
    """
    return _TIMES[check.name](history, check.args, configuration)


def find_event(
    history: History, event: Moment, start: Occurrence, configuration: Configuration
) -> Occurrence | None:
    """The first event after an anchor, or so shortly before it that it came too early."""
    return moments.find(history, event, start.t - configuration.slack_limit_s - LOOK_BACK_S)


def _after(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    if start is None:
        return None
    found = find_event(history, Moment.from_json(args["event"]), start, configuration)
    if found is None:
        return _window(history, args, configuration, start)
    known_t = float(start.detail.get("received_t", start.t))
    return [Span(min(start.t, known_t), max(start.t, known_t)), Span.at(found.t)]


def _never(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    return None if start is None else _window(history, args, configuration, start)


def _window(history: History, args: Args, configuration: Configuration, start: Occurrence) -> Times:
    """From the anchor to the window's end, at its latest."""
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
    found = (moments.find(history, Moment.from_json(args[part])) for part in ("anchor", "event"))
    times = [came.t for came in found if came is not None]
    return [Span(min(times), max(times))] if times else None


def _looks(history: History, args: Args, _configuration: Configuration) -> Times:
    found = (observations.find(history, args[part]) for part in ("before", "seen") if part in args)
    return [Span(float(look.data["asked_t"]), look.t) for look in found if look is not None] or None


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
