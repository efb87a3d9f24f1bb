"""What is tried several times in a row, and then not for a while: how often, in each of these bursts."""

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
"""Which of the events, and how often it came in a row."""


def in_bursts(
    *each: tuple[Moment, int], apart: WindowSpec, at_least: int, after: Moment, until: Moment
) -> Check:
    """Between two moments events come in bursts: `(event, times)` one after the other, exactly so often, and
    from a burst's end to the next one's begin `apart`; at least `at_least` whole bursts. What is less than
    half of that apart is one burst. Raises ValueError on a burst of nothing.
    """
    if not each or any(times < 1 for _event, times in each):
        raise ValueError(f"a burst of {[times for _event, times in each]} times")
    told = {"each": [{"event": event.to_json(), "times": times} for event, times in each]}
    ends = {"anchor": after.to_json(), "until": until.to_json()}
    return Check("in-bursts", {**told, **ends, "window": apart.to_json(), "at_least": at_least})


def events(args: Args) -> Sequence[Moment]:
    """What the bursts are made of, each once; nothing of another check."""
    named = (Moment.from_json(part["event"]) for part in args.get("each", ()))
    return list({str(event): event for event in named}.values())


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """See `in_bursts`. Raises LookupError on a moment that cannot be counted."""
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    window = compute(WindowSpec.from_json(args["window"]), ground, {})
    about = events(args)
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    unsure = blind(history, (*about, *ends), within.since_t, within.until_t)
    if unsure:
        return unproven("gap", unsure, window)
    came = sorted(
        (came.t, number) for number, event in enumerate(about) for came in moments.each(history, event)
    )
    unsure = next(filter(None, (unfenced(history, event, within.until_t) for event in about)), "")
    silence_s = _longest_silence_s([t for t, _number in came], within)
    if silence_s > window.high_s and not unsure:
        # Whatever the slack, nobody can have missed that.
        return deviates(f"nothing was tried for {silence_s:.1f} s", window, Measured(silence_s, "s"))
    if not window.discerning or ground.slack_s >= window.nominal_s / 2:
        idle = compute(WindowSpec.from_json(args["window"]), Ground(ground.configuration, 0.0), {})
        said = f"the window {window.arithmetic} would also admit half or double"
        return unproven("host-too-loaded" if idle.discerning else "scaled", said, window)
    half_s = window.nominal_s / 2
    bursts, torn = _split(came, half_s, ground.slack_s)
    if not any(within.since_t <= t <= within.until_t for t in torn):
        return _judge_bursts(args, bursts, within, window, ground, unsure)
    joined, _torn = _split(came, half_s + ground.slack_s, 0.0)
    verdict = _judge_bursts(args, joined, within, window, ground, unsure)
    if verdict.outcome == "deviates" and not window.holds(half_s + ground.slack_s):
        # As bursts of their own they are too near to each other.
        return verdict
    said = f"whether tries {half_s:g} s apart are of one burst is within the slack"
    return unproven("host-too-loaded", said, window)


def _judge_bursts(
    args: Args,
    bursts: Sequence[Sequence[tuple[float, int]]],
    within: Span,
    window: Window,
    ground: Ground,
    unsure: str,
) -> Verdict:
    """What they are made of, and how far apart."""
    about = events(args)
    # What an end cuts, or may cut, is no whole burst.
    sure = Span(within.since_t + ground.slack_s, within.until_t - ground.slack_s)
    whole = [burst for burst in bursts if sure.since_t <= burst[0][0] and burst[-1][0] <= sure.until_t]
    expected = [(about.index(Moment.from_json(part["event"])), int(part["times"])) for part in args["each"]]
    wrong = next((burst for burst in whole if _runs(burst) != expected), None)
    if wrong is None:
        # However little of it is seen, what an end cuts is no more than a burst.
        most = sum(times for _number, times in expected)
        seen = ([try_ for try_ in burst if sure.since_t <= try_[0] <= sure.until_t] for burst in bursts)
        wrong = next((part for part in seen if len(part) > most), None)
    if wrong is not None:
        said = f"a burst of {_said(_runs(wrong), about)}, expected {_said(expected, about)}"
        return deviates(said, measured=Measured(float(len(wrong)), "times"))
    return _judge_pauses(args, bursts, whole, within, window, unsure)


def _judge_pauses(
    args: Args,
    bursts: Sequence[Sequence[tuple[float, int]]],
    whole: Sequence[Sequence[tuple[float, int]]],
    within: Span,
    window: Window,
    unsure: str,
) -> Verdict:
    """How far the bursts are apart, and whether there are enough of them."""
    wanted, about = max(1, int(args["at_least"])), events(args)
    touching = [b for b in bursts if b[-1][0] >= within.since_t and b[0][0] <= within.until_t]
    pauses = [after[0][0] - before[-1][0] for before, after in pairwise(touching)]
    wrong = next((pause for pause in pauses if not window.holds(pause)), None)
    if wrong is not None:
        return deviates(f"{wrong:.3f} s from a burst to the next", window, Measured(wrong, "s"))
    if unsure:
        return unproven("gap", f"more may have come: {unsure}", window)
    if len(whole) < wanted:
        return unproven("gap", f"{len(whole)} whole bursts were seen, {wanted} are needed", window)
    each = _said(_runs(whole[0]), about)
    return conforms(f"{len(whole)} bursts of {each}", measured=Measured(float(len(whole[0])), "times"))


def _longest_silence_s(times: Sequence[float], within: Span) -> float:
    inside = [t for t in times if within.since_t <= t <= within.until_t]
    return max(after - before for before, after in pairwise([within.since_t, *inside, within.until_t]))


def _split(
    came: Sequence[tuple[float, int]], limit_s: float, slack_s: float
) -> tuple[list[list[tuple[float, int]]], list[float]]:
    """The bursts, and the times of what may belong to the burst before it or not."""
    bursts: list[list[tuple[float, int]]] = []
    torn = []
    for t, number in came:
        pause_s = t - bursts[-1][-1][0] if bursts else float("inf")
        if abs(pause_s - limit_s) < slack_s:
            torn.append(t)
        if pause_s < limit_s:
            bursts[-1].append((t, number))
        else:
            bursts.append([(t, number)])
    return bursts, torn


def _runs(burst: Sequence[tuple[float, int]]) -> list[Run]:
    return [(number, len(list(run))) for number, run in groupby(number for _t, number in burst)]


def _said(runs: Sequence[Run], about: Sequence[Moment]) -> str:
    return ", ".join(f"{times} x {about[number]}" for number, times in runs)
