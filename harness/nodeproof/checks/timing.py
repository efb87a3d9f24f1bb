"""Checks of when events occur after another, and of the order of two writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import Times, any_time, measures
from nodeproof.checks.evidence import Undecided, find_event, moments_in, recorded_span, require
from nodeproof.checks.placing import Measurement, window_of
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.slack import Span, longest_slack_s
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]


def _after_times(history: History, args: Args, configuration: Configuration) -> Times:
    event, anchor = moments_in(args, "event", "anchor")
    start = require(history, anchor)
    occurrence = find_event(history, event, start, configuration)
    if occurrence is None:
        return _window_times(history, args, configuration, start)
    return [recorded_span(start), Span.at(occurrence.t)]


def _never_times(history: History, args: Args, configuration: Configuration) -> Times:
    start = require(history, Moment.from_json(args["anchor"]))
    return _window_times(history, args, configuration, start)


def _window_times(history: History, args: Args, configuration: Configuration, start: Occurrence) -> Times:
    """Return the time from the anchor to the latest end of the window."""
    context = WindowContext(configuration, longest_slack_s(history, configuration))
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    return [Span(start.t, start.t + window.high_s)]


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
def _measure_after(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    event, anchor = moments_in(args, "event", "anchor")
    start = _long_silence(history, args, context) or require(history, anchor)
    window = window_of(args, context, start.detail)
    if window.shape == "negative":
        raise ValueError("a window of an absence cannot bound the time of an event")
    occurrence = find_event(history, event, start, context.configuration)
    end = recorded_span(occurrence) if occurrence else Span.at(start.t + window.high_s)
    measurement = Measurement(
        f"{event} did not occur within {window.high_s:.2f} s after {anchor}",
        window=window,
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
    side = "" if window.holds(value_s) else ": too early" if value_s < window.low_s else ": too late"
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


def _long_silence(history: History, args: Args, context: WindowContext) -> Occurrence | None:
    """Return the heartbeat before a silence that the event should have ended, if the event never came."""
    anchor = Moment.from_json(args["anchor"])
    if anchor.name != "last-heartbeat" or moments.find(history, anchor):
        return None
    window = compute(WindowSpec.from_json(args["window"]), context, {"heartbeat": "status"})
    return moments.long_silence(history, anchor, window.high_s)


@measures("never", times=_never_times, remaining_s=partial(_remaining_s, is_absence=True), looks_back=True)
def _measure_never(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    event, anchor = moments_in(args, "event", "anchor")
    start = require(history, anchor)
    window = window_of(args, context, start.detail)
    begin_t, end_t, slack_s = start.t + window.low_s, start.t + window.high_s, context.slack_s
    ahead_s = 0.0 if window.low_s == 0.0 and _come_in_order(event, anchor) else slack_s
    occurrence = moments.find_state(history, event, begin_t + ahead_s)
    if occurrence is not None and occurrence.t <= end_t - slack_s:
        measured = Measured(occurrence.t - start.t, "s")
        return Measurement(
            f"{event} occurred {measured} after {anchor}, but must not",
            measured,
            window,
            "deviates",
            last_state=moments.last_state(history, event),
            read=Span(start.t, occurrence.t),
            exact=(recorded_span(start), recorded_span(occurrence)),
            if_lost=f"{event} may have occurred before {anchor}",
        )
    occurrence = moments.find_state(history, event, begin_t - ahead_s)
    if occurrence is not None and occurrence.t <= end_t + slack_s:
        reason = f"{event} occurred {occurrence.t - start.t:.3f} s after {anchor}"
        reason += f": within the slack of {slack_s:.2f} s of an end of {window.arithmetic}"
        raise Undecided("gap", reason, window)
    unable = moments.unable(history, event, Span(max(begin_t, start.t), end_t))
    if unable:
        raise Undecided("gap", f"absence is not proven: {unable}", window)
    start_text = f" from {window.low_s:.2f} s on" if window.low_s else ""
    late_end = Span(end_t, end_t + slack_s)
    return Measurement(
        f"{event} did not occur{start_text} for {window.high_s - window.low_s:.2f} s after {anchor}",
        Measured("none"),
        window,
        read=Span(start.t, late_end.until_t),
        exact=(recorded_span(start), late_end),
        if_lost="absence is not proven",
        complete=[event],
        complete_t=end_t,
        if_missed="absence is not proven",
    )


def _come_in_order(one: Moment, other: Moment) -> bool:
    """Return whether both moments are read from one watch, which delivers in order."""
    watches = {moments.resources(one), moments.resources(other)}
    return len(watches) == 1 and len(watches.pop()) == 1


def renewals_of(node: str, window: WindowSpec, at_least: int) -> Check:
    """Check that gaps between a node's lease renewals are within `window`, for at least `at_least` gaps."""
    return Check("renewals", {"node": node, "window": window.to_json(), "at_least": at_least})


