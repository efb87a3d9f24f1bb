"""Checks of when events occur after another, and of the order of two writes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nodeproof.checks import heartbeats, moments
from nodeproof.checks.checks import Times, any_time, judges
from nodeproof.checks.evidence import find_event, missing, recorded_span, unfenced, watch_loss
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History, fence
from nodeproof.model.judgment import Check, Moment, words_in
from nodeproof.model.slack import Span, longest_slack_s
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]


def _after_times(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    if start is None:
        return None
    occurrence = find_event(history, Moment.from_json(args["event"]), start, configuration)
    if occurrence is None:
        return _window_times(history, args, configuration, start)
    return [recorded_span(start), Span.at(occurrence.t)]


def _never_times(history: History, args: Args, configuration: Configuration) -> Times:
    start = moments.find(history, Moment.from_json(args["anchor"]))
    return None if start is None else _window_times(history, args, configuration, start)


def _window_times(history: History, args: Args, configuration: Configuration, start: Occurrence) -> Times:
    """Return the time from the anchor to the latest end of the window."""
    context = WindowContext(configuration, longest_slack_s(history, configuration))
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    return [Span(start.t, start.t + window.high_s)]


def _after_remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float | None:
    return _remaining_s(history, args, context, now_t, is_absence=False)


def _never_remaining_s(history: History, args: Args, context: WindowContext, now_t: float) -> float | None:
    return _remaining_s(history, args, context, now_t, is_absence=True)


def _remaining_s(
    history: History, args: Args, context: WindowContext, now_t: float, *, is_absence: bool
) -> float | None:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return None
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    since_s = window.low_s if is_absence else min(window.low_s, 0.0)
    if moments.find(history, event, start.t + since_s) is not None:
        return 0.0
    return start.t + window.high_s - now_t


@judges("after", times=_after_times, remaining_s=_after_remaining_s, looks_back=True)
def _judge_after(history: History, args: Args, context: WindowContext, *_: object) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    spec = WindowSpec.from_json(args["window"])
    start = moments.find(history, anchor)
    if start is None and anchor.name == "last-heartbeat":
        start = moments.long_silence(history, anchor, compute(spec, context, {"heartbeat": "status"}).high_s)
    if start is None:
        return missing(history, anchor)
    window = compute(spec, context, start.detail)
    if window.shape == "negative":
        raise ValueError("a window of an absence cannot bound the time of an event")
    if not window.discerning:
        return _indiscernible(spec, context, start.detail, window)
    occurrence = find_event(history, event, start, context.configuration)
    end = recorded_span(occurrence) if occurrence else Span.at(start.t + window.high_s)
    gap = watch_loss(history, (event, anchor), start.t, end.until_t, recorded_span(start), end)
    if gap:
        return unproven("gap", gap, window)
    if occurrence is None:
        return _did_not_come(history, event, anchor, start, window)
    doubt = unfenced(history, anchor, occurrence.t) if anchor.name == "last-heartbeat" else ""
    if doubt:
        return unproven("gap", f"there may be a later heartbeat: {doubt}", window)
    return _judge_time(history, event, anchor, window, occurrence.t - start.t)


def _indiscernible(spec: WindowSpec, context: WindowContext, anchor: Args, window: Window) -> Verdict:
    """Return the verdict for a window that admits half or double the value.

    The cause is the configuration, or the slack of a loaded host.
    """
    reason = f"the window {window.arithmetic} also admits half or double the value"
    idle = compute(spec, WindowContext(context.configuration, 0.0), anchor)
    return unproven("host-too-loaded" if idle.discerning else "scaled", reason, window)


def _judge_time(history: History, event: Moment, anchor: Moment, window: Window, value: float) -> Verdict:
    measured = Measured(value, "s")
    if window.holds(value):
        return conforms(f"{event} occurred {value:.3f} s after {anchor}", window, measured)
    side = "too early" if value < window.low_s else "too late"
    return deviates(
        f"{event} occurred {value:.3f} s after {anchor}: {side}",
        window,
        measured,
        moments.last_state(history, event),
    )


def _did_not_come(
    history: History, event: Moment, anchor: Moment, start: Occurrence, window: Window
) -> Verdict:
    """Return the verdict for a missing event: a deviation only if the fence is after the window's end."""
    end_t = start.t + window.high_s
    for moment in (event, anchor):
        doubt = unfenced(history, moment, end_t)
        if doubt and moment.name != "fault-step":
            return unproven("gap", f"{event} was not recorded by the window's end: {doubt}", window)
    state = moments.last_state(history, event)
    return deviates(
        f"{event} did not occur within {window.high_s:.2f} s after {anchor}", window, last_state=state
    )


