"""Check of bursts: operations that are tried several times in a row, then not for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from nodeproof.checks import counting, moments
from nodeproof.checks.anchors import unfenced
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground, Window, WindowSpec, compute

Json = Any
Args = Mapping[str, Json]
Run = tuple[int, int]
"""Number of an event, and how often it occurred in a row."""


def in_bursts(
    *runs: tuple[Moment, int], apart: WindowSpec, at_least: int, after: Moment, until: Moment
) -> Check:
    """Check that events come in bursts: each `(event, times)` in turn, exactly that often.

    The check covers the time between `after` and `until`. Events less than half of `apart` from each other
    are one burst.

    Args:
        *runs: The events of a burst, in order, each with its number of occurrences.
        apart: Window from the end of a burst to the start of the next.
        at_least: Minimum number of complete bursts.
        after: Start of the checked time.
        until: End of the checked time.

    Raises:
        ValueError: A burst is empty.
    """
    if not runs or any(times < 1 for _event, times in runs):
        raise ValueError(f"a burst of {[times for _event, times in runs]} times")
    runs_json = {"each": [{"event": event.to_json(), "times": times} for event, times in runs]}
    ends = {"anchor": after.to_json(), "until": until.to_json()}
    return Check("in-bursts", {**runs_json, **ends, "window": apart.to_json(), "at_least": at_least})


def events(args: Args) -> Sequence[Moment]:
    """Return the events of the bursts, each once; empty for another check."""
    stored_events = (Moment.from_json(part["event"]) for part in args.get("each", ()))
    return list({str(event): event for event in stored_events}.values())


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge an `in_bursts` check.

    Raises:
        LookupError: A moment cannot be counted.
    """
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    window = compute(WindowSpec.from_json(args["window"]), ground, {})
    burst_events = events(args)
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    doubt = blind(history, (*burst_events, *ends), within.since_t, within.until_t)
    if doubt:
        return unproven("gap", doubt, window)
    tries = sorted(
        (tries.t, number)
        for number, event in enumerate(burst_events)
        for tries in moments.each(history, event)
    )
    doubt = next(filter(None, (unfenced(history, event, within.until_t) for event in burst_events)), "")
    silence_s = _longest_silence_s([t for t, _number in tries], within)
    if silence_s > window.high_s and not doubt:
        # No slack can hide a silence of this length.
        return deviates(f"no tries for {silence_s:.1f} s", window, Measured(silence_s, "s"))
    if not window.discerning or ground.slack_s >= window.nominal_s / 2:
        idle = compute(WindowSpec.from_json(args["window"]), Ground(ground.configuration, 0.0), {})
        reason = f"the window {window.arithmetic} also admits half or double the value"
        return unproven("host-too-loaded" if idle.discerning else "scaled", reason, window)
    half_s = window.nominal_s / 2
    bursts, unclear = _split(tries, half_s, ground.slack_s)
    if not any(within.since_t <= t <= within.until_t for t in unclear):
        return _judge_bursts(args, bursts, within, window, ground, doubt)
    joined, _unclear = _split(tries, half_s + ground.slack_s, 0.0)
    verdict = _judge_bursts(args, joined, within, window, ground, doubt)
    if verdict.outcome == "deviates" and not window.holds(half_s + ground.slack_s):
        # As separate bursts they are too close to each other.
        return verdict
    reason = f"cannot tell within the slack whether tries {half_s:g} s apart are one burst"
    return unproven("host-too-loaded", reason, window)


def _judge_bursts(
    args: Args,
    bursts: Sequence[Sequence[tuple[float, int]]],
    within: Span,
    window: Window,
    ground: Ground,
    doubt: str,
) -> Verdict:
    """Judge the contents of the bursts, then the pauses between them."""
    burst_events = events(args)
    # A burst near an end of the checked time may be incomplete.
    certain = Span(within.since_t + ground.slack_s, within.until_t - ground.slack_s)
    whole = [burst for burst in bursts if certain.since_t <= burst[0][0] and burst[-1][0] <= certain.until_t]
    expected = [
        (burst_events.index(Moment.from_json(part["event"])), int(part["times"])) for part in args["each"]
    ]
    deviating = next((burst for burst in whole if _runs(burst) != expected), None)
    if deviating is None:
        # An incomplete burst must not have more tries than a complete one.
        most = sum(times for _number, times in expected)
        tries = (
            [try_ for try_ in burst if certain.since_t <= try_[0] <= certain.until_t] for burst in bursts
        )
        deviating = next((part for part in tries if len(part) > most), None)
    if deviating is not None:
        reason = f"a burst of {_describe_runs(_runs(deviating), burst_events)}"
        reason += f", expected {_describe_runs(expected, burst_events)}"
        return deviates(reason, measured=Measured(float(len(deviating)), "times"))
    return _judge_pauses(args, bursts, whole, within, window, doubt)


def _judge_pauses(
    args: Args,
    bursts: Sequence[Sequence[tuple[float, int]]],
    whole: Sequence[Sequence[tuple[float, int]]],
    within: Span,
    window: Window,
    doubt: str,
) -> Verdict:
    """Judge the pauses between bursts, and whether there are enough bursts."""
    min_bursts, burst_events = max(1, int(args["at_least"])), events(args)
    touching = [b for b in bursts if b[-1][0] >= within.since_t and b[0][0] <= within.until_t]
    pauses = [after[0][0] - before[-1][0] for before, after in pairwise(touching)]
    outside = next((pause for pause in pauses if not window.holds(pause)), None)
    if outside is not None:
        return deviates(f"{outside:.3f} s from one burst to the next", window, Measured(outside, "s"))
    if doubt:
        return unproven("gap", f"there may be more tries: {doubt}", window)
    if len(whole) < min_bursts:
        return unproven("gap", f"{len(whole)} complete bursts, need {min_bursts}", window)
    runs = _describe_runs(_runs(whole[0]), burst_events)
    return conforms(f"{len(whole)} bursts of {runs}", measured=Measured(float(len(whole[0])), "times"))


def _longest_silence_s(times: Sequence[float], within: Span) -> float:
    inside = [t for t in times if within.since_t <= t <= within.until_t]
    return max(after - before for before, after in pairwise([within.since_t, *inside, within.until_t]))


def _split(
    tries: Sequence[tuple[float, int]], max_pause_s: float, slack_s: float
) -> tuple[list[list[tuple[float, int]]], list[float]]:
    """Return the bursts, and the times of tries that may or may not belong to the burst before them."""
    bursts: list[list[tuple[float, int]]] = []
    unclear = []
    for t, number in tries:
        pause_s = t - bursts[-1][-1][0] if bursts else float("inf")
        if abs(pause_s - max_pause_s) < slack_s:
            unclear.append(t)
        if pause_s < max_pause_s:
            bursts[-1].append((t, number))
        else:
            bursts.append([(t, number)])
    return bursts, unclear


def _runs(burst: Sequence[tuple[float, int]]) -> list[Run]:
    return [(number, len(list(run))) for number, run in groupby(number for _t, number in burst)]


def _describe_runs(runs: Sequence[Run], burst_events: Sequence[Moment]) -> str:
    return ", ".join(f"{times} x {burst_events[number]}" for number, times in runs)
