"""Checks of looks at what is no object of the API, and of witnesses that must live on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from nodeproof.checks import moments, witnessed
from nodeproof.checks.anchors import missing
from nodeproof.checks.blind import blind
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.testimony import BEAT_S, STARTED
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven

Json = Any
Args = Mapping[str, Json]
_LEAST_LOOKS = 2
_MOST_BLIND = 0.5
"""The longest time without a look, as a part of the whole: a few looks at one end show nothing throughout."""
SILENCE_LIMIT_S = 25 * BEAT_S
"""The longest that a living witness may be silent: a loaded node may not let it run for a while."""


def listed(what: str, subject: str, line: str, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments has this line; there is at least one."""
    args = {"since": since.to_json(), "until": until.to_json(), "line": line}
    return Check("listed", {"what": what, "subject": subject, **args})


def not_listed(what: str, subject: str, line: str, until: Moment) -> Check:
    """No look at `what` of `subject` up to a moment has this line; there is at least one."""
    return Check("not-listed", {"what": what, "subject": subject, "until": until.to_json(), "line": line})


def amounts_to(what: str, subject: str, low: float, high: float, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments shows a number in [low, high]; `max` is none."""
    args = {"since": since.to_json(), "until": until.to_json(), "low": low, "high": high}
    return Check("amounts-to", {"what": what, "subject": subject, **args})


def shown_throughout(what: str, subject: str, value: str, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments showed `value`; no half of the time lacks one."""
    args = {
        "what": what,
        "subject": subject,
        "value": value,
        "since": since.to_json(),
        "until": until.to_json(),
    }
    return Check("shown-throughout", args)


def lives_on(pod: str, since: Moment, until: Moment) -> Check:
    """A witness pod tells that it lives from one moment to another, without a new start in between."""
    return Check("lives-on", {"subject": pod, "since": since.to_json(), "until": until.to_json()})


def judge_listed(history: History, args: Args) -> Verdict:
    """See `listed`."""
    return _each(history, args, lambda value: args["line"] in value.splitlines(), repr(args["line"]))


def judge_not_listed(history: History, args: Args) -> Verdict:
    """See `not_listed`."""
    return _each(history, args, lambda value: args["line"] not in value.splitlines(), f"no {args['line']!r}")


def judge_amount(history: History, args: Args) -> Verdict:
    """See `amounts_to`."""
    low, high = float(args["low"]), float(args["high"])
    return _each(
        history,
        args,
        lambda value: value.isdecimal() and low <= int(value) <= high,
        f"{low:g}" if low == high else f"{low:g} to {high:g}",
    )


def _each(history: History, args: Args, holds: Callable[[str], bool], expected: str) -> Verdict:
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    since_t, until_t = times
    looks = [look for look in _looks(history, args) if since_t <= look.data["asked_t"] and look.t <= until_t]
    if not looks:
        return unproven("gap", f"nobody looked at {what}")
    wrong = next((look for look in looks if not holds(look.data["value"])), None)
    if wrong is not None:
        shown = wrong.data["value"].replace("\n", " | ") or "nothing"
        return deviates(f"{what} is {shown}, expected {expected}", measured=Measured(shown))
    shown = looks[-1].data["value"].replace("\n", " | ") or "nothing"
    return conforms(f"{what} is {shown}", measured=Measured(shown))


def judge_throughout(history: History, args: Args) -> Verdict:
    """See `shown_throughout`."""
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    since_t, until_t = times
    seen = [
        look
        for look in _looks(history, args)
        if since_t < look.data.get("asked_t", look.t) and look.t < until_t
    ]
    other = next((look for look in seen if look.data["value"] != args["value"]), None)
    if other is not None:
        value = str(other.data["value"])
        said = f"{what} was {value!r} {other.t - since_t:.1f} s after {_moment(args, 'since')}"
        return deviates(said, measured=Measured(value), last_state=f"expected {args['value']!r}")
    if len(seen) < _LEAST_LOOKS:
        return unproven("gap", f"{len(seen)} looks at {what}, {_LEAST_LOOKS} are needed")
    unseen_s = max(
        after - before for before, after in pairwise([since_t, *(look.t for look in seen), until_t])
    )
    if unseen_s > (until_t - since_t) * _MOST_BLIND:
        return unproven("gap", f"nobody looked at {what} for {unseen_s:.1f} s")
    return conforms(f"{len(seen)} looks showed {args['value']!r}", measured=Measured(str(args["value"])))


def _looks(history: History, args: Args) -> list[Entry]:
    about = (args["what"], args["subject"])
    return [
        look for look in history.of_kind("observed") if (look.data["what"], look.data["subject"]) == about
    ]


def judge_life(history: History, args: Args) -> Verdict:
    """See `lives_on`."""
    pod, times = str(args["subject"]), span(history, args)
    if isinstance(times, Verdict):
        return times
    since_t, until_t = times
    if until_t - since_t < 2 * SILENCE_LIMIT_S:
        said = f"{until_t - since_t:.1f} s tell no life from a silence of {SILENCE_LIMIT_S:g} s"
        return unproven("scaled", said)
    unheard = witnessed.unheard(history, witnessed.last_sign(pod), until_t)
    if unheard:
        return unproven("gap", unheard)
    told = [entry for entry in history.of_kind("told") if entry.data["by"] == pod]
    anew = next((entry for entry in told if entry.data["what"] == STARTED and entry.t > since_t), None)
    if anew is not None:
        return deviates(f"{pod} was started anew {anew.t - since_t:.1f} s after {_moment(args, 'since')}")
    signs = [since_t, *(entry.t for entry in told if since_t < entry.t < until_t), until_t]
    silence, silent_t = max((after - before, before) for before, after in pairwise(signs))
    measured = Measured(silence, "s")
    if silence > SILENCE_LIMIT_S:
        after_s = silent_t - since_t
        said = f"{pod} was silent for {silence:.1f} s, {after_s:.1f} s after {_moment(args, 'since')}"
        return deviates(said, measured=measured, last_state=witnessed.last_told(history, pod))
    told_s = until_t - since_t
    said = f"{pod} told {len(signs) - 2} times in {told_s:.1f} s that it lives"
    said += f", silent for {silence:.1f} s at most"
    return conforms(said, measured=measured)


def _moment(args: Args, name: str) -> Moment:
    return Moment.from_json(args[name])


def span(history: History, args: Args) -> tuple[float, float] | Verdict:
    """The times (s) between which is judged, or why nobody knows them."""
    since_t = history.began_t
    if "since" in args:
        since = _when(history, _moment(args, "since"), since_t)
        if isinstance(since, Verdict):
            return since
        since_t = since
    until_t = _when(history, _moment(args, "until"), since_t)
    return until_t if isinstance(until_t, Verdict) else (since_t, until_t)


def _when(history: History, about: Moment, since_t: float) -> float | Verdict:
    found = moments.find(history, about, since_t)
    if found is None:
        return missing(history, about)
    unsure = blind(history, (about,), found.t, found.t)
    return unproven("gap", f"{about} came while {unsure}") if unsure else found.t