@judges("never", times=_never_times, remaining_s=_never_remaining_s, looks_back=True)
def _judge_never(history: History, args: Args, context: WindowContext, *_: object) -> Verdict:
    event, anchor = Moment.from_json(args["event"]), Moment.from_json(args["anchor"])
    start = moments.find(history, anchor)
    if start is None:
        return missing(history, anchor)
    window = compute(WindowSpec.from_json(args["window"]), context, start.detail)
    if not window.discerning:
        return unproven("scaled", f"the window {window.arithmetic} is empty", window)
    begin_t, end_t, slack_s = start.t + window.low_s, start.t + window.high_s, context.slack_s
    ahead_s = 0.0 if window.low_s == 0.0 and _come_in_order(event, anchor) else slack_s
    occurrence = moments.find_state(history, event, begin_t + ahead_s)
    if occurrence is not None and occurrence.t <= end_t - slack_s:
        ends = (recorded_span(start), recorded_span(occurrence))
        gap = watch_loss(history, (event, anchor), start.t, occurrence.t, *ends)
        if gap:
            return unproven("gap", f"{event} may have occurred before {anchor}: {gap}", window)
        measured = Measured(occurrence.t - start.t, "s")
        state = moments.last_state(history, event)
        return deviates(f"{event} occurred {measured} after {anchor}, but must not", window, measured, state)
    close_occurrence = moments.find_state(history, event, begin_t - ahead_s)
    if close_occurrence is not None and close_occurrence.t <= end_t + slack_s:
        reason = f"{event} occurred {close_occurrence.t - start.t:.3f} s after {anchor}"
        reason += f": within the slack of {slack_s:.2f} s of an end of {window.arithmetic}"
        return unproven("gap", reason, window)
    late_end = Span(end_t, end_t + slack_s)
    doubt = (
        moments.unable(history, event, Span(max(begin_t, start.t), end_t))
        or unfenced(history, event, end_t)
        or watch_loss(history, (event, anchor), start.t, late_end.until_t, recorded_span(start), late_end)
    )
    if doubt:
        return unproven("gap", f"absence is not proven: {doubt}", window)
    start_text = f" from {window.low_s:.2f} s on" if window.low_s else ""
    reason = f"{event} did not occur{start_text} for {window.high_s - window.low_s:.2f} s after {anchor}"
    return conforms(reason, window, Measured("none"))


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


@judges("renewals", times=any_time, remaining_s=_renewals_remaining_s)
def _judge_renewals(history: History, args: Args, context: WindowContext, *_: object) -> Verdict:
    node, min_gaps = str(args["node"]), max(1, int(args["at_least"]))
    spec = WindowSpec.from_json(args["window"])
    window = compute(spec, context, {})
    if not window.discerning:
        return _indiscernible(spec, context, {}, window)
    times = [beat.t for beat in heartbeats.watched_renewals(history, node)]
    gaps = [after - before for before, after in pairwise(times)]
    gap = history.gap("leases", history.began_t, history.ended_t)
    if gap is not None:
        return unproven("gap", f"the watch of leases had a gap: {gap.reason}", window)
    outside_gaps = [gap for gap in gaps if not window.holds(gap)]
    if outside_gaps:
        outside = Measured(outside_gaps[0], "s")
        return deviates(f"{len(outside_gaps)} of {len(gaps)} renewals of {node} are outside", window, outside)
    first_s = times[0] - history.began_t if times else 0.0
    if first_s > window.high_s:
        reason = f"{node} sent no renewal in the first {first_s:.3f} s; its last one before is unknown"
        return unproven("gap", reason, window)
    silence = _silent_since(history, times, window)
    if silence is not None or len(gaps) < min_gaps:
        return silence or unproven("gap", f"{len(gaps)} renewals of {node}, need {min_gaps}", window)
    mean = Measured(sum(gaps) / len(gaps), "s")
    return conforms(
        f"{len(gaps)} renewals of {node}, {min(gaps):.3f} to {max(gaps):.3f} s apart", window, mean
    )


def _silent_since(history: History, times: list[float], window: Window) -> Verdict | None:
    """Return a deviation if no renewal came for longer than the window before the fence, else None."""
    last_fence = fence(history, ("leases",))
    silence_s = last_fence.t - (times[-1] if times else history.began_t)
    if not last_fence.passed or silence_s <= window.high_s:
        return None
    return deviates(f"no renewal for {silence_s:.3f} s", window, Measured(silence_s, "s"))


def _order_times(history: History, args: Args, *_: object) -> Times:
    ends = (moments.find(history, Moment.from_json(args[part])) for part in ("anchor", "event"))
    times = [end.t for end in ends if end is not None]
    return [Span(min(times), max(times))] if times else None


def in_order(first: Moment, then: Moment) -> Check:
    """Check that one change of an object was written before another, by their resourceVersions.

    etcd's revision counts the writes of all resources. A removal has a revision, too.
    """
    return Check("in-order", {"anchor": first.to_json(), "event": then.to_json()})


@judges("in-order", times=_order_times)
def _judge_in_order(history: History, args: Args, *_: object) -> Verdict:
    first, then = Moment.from_json(args["anchor"]), Moment.from_json(args["event"])
    earlier, later = moments.find(history, first), moments.find(history, then)
    if earlier is None:
        return missing(history, first)
    if later is None:
        return missing(history, then)
    if not earlier.revision or not later.revision:
        raise LookupError(f"{first} and {then} are not both changes of an object")
    gap = watch_loss(history, (first, then), history.began_t, max(earlier.t, later.t))
    if gap:
        return unproven("gap", f"one of them may have occurred earlier: {gap}")
    reason = f"{first} was written at revision {earlier.revision}, {then} at {later.revision}"
    measured = Measured(float(later.revision - earlier.revision))
    return (
        conforms(reason, measured=measured)
        if earlier.revision < later.revision
        else deviates(reason, measured=measured)
    )


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