def _renewals_remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float:
    min_gaps = int(args["at_least"])
    if len(heartbeats.watched_renewals(history, str(args["node"]))) > min_gaps:
        return 0.0
    window = compute(WindowSpec.from_json(args["window"]), context, {})
    return history.entries[0].t + (min_gaps + 2) * window.high_s - now_t


@measures("renewals", times=any_time, remaining_s=_renewals_remaining_s)
def _measure_renewals(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    node, min_gaps = str(args["node"]), max(1, int(args["at_least"]))
    window = window_of(args, context, {})
    gap = history.gap("leases", history.began_t, history.ended_t)
    if gap is not None:
        raise Undecided("gap", f"the watch of leases had a gap: {gap.reason}", window)
    times = [beat.t for beat in heartbeats.watched_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(times)]
    outside = [gap for gap in gaps if not window.holds(gap)]
    if outside:
        reason = f"{len(outside)} of {len(gaps)} renewals of {node} are outside"
        return Measurement(reason, Measured(outside[0], "s"), window, "deviates")
    first_s = times[0] - history.began_t if times else 0.0
    if first_s > window.high_s:
        reason = f"{node} sent no renewal in the first {first_s:.3f} s; its last one before is unknown"
        raise Undecided("gap", reason, window)
    # The silence counts up to the fence, which need not be a window's end.
    last_fence = fence(history, ("leases",))
    silence_s = last_fence.t - (times[-1] if times else history.began_t)
    if last_fence.passed and silence_s > window.high_s:
        return Measurement(f"no renewal for {silence_s:.3f} s", Measured(silence_s, "s"), window, "deviates")
    if len(gaps) < min_gaps:
        raise Undecided("gap", f"{len(gaps)} renewals of {node}, need {min_gaps}", window)
    reason = f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart"
    return Measurement(reason, Measured(sum(gaps) / len(gaps), "s"), window)


def _order_times(history: History, args: Args, *_: object) -> Times:
    ends = (moments.find(history, moment) for moment in moments_in(args, "anchor", "event"))
    times = [end.t for end in ends if end is not None]
    return [Span(min(times), max(times))] if times else None


def in_order(first: Moment, then: Moment) -> Check:
    """Check that one change of an object was written before another, by their resourceVersions.

    etcd's revision counts the writes of all resources. A removal has a revision, too.
    """
    return Check("in-order", {"anchor": first.to_json(), "event": then.to_json()})


@measures("in-order", times=_order_times)
def _measure_order(history: History, args: Args, *_: object) -> Measurement:
    first, then = moments_in(args, "anchor", "event")
    earlier, later = require(history, first), require(history, then)
    if not earlier.revision or not later.revision:
        raise LookupError(f"{first} and {then} are not both changes of an object")
    return Measurement(
        f"{first} was written at revision {earlier.revision}, {then} at {later.revision}",
        Measured(float(later.revision - earlier.revision)),
        finding="holds" if earlier.revision < later.revision else "deviates",
        read=Span(history.began_t, max(earlier.t, later.t)),
        exact=(),
        if_lost="one of them may have occurred earlier",
    )


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
