"""Whether what is tried again and again waits twice as long each time, up to a longest wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from nodeproof.checks import counting, moments
from nodeproof.checks.anchors import unfenced
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground, Window

Json = Any
Args = Mapping[str, Json]


def doubled(
    event: Moment,
    first_s: float,
    most_s: float,
    *,
    takes_s: float,
    at_least: int,
    after: Moment,
    until: Moment,
) -> Check:
    """Between two moments the waits from one occurrence of an event to the next begin with `first_s` (s),
    double, and stop growing at `most_s`, at least `at_least` of them; a try may take `takes_s` on top. Raises
    ValueError on waits that do not grow.
    """
    if not 0 < first_s < most_s:
        raise ValueError(f"waits from {first_s:g} up to {most_s:g} s")
    told = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    waits = {"first_s": first_s, "most_s": most_s, "takes_s": takes_s, "at_least": at_least}
    return Check("doubled", {**told, **waits})


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """See `doubled`. Raises LookupError on a moment that cannot be counted."""
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    first_s, most_s, takes_s = (float(args[name]) for name in ("first_s", "most_s", "takes_s"))
    event, wanted = Moment.from_json(args["event"]), max(1, int(args["at_least"]))
    if not _is_discerning(first_s, most_s, wanted, takes_s, ground.slack_s):
        idle = _is_discerning(first_s, most_s, wanted, takes_s, 0.0)
        said = f"{wanted} waits from {first_s:g} to {most_s:g} s would also admit half or double of an end"
        return unproven("host-too-loaded" if idle else "scaled", said)
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    unsure = blind(history, (event, *ends), within.since_t, within.until_t)
    if unsure:
        return unproven("gap", unsure)
    times = [came.t for came in moments.each(history, event) if within.since_t <= came.t <= within.until_t]
    apart = [after - before for before, after in pairwise(times)]
    windows = [_window(wait, takes_s, ground.slack_s) for wait in _waits(first_s, most_s, len(apart) + 1)]
    for number, (value, window) in enumerate(zip(apart, windows, strict=False), 1):
        if not window.holds(value):
            said = f"wait {number} of {event} was {value:.3f} s; {_told(apart)}"
            return deviates(said, window, Measured(value, "s"))
    unsure = unfenced(history, event, within.until_t)
    if len(apart) < wanted:
        longest = windows[-1] if times else _window(most_s, takes_s, ground.slack_s)
        return _too_few(event, times, within, wanted, longest, unsure)
    if unsure:
        return unproven("gap", f"more of {event} may have come: {unsure}")
    return conforms(_told(apart), measured=Measured(float(len(apart)), "waits"))


def _waits(first_s: float, most_s: float, many: int) -> Sequence[float]:
    return [min(first_s * 2**number, most_s) for number in range(many)]


def _window(wait_s: float, takes_s: float, slack_s: float) -> Window:
    low, high = f"{wait_s:g} - slack", f"{wait_s:g} + {takes_s:g} + slack"
    return Window(wait_s - slack_s, wait_s + takes_s + slack_s, wait_s, "period", low, high)


def _is_discerning(first_s: float, most_s: float, many: int, takes_s: float, slack_s: float) -> bool:
    """Whether waits that begin, or end, with half or double, or do not grow at all, would be told apart."""
    windows = [_window(wait, takes_s, slack_s) for wait in _waits(first_s, most_s, many)]
    ends = [(first_s / 2, most_s), (first_s * 2, most_s), (first_s, most_s / 2), (first_s, most_s * 2)]
    others = [_waits(*each, many) for each in (*ends, (most_s, most_s))]
    return all(
        any(not window.holds(wait) for window, wait in zip(windows, waits, strict=True)) for waits in others
    )


def _told(apart: Sequence[float]) -> str:
    return f"waits of {', '.join(f'{each:.3f}' for each in apart)} s"


def _too_few(
    event: Moment, times: Sequence[float], within: Span, wanted: int, window: Window, unsure: str
) -> Verdict:
    """Fewer than wanted: a deviation where the last is followed by too long a silence."""
    silence_s = within.until_t - (times[-1] if times else within.since_t)
    said = f"{event} came {len(times)} times, {wanted + 1} are needed; no more for the last {silence_s:.1f} s"
    if unsure or silence_s <= window.high_s:
        return unproven("gap", f"{said}{': ' if unsure else ''}{unsure}", window)
    return deviates(said, window, Measured(silence_s, "s"))
