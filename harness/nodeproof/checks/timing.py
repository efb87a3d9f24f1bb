"""Checks of when events occur after another, and of the order of two writes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import (
    Args,
    Case,
    Measurement,
    Times,
    Undecided,
    any_time,
    find_event,
    indiscernible,
    measures,
    moments_in,
    outliers_of,
    recorded_span,
    require,
    window_of,
)
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.slack import Span, longest_slack_s
from nodeproof.model.verdict import Measured, Outlier
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute


def _after_times(history: History, args: Args, configuration: Configuration) -> Times:
    event, anchor = moments_in(args, "event", "anchor")
    start = require(history, anchor)
    occurrence = find_event(history, event, start, configuration)
    window = _window_with(longest_slack_s(history, configuration), args, configuration, start)
    if occurrence is None or occurrence.t - start.t > window.high_s:
        return [Span(start.t, start.t + window.high_s)]
    return [recorded_span(start), Span.at(occurrence.t)]


def _never_times(history: History, args: Args, configuration: Configuration) -> Times:
    """Return the time from the anchor to the latest end of the window, or to a refuting event."""
    event, anchor = moments_in(args, "event", "anchor")
    start = require(history, anchor)
    slack_s = longest_slack_s(history, configuration)
    window = _window_with(slack_s, args, configuration, start)
    end_t = start.t + window.high_s
    # An event within the slack of the window's beginning refutes nothing.
    occurrence = moments.find_state(history, event, start.t + max(window.low_s, 0.0) + slack_s)
    return [Span(start.t, min(end_t, occurrence.t) if occurrence else end_t)]


def _window_with(slack_s: float, args: Args, configuration: Configuration, start: Occurrence) -> Window:
    return compute(WindowSpec.from_json(args["window"]), WindowContext(configuration, slack_s), start.detail)


def _remaining_s(
    history: History, args: Args, context: WindowContext, now_t: float, *, is_absence: bool
) -> float | None:
    event, anchor = moments_in(args, "event", "anchor")
    start = require(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    since_s = window.low_s if is_absence else min(window.low_s, 0.0)
    if moments.find(history, event, start.t + since_s) is not None:
        return 0.0
    return start.t + window.high_s - now_t


@measures("after", times=_after_times, remaining_s=partial(_remaining_s, is_absence=False), looks_back=True)
def _after(case: Case, event: Moment, anchor: Moment, window: WindowSpec) -> Measurement:
    history, context = case.history, case.context
    start = _long_silence(case, anchor, window) or require(history, anchor)
    allowed = compute(window, context, start.detail)
    if allowed.shape == "negative":
        raise ValueError("a window of an absence cannot bound the time of an event")
    occurrence = find_event(history, event, start, context.configuration)
    is_over = occurrence is None or occurrence.t - start.t > allowed.high_s
    # A window that slack makes too wide to prove a value still has an end.
    undecided = None if allowed.discerning else indiscernible(window, context, start.detail)
    if undecided and not (is_over and undecided.verdict.code == "host-too-loaded"):
        raise undecided
    # What follows the window's end cannot change that the event is late.
    end = Span.at(start.t + allowed.high_s) if occurrence is None or is_over else recorded_span(occurrence)
    measurement = Measurement(
        f"{event} did not occur within {allowed.high_s:.2f} s after {anchor}",
        window=allowed,
        finding="lacks",
        last_state=moments.last_state(history, event),
        read=Span(start.t, end.until_t),
        exact=(recorded_span(start), end),
        complete=[moment for moment in (event, anchor) if moment.name != "fault-step"],
        complete_t=end.until_t,
        if_missed=f"{event} was not recorded by the window's end",
    )
    if occurrence is None:
        return measurement
    value_s = occurrence.t - start.t
    side = "" if allowed.holds(value_s) else ": too early" if value_s < allowed.low_s else ": too late"
    return replace(
        measurement,
        reason=f"{event} occurred {value_s:.3f} s after {anchor}{side}",
        measured=Measured(value_s, "s"),
        finding="lacks" if side else "holds",
        # A missed heartbeat would be the anchor. The event itself was not missed.
        complete=[anchor] if anchor.name == "last-heartbeat" else [],
        complete_t=occurrence.t,
        if_missed="there may be a later heartbeat",
    )


def _long_silence(case: Case, anchor: Moment, window: WindowSpec) -> Occurrence | None:
    """Return the heartbeat before a silence that the event should have ended, if the event never came."""
    if anchor.name != "last-heartbeat" or moments.find(case.history, anchor):
        return None
    allowed = compute(window, case.context, {"heartbeat": "status"})
    return moments.long_silence(case.history, anchor, allowed.high_s)


@measures("never", times=_never_times, remaining_s=partial(_remaining_s, is_absence=True), looks_back=True)
def _never(case: Case, event: Moment, anchor: Moment, window: WindowSpec) -> Measurement:
    history, slack_s = case.history, case.context.slack_s
    start = require(history, anchor)
    excluded = window_of(window, case.context, start.detail)
    begin_t, end_t = start.t + excluded.low_s, start.t + excluded.high_s
    ahead_s = 0.0 if excluded.low_s == 0.0 and moments.come_in_order(event, anchor) else slack_s
    # The slack decides where the event is searched: a moment may be known only from a time on.
    occurrence = moments.find_state(history, event, begin_t + ahead_s)
    if occurrence is not None and occurrence.t <= end_t - slack_s:
        measured = Measured(occurrence.t - start.t, "s")
        return Measurement(
            f"{event} occurred {measured} after {anchor}, but must not",
            measured,
            excluded,
            "deviates",
            last_state=moments.last_state(history, event),
            read=Span(start.t, occurrence.t),
            exact=(recorded_span(start), recorded_span(occurrence)),
            if_lost=f"{event} may have occurred before {anchor}",
        )
    occurrence = moments.find_state(history, event, begin_t - ahead_s)
    if occurrence is not None and occurrence.t <= end_t + slack_s:
        reason = f"{event} occurred {occurrence.t - start.t:.3f} s after {anchor}"
        reason += f": within the slack of {slack_s:.2f} s of an end of {excluded.arithmetic}"
        raise Undecided("gap", reason, excluded)
    unable = moments.unable(history, event, Span(max(begin_t, start.t), end_t))
    if unable:
        raise Undecided("gap", f"absence is not proven: {unable}", excluded)
    start_text = f" from {excluded.low_s:.2f} s on" if excluded.low_s else ""
    late_end = Span(end_t, end_t + slack_s)
    return Measurement(
        f"{event} did not occur{start_text} for {excluded.high_s - excluded.low_s:.2f} s after {anchor}",
        Measured("none"),
        excluded,
        read=Span(start.t, late_end.until_t),
        exact=(recorded_span(start), late_end),
        if_lost="absence is not proven",
        complete=[event],
        complete_t=end_t,
        if_missed="absence is not proven",
    )


def _renewals_remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float:
    min_gaps = int(args["at_least"])
    if len(heartbeats.watched_renewals(history, str(args["node"]))) > min_gaps:
        return 0.0
    window = compute(WindowSpec.from_json(args["window"]), context, {})
    return history.entries[0].t + (min_gaps + 2) * window.high_s - now_t


@measures("renewals", times=any_time, remaining_s=_renewals_remaining_s)
def renewals_of(case: Case, node: str, window: WindowSpec, at_least: int) -> Measurement:
    """Check that gaps between a node's lease renewals are within `window`, for at least `at_least` gaps."""
    history, min_gaps = case.history, max(1, at_least)
    allowed = window_of(window, case.context, {})
    # Renewals are read from the whole watch of leases, not through moments.
    gap = history.gap("leases", history.began_t, history.ended_t)
    if gap is not None:
        raise Undecided("gap", f"the watch of leases had a gap: {gap.reason}", allowed)
    times = [beat.t for beat in heartbeats.watched_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(times)]
    outliers = outliers_of((allowed, Span(*ends)) for ends in pairwise(times))
    if outliers:
        reason = f"{len(outliers)} of {len(gaps)} renewals of {node} are outside"
        measured = Measured(outliers[0].gaps[0].length_s, "s")
        return Measurement(reason, measured, allowed, "deviates", outliers=outliers)
    first_s = times[0] - history.began_t if times else 0.0
    if first_s > allowed.high_s:
        reason = f"{node} sent no renewal in the first {first_s:.3f} s; its last one before is unknown"
        raise Undecided("gap", reason, allowed)
    # The silence counts up to the fence, which need not be a window's end.
    last_fence = fence(history, ("leases",))
    silence = Span(times[-1] if times else history.began_t, last_fence.t)
    if last_fence.passed and silence.length_s > allowed.high_s:
        reason, measured = f"no renewal for {silence.length_s:.3f} s", Measured(silence.length_s, "s")
        outlier = Outlier(allowed, (silence,))
        return Measurement(reason, measured, allowed, "deviates", outliers=[outlier])
    if len(gaps) < min_gaps:
        raise Undecided("gap", f"{len(gaps)} renewals of {node}, need {min_gaps}", allowed)
    reason = f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart"
    mean_s = sum(gaps) / len(gaps)
    measurement = Measurement(reason, Measured(mean_s, "s"), allowed)
    # A stall shifts single renewals, so the mean is known better than each gap.
    narrow = compute(window, WindowContext(case.context.configuration, case.context.slack_s / len(gaps)), {})
    if narrow.holds(mean_s):
        return measurement
    return replace(measurement, reason=f"{reason}: too uncertain", code="host-too-loaded")


def _order_times(history: History, args: Args, *_: object) -> Times:
    ends = (moments.find(history, moment) for moment in moments_in(args, "anchor", "event"))
    times = [end.t for end in ends if end is not None]
    return [Span(min(times), max(times))] if times else None


@measures("in-order", times=_order_times, first="anchor", then="event")
def in_order(case: Case, first: Moment, then: Moment) -> Measurement:
    """Check that one change of an object was written before another, by their resourceVersions.

    etcd's revision counts the writes of all resources. A removal has a revision, too.
    """
    earlier, later = require(case.history, first), require(case.history, then)
    if not earlier.revision or not later.revision:
        raise LookupError(f"{first} and {then} are not both changes of an object")
    return Measurement(
        f"{first} was written at revision {earlier.revision}, {then} at {later.revision}",
        Measured(float(later.revision - earlier.revision)),
        finding="holds" if earlier.revision < later.revision else "deviates",
        read=Span(case.history.began_t, max(earlier.t, later.t)),
        exact=(),
        if_lost="one of them may have occurred earlier",
    )


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
