"""Reasons why a recording cannot answer a check: lost log lines, observer threads that ended."""

from __future__ import annotations

from collections.abc import Iterator

from nodeproof.checks import bursts, moments, witnessed
from nodeproof.checks.read_off import LOOK_BACK_S, read_off
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span, hull

MOMENTS = ("event", "other", "anchor", "since", "until")
"""Argument names under which checks store their moments."""
_BEFORE = ("anchor", "since")
"""Moments that are searched from the start of the recording."""
_BACK = ("after", "never")
"""Checks that also search for their event before their anchor."""


def moments_of(check: Check) -> list[Moment]:
    """Return the moments of a check."""
    direct = [Moment.from_json(check.args[part]) for part in MOMENTS if part in check.args]
    return [*direct, *bursts.events(check.args)]


def unseen(check: Check, history: History, configuration: Configuration) -> str:
    """Return why evidence that decides a check may be missing from the recording, or an empty string."""
    return _broken(check, history) or _lost(check, history, configuration)


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
    """Return why a source may lack messages from the times of a check, or an empty string."""
    if not any("by" in part.args for moment in _moments_with_signs(check) for part in moments.parts(moment)):
        return ""
    times = read_off(check, history, configuration)
    if not times:
        return ""
    for moment, search_time in _search_times(check, history, configuration, hull(times)):
        for part, part_time in moments.sought(history, moment, search_time):
            reason = witnessed.lost(history, part, part_time)
            if reason:
                return f"{part} may have come: {reason}"
    return ""


def _moments_with_signs(check: Check) -> list[Moment]:
    """Return the moments of a check, and those that count as signs of life."""
    is_liveness = check.name == "lives-on"
    return [*moments_of(check), *([witnessed.any_sign(str(check.args["subject"]))] if is_liveness else [])]


def _search_times(
    check: Check, history: History, configuration: Configuration, time: Span
) -> Iterator[tuple[Moment, Span]]:
    """Yield each moment of a check with the time in which it was searched."""
    anchors = [Moment.from_json(check.args[part]) for part in _BEFORE if part in check.args]
    for anchor in anchors:
        occurrence = moments.find(history, anchor)
        yield anchor, Span(history.began_t, occurrence.t if occurrence else history.ended_t)
    look_back_s = configuration.slack_limit_s + LOOK_BACK_S if check.name in _BACK else 0.0
    for moment in _moments_with_signs(check):
        if moment not in anchors:
            yield moment, Span(time.since_t - look_back_s, time.until_t)
