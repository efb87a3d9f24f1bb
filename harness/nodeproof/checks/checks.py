"""Checks: pure functions of a History, stored by name and arguments.

The current code can therefore judge a saved run again. A check is one function, which `measures` registers by
the stored name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

from nodeproof.checks import moments, shapes, witnessed
from nodeproof.checks.evidence import (
    LOOK_BACK_S,
    Undecided,
    events_of_bursts,
    lossy_gap,
    moments_of,
    watch_loss,
)
from nodeproof.checks.placing import Case, Measurement, place
from nodeproof.checks.shapes import Occurrence
from nodeproof.checks.words import Word
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.pattern import unknown
from nodeproof.model.slack import Span, hull, slack_s
from nodeproof.model.verdict import Verdict, unproven
from nodeproof.model.window import WindowContext

Json = Any
Parameters = ParamSpec("Parameters")
Args = Mapping[str, Json]
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
        return _CHECKS[name].word.constructor(Check)

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
