"""Checks: pure functions of a History, stored by name and arguments; the evidence and measurements of them.

The current code can therefore judge a saved run again. A check is one function, which `measures` registers by
the stored name. A claim starts from its anchor. Without the anchor the claim is undecided. Whether the anchor
should have occurred is another judgment, which a claim that promises its anchor must make as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Concatenate, Literal, ParamSpec

from nodeproof.checks import moments, shapes, witnessed
from nodeproof.checks.shapes import Occurrence
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import Gap, History, fence
from nodeproof.model.judgment import Check, Moment, Word
from nodeproof.model.pattern import Json, unknown
from nodeproof.model.slack import Span, hull, slack_s
from nodeproof.model.verdict import Code, Measured, Outlier, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Window, WindowContext, WindowSpec, compute

Args = Mapping[str, Json]
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


def events_of_bursts(args: Args) -> Sequence[Moment]:
    """Return the events of an `in_bursts` check, each once; empty for another check."""
    stored_events = (Moment.from_json(part["event"]) for part in args.get("each", ()))
    return list({str(event): event for event in stored_events}.values())


def moments_in(args: Args, *names: str) -> list[Moment]:
    """Return the moments that a check stores under these names."""
    return [Moment.from_json(args[name]) for name in names]


def between(history: History, after: Moment, until: Moment) -> Span:
    """Return the time between two moments.

    Raises:
        Undecided: One of them is missing.
    """
    start = require(history, after)
    return Span(start.t, require(history, until, start.t).t)


@dataclass(frozen=True)
class Case:
    """What a check measures: a recording, in the context of its windows, for a claim."""

    history: History
    context: WindowContext
    claim: Claim


@dataclass(frozen=True)
class Measurement:
    """A result that a check read from a recording, and the evidence that it needs.

    Args:
        reason: The result and its comparison with the claim.
        measured: The value.
        window: The window that it was compared with.
        finding: `holds`; `deviates`, whatever else occurred; `lacks`: too few events, a deviation if
            the recording is complete.
        code: Why complete evidence does not decide either, or an empty string.
        last_state: The last recorded state of the object.
        read: The time in which the moments were read from watches, which must not have lost events.
        exact: The times in it that a gap would make unknown, even if its events came late; by default all.
        if_lost: Reason to report if a watch lost events in `read`.
        complete: The moments of which none may have been missed.
        complete_t: The time (s) up to which `complete` must be complete.
        if_missed: Reason to report if a moment of `complete` was missed.
        outliers: The times between events of a series that deviate.
    """

    reason: str
    measured: Measured | None = None
    window: Window | None = None
    finding: Literal["holds", "deviates", "lacks"] = "holds"
    code: Code = ""
    last_state: str = ""
    read: Span | None = None
    exact: Sequence[Span] | None = None
    if_lost: str = ""
    complete: Sequence[Moment] = ()
    complete_t: float = 0.0
    if_missed: str = ""
    outliers: Sequence[Outlier] = ()


def place(measurement: Measurement, history: History, involved: Sequence[Moment]) -> Verdict:
    """Return the verdict that a recording proves by a measurement of some moments.

    A loss of a watch comes first: it makes the measurement itself uncertain. A missed event cannot undo a
    deviation, but it may be what a claim lacks, or refute a result that holds.
    """
    reason, window, measured = measurement.reason, measurement.window, measurement.measured
    if measurement.read is not None:
        lost = watch_loss(history, involved, measurement.read, measurement.exact)
        if lost:
            return unproven("gap", _because(measurement.if_lost, lost), window)
    if measurement.finding != "deviates":
        missed = unfenced(history, measurement.complete, measurement.complete_t)
        if missed:
            return unproven("gap", _because(measurement.if_missed, missed), window)
    if measurement.code:
        return unproven(measurement.code, reason, window, measured)
    if measurement.finding == "holds":
        return conforms(reason, window, measured)
    verdict = deviates(reason, window, measured, measurement.last_state)
    return replace(verdict, outliers=tuple(measurement.outliers))


def _because(meaning: str, doubt: str) -> str:
    return f"{meaning}: {doubt}" if meaning else doubt


def outliers_of(gaps: Iterable[tuple[Window, Span]]) -> Sequence[Outlier]:
    """Return the times between events that are outside their windows."""
    return [Outlier(window, (gap,)) for window, gap in gaps if not window.holds(gap.length_s)]


def compare(holds: bool, reason: str, expected: str, measured: Measured) -> Measurement:
    """Return the measurement of a value that needs no watch."""
    if holds:
        return Measurement(reason, measured)
    return Measurement(f"{reason}, expected {expected}", measured, finding="deviates")


def window_of(spec: WindowSpec, context: WindowContext, anchor: Args) -> Window:
    """Return a window; `anchor` holds the details of the anchor's occurrence.

    Raises:
        Undecided: The window proves nothing about the claimed value.
    """
    window = compute(spec, context, anchor)
    if not window.discerning:
        raise indiscernible(spec, context, anchor)
    return window


def indiscernible(spec: WindowSpec, context: WindowContext, anchor: Args) -> Undecided:
    """Return the verdict for a window that proves nothing: because of the configuration, or of slack."""
    window = compute(spec, context, anchor)
    idle = compute(spec, WindowContext(context.configuration, 0.0), anchor)
    admitted = "is empty" if window.shape == "negative" else "also admits half or double the value"
    code: Code = "host-too-loaded" if idle.discerning else "scaled"
    return Undecided(code, f"the window {window.arithmetic} {admitted}", window)


Parameters = ParamSpec("Parameters")
Times = Sequence[Span] | None
"""Times of a recording at which a check reads its result; None means any time."""
TimesOf = Callable[[History, Args, Configuration], Times]
RemainingOf = Callable[[History, Args, WindowContext, float], float | None]
_BEFORE = ("anchor", "since")
"""Moments that are searched from the start of the recording."""


def any_time(*_: object) -> Times:
    """Return the times of a check that reads the whole recording."""
    return None


@dataclass(frozen=True)
class _Registered:
    word: Word[Measurement]
    times: TimesOf
    remaining_s: RemainingOf | None
    looks_back: bool


_CHECKS: dict[str, _Registered] = {}
"""Every check, by its name in recorded runs."""


def measures(
    name: str,
    *,
    times: TimesOf,
    remaining_s: RemainingOf | None = None,
    looks_back: bool = False,
    refuse: Callable[..., str] | None = None,
    **keys: str,
) -> Callable[[Callable[Concatenate[Case, Parameters], Measurement]], Callable[Parameters, Check]]:
    """Make a function from a case and arguments to a measurement the constructor of a check.

    The check is stored by its name and arguments, and the current code measures. The functions may raise
    `Undecided`.

    Args:
        name: The name of the check in recorded runs, which must keep its meaning.
        times: Returns the times of the anchor and event of the check; for an absence or a state, its whole
            window. Stalls at other times do not affect the verdict.
        remaining_s: Returns how much longer (s) a recording must continue, for a check that is decided at
            some time of a recording rather than at its end; see the function `remaining_s`.
        looks_back: Whether the check also searches for its event before its anchor.
        refuse: Returns why the constructor raises a ValueError for some arguments, or an empty string.
        **keys: The keys of parameters in recorded runs, where they differ from the parameter's name.
    """

    def decorate(
        function: Callable[Concatenate[Case, Parameters], Measurement],
    ) -> Callable[Parameters, Check]:
        if name in _CHECKS:
            raise ValueError(
                f"{function.__name__} and {_CHECKS[name].word.function.__name__} are both {name!r}"
            )
        _CHECKS[name] = _Registered(Word.of(name, function, keys, first=1), times, remaining_s, looks_back)
        return _CHECKS[name].word.constructor(Check, refuse)

    return decorate


def describe(check: Check) -> str:
    """Describe a check on one line."""
    if "each" in check.args:
        return f"bursts of {' and '.join(map(str, events_of_bursts(check.args)))}"
    if "event" not in check.args:
        subject = next(
            (check.args[key] for key in ("node", "subject", "constant", "fault") if key in check.args), ""
        )
        return f"{check.name}({subject})"
    event, anchor = Moment.from_json(check.args["event"]), Moment.from_json(check.args["anchor"])
    return f"{'no ' if check.name == 'never' else ''}{event} after {anchor}"


def run_check(check: Check, history: History, context: WindowContext, claim: Claim) -> Verdict:
    """Evaluate one check.

    Raises:
        LookupError: The check is unknown or invalid, see `refuse`.
    """
    refuse(check, history, context.configuration)
    doubt = missing_evidence(check, history, context.configuration)
    if doubt:
        return unproven("gap", doubt)
    doubt = _order_doubt(check, history, context.configuration)
    if doubt:
        return unproven("host-too-loaded", doubt)
    try:
        measurement = _CHECKS[check.name].word.call(check.args, Case(history, context, claim))
    except Undecided as undecided:
        return undecided.verdict
    return place(measurement, history, moments_of(check))


def refuse(check: Check, history: History, configuration: Configuration) -> None:
    """Reject a check that can never match: misspelled names, or resources that are not recorded.

    Raises:
        LookupError: The check is invalid.
    """
    recorded = {entry.data["resource"] for entry in history.of_kind("listed")}
    required = {name for composed_of in moments_of(check) for name in moments.resources(composed_of)}
    if recorded and not required <= recorded:
        raise LookupError(f"not recorded: {', '.join(sorted(required - recorded))}")
    for composed_of in (moment for moment in moments_of(check) for moment in moments.parts(moment)):
        shape = shapes.shape(composed_of)
        problem = shapes.fault(shape) or _unknown_fields(shape, configuration.fields)
        if problem:
            raise LookupError(f"{composed_of}: {problem}")


def _unknown_fields(shape: shapes.Shape, schema_fields: Mapping[str, frozenset[str]]) -> str:
    for resource, paths in shapes.paths(shape).items():
        if resource not in schema_fields:
            continue
        # A path is split at its dots, so it cannot name a key with dots, such as a label.
        is_dotted = isinstance(shape, shapes.Changed)
        unknown_names = (
            paths - schema_fields[resource] if is_dotted else unknown(paths, schema_fields[resource])
        )
        if unknown_names:
            return f"objects of {resource} have no field {', '.join(sorted(unknown_names))}"
    return ""


def can_be_waited_for(check: Check) -> bool:
    """Return whether a check is decided at some time of a recording, rather than at its end."""
    return _CHECKS[check.name].remaining_s is not None


def remaining_s(check: Check, history: History, context: WindowContext, now_t: float) -> float | None:
    """Return how much longer (s) a recording must continue for a check that can be waited for.

    0 or less once it is decided or its window is over; None while its anchor has not occurred, and for a
    check that cannot be waited for.
    """
    remaining = _CHECKS[check.name].remaining_s
    try:
        return None if remaining is None else remaining(history, check.args, context, now_t)
    except Undecided:
        return None


def evidence_times(check: Check, history: History, configuration: Configuration) -> Times:
    """Return the times of a recording at which a check reads its result.

    None means any time: for a count of the whole recording, and if an anchor is missing.

    Raises:
        KeyError: This version does not know the check.
    """
    try:
        return _CHECKS[check.name].times(history, check.args, configuration)
    except Undecided:
        return None


def missing_evidence(check: Check, history: History, configuration: Configuration) -> str:
    """Return why evidence that decides a check may be missing from the recording, or an empty string."""
    return _broken(check, history) or _lost(check, history, configuration) or _late(check, history)


def _broken(check: Check, history: History) -> str:
    """Return which observer thread of a check ended, or an empty string; a watch that ends is a gap."""
    if check.name == "default":
        return ""
    for entry in history.of_kind("broken"):
        observed = {name: entry.data[name] for name in ("what", "subject") if name in entry.data}
        if "resource" not in entry.data and observed.items() <= check.args.items():
            observer = (
                f"the observation of {observed['what']} of {observed['subject']}"
                if observed
                else "a background observation"
            )
            return f"{observer} ended: {entry.data['error']}"
    return ""


def _lost(check: Check, history: History, configuration: Configuration) -> str:
    """Return which moment of a check may have occurred unseen where it was searched, or an empty string."""
    if not history.of_kind("gap") and not history.of_kind("heard"):
        return ""
    for moment, search_time in _search_times(check, history, configuration):
        for part, part_time in moments.search_spans(history, moment, search_time):
            reason = lossy_gap(history, part, part_time) or witnessed.lost(history, part, part_time)
            if reason:
                return f"{part} may have come: {reason}"
    return ""


def _late(check: Check, history: History) -> str:
    """Return which moment, after or before which a check searches another, occurred in a gap of its watch."""
    for bound, limit, _target in _bounds(check, history):
        gap = watch_loss(history, (bound,), Span.at(limit.t))
        if gap:
            return f"{bound} occurred while {gap}"
    return ""


def _order_doubt(check: Check, history: History, configuration: Configuration) -> str:
    """Return which moment was received right before one after which it is searched, or an empty string.

    They come from two watches, of which one may be slower. A retry may tell them apart.
    """
    for bound, limit, target in _bounds(check, history):
        since_t = limit.t - slack_s(history, configuration, [Span.at(limit.t)])
        before = moments.find(history, target, since_t) if target else None
        if before is not None and before.t < limit.t:
            return f"{target} occurred {limit.t - before.t:.3f} s before {bound}: within the slack"
    return ""


def _bounds(check: Check, history: History) -> Iterator[tuple[Moment, Occurrence, Moment | None]]:
    """Yield each moment, not on our clock, after or before which a check searches another, with that one."""
    for bound, target in _search_bounds(check):
        limit = moments.find(history, bound)
        if limit is not None and not moments.is_on_our_clock(bound):
            yield bound, limit, target


def _search_bounds(check: Check) -> Iterator[tuple[Moment, Moment | None]]:
    """Yield each moment after or before which a check searches another, with that one."""
    for moment in moments_of(check):
        yield from moments.search_bounds(moment)
    since = [Moment.from_json(check.args[part]) for part in _BEFORE if part in check.args]
    if since and "until" in check.args:
        until = Moment.from_json(check.args["until"])
        if not moments.come_in_order(since[0], until):
            yield since[0], until


def _search_times(
    check: Check, history: History, configuration: Configuration
) -> Iterator[tuple[Moment, Span]]:
    """Yield each moment of a check with the time in which it was searched."""
    anchors = [Moment.from_json(check.args[part]) for part in _BEFORE if part in check.args]
    for anchor in anchors:
        occurrence = moments.find(history, anchor)
        yield anchor, Span(history.began_t, occurrence.t if occurrence else history.ended_t)
    times = evidence_times(check, history, configuration)
    if not times:
        return
    time = hull(times)
    look_back_s = configuration.slack_limit_s + LOOK_BACK_S if _CHECKS[check.name].looks_back else 0.0
    # A message from the slack of an end may have come on the other side of it.
    unsure_s = slack_s(history, configuration, [time])
    for moment in moments_of(check):
        if moment not in anchors:
            yield moment, Span(time.since_t - look_back_s - unsure_s, time.until_t + unsure_s)
