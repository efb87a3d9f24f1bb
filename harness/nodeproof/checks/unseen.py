"""What keeps a recording from answering a check: lost lines of its sources, threads that observed no more."""

from __future__ import annotations

from collections.abc import Iterator

from nodeproof.checks import bursts, moments, witnessed
from nodeproof.checks.read_off import LOOK_BACK_S, read_off
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span, hull

MOMENTS = ("event", "other", "anchor", "since", "until")
"""What a check calls the moments that it is about."""
_BEFORE = ("anchor", "since")
"""Those that are looked for from the beginning on."""
_BACK = ("after", "never")
"""Checks that look for their event before their anchor, too."""


def moments_of(check: Check) -> list[Moment]:
    """The moments that a check is about."""
    named = [Moment.from_json(check.args[part]) for part in MOMENTS if part in check.args]
    return [*named, *bursts.events(check.args)]


def unseen(check: Check, history: History, configuration: Configuration) -> str:
    """Say why something that would decide a check may be missing in the recording, or nothing."""
    return _broken(check, history) or _lost(check, history, configuration)


def _broken(check: Check, history: History) -> str:
    """Say which thread ended that observed what a check needs, or nothing; a watch that ends is a gap."""
    if check.name == "default":
        return ""
    for entry in history.of_kind("broken"):
        observed = {name: entry.data[name] for name in ("what", "subject") if name in entry.data}
        if "resource" not in entry.data and observed.items() <= check.args.items():
            of = f"looks at {observed['what']} of {observed['subject']}" if observed else "observing"
            return f"{of} ended: {entry.data['error']}"
    return ""


def _lost(check: Check, history: History, configuration: Configuration) -> str:
    """Say why a source may lack what it told at the times that a check is read off at, or nothing."""
    if not any("by" in part.args for moment in _told(check) for part in moments.parts(moment)):
        return ""
    times = read_off(check, history, configuration)
    if not times:
        return ""
    for moment, time in _sought(check, history, configuration, hull(times)):
        for part, when in moments.sought(history, moment, time):
            why = witnessed.lost(history, part, when)
            if why:
                return f"{part} may have come: {why}"
    return ""


def _told(check: Check) -> list[Moment]:
    """The moments that a check is about, and those that it takes for signs of life."""
    lives = check.name == "lives-on"
    return [*moments_of(check), *([witnessed.any_sign(str(check.args["subject"]))] if lives else [])]


def _sought(
    check: Check, history: History, configuration: Configuration, time: Span
) -> Iterator[tuple[Moment, Span]]:
    """Each moment of a check, and in which time it was looked for."""
    anchors = [Moment.from_json(check.args[part]) for part in _BEFORE if part in check.args]
    for anchor in anchors:
        found = moments.find(history, anchor)
        yield anchor, Span(history.began_t, found.t if found else history.ended_t)
    back_s = configuration.slack_limit_s + LOOK_BACK_S if check.name in _BACK else 0.0
    for moment in _told(check):
        if moment not in anchors:
            yield moment, Span(time.since_t - back_s, time.until_t)
