"""What a recording can show: gaps of watches, moments that may have been missed, and missing anchors.

A claim starts from its anchor. Without the anchor the claim is undecided. Whether the anchor should have
occurred is another judgment, which a claim that promises its anchor must make as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodeproof.checks import moments, witnessed
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import Gap, History, fence
from nodeproof.model.judgment import Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Verdict, unproven

LOOK_BACK_S = 5.0
"""Time before the anchor (s) that is searched for an event that came too early."""


def watch_gap(history: History, involved: Iterable[Moment], from_t: float, to_t: float) -> str:
    """Return which watch of these moments had a gap between two times (s), or an empty string."""
    return next((_describe_gap(*gap) for gap in _gaps(history, involved, Span(from_t, to_t))), "")


def watch_loss(history: History, involved: Sequence[Moment], from_t: float, to_t: float, *exact: Span) -> str:
    """Return which watch of these moments may have lost events between two times (s), or an empty string.

    A watch that resumed from its resourceVersion lost nothing, but the times of the events in its gap are
    unknown. Such a gap only counts if it touches one of the `exact` times, or if a moment is computed from
    the times of others.
    """
    if any(moments.is_computed(moment) for moment in involved):
        return watch_gap(history, involved, from_t, to_t)
    for resource, gap in _gaps(history, involved, Span(from_t, to_t)):
        span = Span(gap.since_t, gap.until_t)
        if gap.is_lossy or any(span.touches(time) for time in exact):
            return _describe_gap(resource, gap)
    return ""


def _gaps(history: History, involved: Iterable[Moment], within: Span) -> Iterator[tuple[str, Gap]]:
    since_t, until_t = sorted((within.since_t, within.until_t))
    for resource in sorted({name for moment in involved for name in moments.resources(moment)}):
        for gap in history.gaps(resource, since_t, until_t):
            yield resource, gap


def _describe_gap(resource: str, gap: Gap) -> str:
    return f"the watch of {resource} had a gap of {gap.back_t - gap.since_t:.1f} s: {gap.reason}"


def recorded_span(occurrence: Occurrence) -> Span:
    """Return the span from an occurrence's time to its receipt, in either order."""
    received_t = float(occurrence.detail.get("received_t", occurrence.t))
    return Span(min(occurrence.t, received_t), max(occurrence.t, received_t))


def unfenced(history: History, moment: Moment, until_t: float) -> str:
    """Return why a moment may have been missed by its watches or witness up to a time (s).

    The result is an empty string if nothing was missed.
    """
    for part in moments.parts(moment):
        if witnessed.is_witnessed(part):
            doubt = witnessed.not_collected(history, part, until_t)
            if doubt or part == moment:
                return doubt
    last_fence = fence(history, moments.resources(moment))
    if not last_fence.passed:
        return last_fence.reason
    return f"the fence is {until_t - last_fence.t:.1f} s too early" if last_fence.t < until_t else ""


def missing(history: History, anchor: Moment) -> Verdict:
    """Return the verdict for a missing anchor: it did not occur, or it may not have been recorded."""
    if anchor.name == "fault-step":
        return unproven("not-injected", f"{anchor} was not proven")
    if anchor.name == "last-heartbeat":
        before = Moment.from_json(anchor.args["before"])
        if moments.find(history, before):
            return unproven("gap", f"{before} occurred, but the last heartbeat before it was not recorded")
        return missing(history, before)
    recorded = Span(history.began_t, history.ended_t)
    doubt = (
        watch_gap(history, (anchor,), recorded.since_t, recorded.until_t)
        or next(
            (loss for part in moments.parts(anchor) if (loss := witnessed.lost(history, part, recorded))), ""
        )
        or unfenced(history, anchor, history.began_t)
    )
    if doubt:
        return unproven("gap", f"{anchor} was not recorded: {doubt}")
    return unproven("no-anchor", f"the anchor {anchor} did not occur")


def find_event(
    history: History, event: Moment, start: Occurrence, configuration: Configuration
) -> Occurrence | None:
    """Return the first event after an anchor, or just before it if the event came too early."""
    return moments.find(history, event, start.t - configuration.slack_limit_s - LOOK_BACK_S)


def between(history: History, args: Mapping[str, Any]) -> Span | Verdict:
    """Return the time between the two moments, or the verdict if one is missing."""
    after, until = Moment.from_json(args["anchor"]), Moment.from_json(args["until"])
    start = moments.find(history, after)
    if start is None:
        return missing(history, after)
    end = moments.find(history, until, start.t)
    return missing(history, until) if end is None else Span(start.t, end.t)
