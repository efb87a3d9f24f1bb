"""Check that retries back off: each wait doubles, up to a maximum."""

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
    """Check that an event repeats with waits that double from `first_s` up to `most_s`.

    The check covers the time between `after` and `until`. A try may add up to `takes_s` to each wait.

    Args:
        event: The repeated event.
        first_s: Length of the first wait (s).
        most_s: Length at which waits stop growing (s).
        takes_s: Longest duration of one try (s).
        at_least: Minimum number of waits.
        after: Start of the checked time.
        until: End of the checked time.

    Raises:
        ValueError: The waits do not grow.
    """
    if not 0 < first_s < most_s:
        raise ValueError(f"waits from {first_s:g} up to {most_s:g} s")
    moments_json = {"event": event.to_json(), "anchor": after.to_json(), "until": until.to_json()}
    waits = {"first_s": first_s, "most_s": most_s, "takes_s": takes_s, "at_least": at_least}
    return Check("doubled", {**moments_json, **waits})


def judge(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `doubled` check.

    Raises:
        LookupError: The moment cannot be counted.
    """
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    first_s, most_s, takes_s = (float(args[name]) for name in ("first_s", "most_s", "takes_s"))
    event, min_waits = Moment.from_json(args["event"]), max(1, int(args["at_least"]))
    if not _is_discerning(first_s, most_s, min_waits, takes_s, ground.slack_s):
        idle = _is_discerning(first_s, most_s, min_waits, takes_s, 0.0)
        reason = f"{min_waits} waits from {first_s:g} to {most_s:g} s also admit half or double the ends"
        return unproven("host-too-loaded" if idle else "scaled", reason)
    ends = (Moment.from_json(args["anchor"]), Moment.from_json(args["until"]))
    doubt = blind(history, (event, *ends), within.since_t, within.until_t)
    if doubt:
        return unproven("gap", doubt)
    times = [
        occurrence.t
        for occurrence in moments.each(history, event)
        if within.since_t <= occurrence.t <= within.until_t
    ]
    waits = [after - before for before, after in pairwise(times)]
    windows = [
        _window(expected_s, takes_s, ground.slack_s) for expected_s in _waits(first_s, most_s, len(waits) + 1)
    ]
    for number, (wait, window) in enumerate(zip(waits, windows, strict=False), 1):
        if not window.holds(wait):
            reason = f"wait {number} of {event} was {wait:.3f} s; {_describe_waits(waits)}"
            return deviates(reason, window, Measured(wait, "s"))
    doubt = unfenced(history, event, within.until_t)
    if len(waits) < min_waits:
        longest = windows[-1] if times else _window(most_s, takes_s, ground.slack_s)
        return _too_few(event, times, within, min_waits, longest, doubt)
    if doubt:
        return unproven("gap", f"{event} may have occurred more often: {doubt}")
    return conforms(_describe_waits(waits), measured=Measured(float(len(waits)), "waits"))


def _waits(first_s: float, most_s: float, many: int) -> Sequence[float]:
    return [min(first_s * 2**number, most_s) for number in range(many)]


def _window(wait_s: float, takes_s: float, slack_s: float) -> Window:
    low, high = f"{wait_s:g} - slack", f"{wait_s:g} + {takes_s:g} + slack"
    return Window(wait_s - slack_s, wait_s + takes_s + slack_s, wait_s, "period", low, high)


def _is_discerning(first_s: float, most_s: float, many: int, takes_s: float, slack_s: float) -> bool:
    """Return whether the windows exclude waits of half or double the ends, and waits that do not grow."""
    windows = [_window(wait, takes_s, slack_s) for wait in _waits(first_s, most_s, many)]
    ends = [(first_s / 2, most_s), (first_s * 2, most_s), (first_s, most_s / 2), (first_s, most_s * 2)]
    others = [_waits(*end, many) for end in (*ends, (most_s, most_s))]
    return all(
        any(not window.holds(wait) for window, wait in zip(windows, waits, strict=True)) for waits in others
    )


def _describe_waits(waits: Sequence[float]) -> str:
    return f"waits of {', '.join(f'{wait:.3f}' for wait in waits)} s"


def _too_few(
    event: Moment, times: Sequence[float], within: Span, min_waits: int, window: Window, doubt: str
) -> Verdict:
    """Return the verdict for too few waits: a deviation if the last silence is too long."""
    silence_s = within.until_t - (times[-1] if times else within.since_t)
    reason = f"{event} occurred {len(times)} times, need {min_waits + 1}; none in the last {silence_s:.1f} s"
    if doubt or silence_s <= window.high_s:
        return unproven("gap", f"{reason}{': ' if doubt else ''}{doubt}", window)
    return deviates(reason, window, Measured(silence_s, "s"))
