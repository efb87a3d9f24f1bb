"""What a recording can show: gaps of watches, moments that may have been missed, and missing anchors.

A claim starts from its anchor. Without the anchor the claim is undecided. Whether the anchor should have
occurred is another judgment, which a claim that promises its anchor must make as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodeproof.checks import moments, witnessed
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import Gap, History, fence
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Code, unproven
from nodeproof.model.window import Window

_PARTS = ("event", "other", "anchor", "since", "until")
"""Argument names under which checks store their moments."""
LOOK_BACK_S = 5.0
"""Time before the anchor (s) that is searched for an event that came too early."""


class Undecided(Exception):
    """A recording or window that allows no measurement; carries the verdict."""

    def __init__(self, code: Code, reason: str, window: Window | None = None) -> None:
        super().__init__(reason)
        self.verdict = unproven(code, reason, window)


def watch_loss(
    history: History, involved: Sequence[Moment], within: Span, exact: Sequence[Span] | None = None
) -> str:
    """Return which watch of these moments may have lost events within a time, or an empty string.

    A watch that resumed from its resourceVersion lost nothing, but the times of the events in its gap are
    unknown. Such a gap only counts if it touches one of the `exact` times, by default `within`, or if a
    moment is computed from the times of others.
    """
    is_exact = exact is None or any(moments.is_computed(moment) for moment in involved)
    since_t, until_t = sorted((within.since_t, within.until_t))
    for resource in sorted({name for moment in involved for name in moments.resources(moment)}):
        for gap in history.gaps(resource, since_t, until_t):
            span = Span(gap.since_t, gap.until_t)
            if is_exact or gap.is_lossy or any(span.touches(time) for time in exact or ()):
                return _describe_gap(resource, gap)
    return ""


def lossy_gap(history: History, moment: Moment, within: Span) -> str:
    """Return which watch of a moment may have lost events within a time, or an empty string.

    Of a moment that was searched, an earlier occurrence may be lost: a condition may come and go in a gap.
    """
    for resource in moments.resources(moment):
        for gap in history.gaps(resource, within.since_t, within.until_t):
            if gap.is_lossy:
                return _describe_gap(resource, gap)
    return ""


def _describe_gap(resource: str, gap: Gap) -> str:
    return f"the watch of {resource} had a gap of {gap.back_t - gap.since_t:.1f} s: {gap.reason}"


def recorded_span(occurrence: Occurrence) -> Span:
    """Return the span from an occurrence's time to its receipt, in either order."""
    received_t = float(occurrence.detail.get("received_t", occurrence.t))
    return Span(min(occurrence.t, received_t), max(occurrence.t, received_t))


def unfenced(history: History, complete: Iterable[Moment], until_t: float) -> str:
    """Return why watches or a witness may have missed one of these moments up to a time (s).

    The result is an empty string if nothing was missed.
    """
    return next(filter(None, (_unfenced(history, moment, until_t) for moment in complete)), "")


def _unfenced(history: History, moment: Moment, until_t: float) -> str:
    for part in moments.parts(moment):
        if witnessed.is_witnessed(part):
            doubt = witnessed.not_collected(history, part, until_t)
            if doubt or part == moment:
                return doubt
    last_fence = fence(history, moments.resources(moment))
    if not last_fence.passed:
        return last_fence.reason
    return f"the fence is {until_t - last_fence.t:.1f} s too early" if last_fence.t < until_t else ""


def require(history: History, moment: Moment, since_t: float = float("-inf")) -> Occurrence:
    """Return the first occurrence of an anchor or another end at or after a time (s).

    Raises:
        Undecided: It did not occur, or may not have been recorded.
    """
    occurrence = moments.find(history, moment, since_t)
    if occurrence is None:
        raise _missing(history, moment)
    return occurrence


def _missing(history: History, anchor: Moment) -> Undecided:
    if anchor.name == "fault-step":
        return Undecided("not-injected", f"{anchor} was not proven")
    if anchor.name == "last-heartbeat":
        before = Moment.from_json(anchor.args["before"])
        if moments.find(history, before):
            return Undecided("gap", f"{before} occurred, but the last heartbeat before it was not recorded")
        return _missing(history, before)
    recorded = Span(history.began_t, history.ended_t)
    doubt = (
        watch_loss(history, (anchor,), recorded)
        or next(filter(None, (witnessed.lost(history, part, recorded) for part in moments.parts(anchor))), "")
        or unfenced(history, (anchor,), history.began_t)
    )
    if doubt:
        return Undecided("gap", f"{anchor} was not recorded: {doubt}")
    return Undecided("no-anchor", f"the anchor {anchor} did not occur")


def find_event(
    history: History, event: Moment, start: Occurrence, configuration: Configuration
) -> Occurrence | None:
    """Return the first event after an anchor, or just before it if the event came too early."""
    return moments.find(history, event, start.t - configuration.slack_limit_s - LOOK_BACK_S)


def moments_of(check: Check) -> list[Moment]:
    """Return the moments of a check, and those that count as signs of life."""
    named = moments_in(check.args, *(part for part in _PARTS if part in check.args))
    signs = [witnessed.any_sign(str(check.args["subject"]))] if check.name == "lives-on" else []
    return [*named, *events_of_bursts(check.args), *signs]


def events_of_bursts(args: Mapping[str, Any]) -> Sequence[Moment]:
    """Return the events of an `in_bursts` check, each once; empty for another check."""
    stored_events = (Moment.from_json(part["event"]) for part in args.get("each", ()))
    return list({str(event): event for event in stored_events}.values())


def moments_in(args: Mapping[str, Any], *names: str) -> list[Moment]:
    """Return the moments that a check stores under these names."""
    return [Moment.from_json(args[name]) for name in names]


def between(history: History, after: Moment, until: Moment) -> Span:
    """Return the time between two moments.

    Raises:
        Undecided: One of them is missing.
    """
    start = require(history, after)
    return Span(start.t, require(history, until, start.t).t)
