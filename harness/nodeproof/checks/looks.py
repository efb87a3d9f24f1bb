"""Checks of looks at what is no object of the API, and of witnesses that must live on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nodeproof.checks import moments, witnessed
from nodeproof.checks.anchors import missing
from nodeproof.checks.blind import blind
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.testimony import BEAT_S, STARTED
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven
from nodeproof.model.window import Ground

Json = Any
Args = Mapping[str, Json]
_LEAST_LOOKS = 2
_MOST_BLIND = 0.5
"""The longest time without a look, as a part of the whole: a few looks at one end show nothing throughout."""
_LONGEST_UNSEEN_S = 5.0
"""The longest time (s) without a look, and after the last one, of what is looked at twice a second."""
SILENCE_LIMIT_S = 25 * BEAT_S
"""The longest that a living witness may be silent: a loaded node may not let it run for a while."""


def listed(what: str, subject: str, line: str, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments has this line; there is at least one. Where looks
    are repeated, they go on to the end. Those of a scenario's own are judged one by one.
    """
    args = {"since": since.to_json(), "until": until.to_json(), "line": line}
    return Check("listed", {"what": what, "subject": subject, **args})


def not_listed(what: str, subject: str, line: str, until: Moment) -> Check:
    """No look at `what` of `subject` up to a moment has this line; looks count as for `listed`."""
    return Check("not-listed", {"what": what, "subject": subject, "until": until.to_json(), "line": line})


def amounts_to(what: str, subject: str, low: float, high: float, since: Moment, until: Moment) -> Check:
    """Every look at `what` of `subject` between two moments shows a number in [low, high]; `max` is none.
    Looks count as for `listed`.
    """
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


def judge_listed(history: History, args: Args, ground: Ground) -> Verdict:
    """See `listed`."""
    return _each(history, args, ground, lambda value: args["line"] in value.splitlines(), repr(args["line"]))


def judge_not_listed(history: History, args: Args, ground: Ground) -> Verdict:
    """See `not_listed`."""
    return _each(
        history, args, ground, lambda value: args["line"] not in value.splitlines(), f"no {args['line']!r}"
    )


def judge_amount(history: History, args: Args, ground: Ground) -> Verdict:
    """See `amounts_to`."""
    low, high = float(args["low"]), float(args["high"])
    return _each(
        history,
        args,
        ground,
        lambda value: value.isdecimal() and low <= int(value) <= high,
        f"{low:g}" if low == high else f"{low:g} to {high:g}",
    )


def _each(
    history: History, args: Args, ground: Ground, holds: Callable[[str], bool], expected: str
) -> Verdict:
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    seen = _observed(history, args, Span(*times), ground, holds)
    if seen.wrong is not None:
        shown = _shown(seen.wrong)
        return deviates(f"{what} is {shown}, expected {expected}", measured=Measured(shown))
    if seen.unanswered or not seen.looks:
        return unproven("gap", seen.unanswered or f"nobody looked at {what}")
    # What is looked at may not be there from the beginning on.
    unseen_s = seen.unseen_s(seen.looks[0].t)
    if seen.is_repeated and unseen_s > _LONGEST_UNSEEN_S:
        return unproven("gap", f"nobody looked at {what} for {unseen_s:.1f} s")
    shown = _shown(seen.looks[-1])
    return conforms(f"{what} is {shown}", measured=Measured(shown))


def judge_throughout(history: History, args: Args, ground: Ground) -> Verdict:
    """See `shown_throughout`."""
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    seen = _observed(history, args, Span(*times), ground, lambda value: bool(value == args["value"]))
    if seen.wrong is not None:
        value = str(seen.wrong.data["value"])
        said = f"{what} was {value!r} {seen.wrong.t - times[0]:.1f} s after {_moment(args, 'since')}"
        return deviates(said, measured=Measured(value), last_state=f"expected {args['value']!r}")
    if seen.unanswered or len(seen.looks) < _LEAST_LOOKS:
        said = f"{len(seen.looks)} looks at {what}, {_LEAST_LOOKS} are needed"
        return unproven("gap", seen.unanswered or said)
    unseen_s = seen.unseen_s(times[0])
    if unseen_s > (times[1] - times[0]) * _MOST_BLIND:
        return unproven("gap", f"nobody looked at {what} for {unseen_s:.1f} s")
    return conforms(
        f"{len(seen.looks)} looks showed {args['value']!r}", measured=Measured(str(args["value"]))
    )


@dataclass(frozen=True)
class _Observed:
    """What was seen of something in a time: looks that showed what is expected, one that showed something
    else, and why one had no answer.
    """

    within: Span
    looks: Sequence[Entry]
    wrong: Entry | None
    unanswered: str

    @property
    def is_repeated(self) -> bool:
        """Whether somebody looked again and again. A scenario's own looks have an id: it looks when that
        tells something.
        """
        return any("id" not in look.data for look in self.looks)

    def unseen_s(self, since_t: float) -> float:
        """The longest time (s) without a look, from a time on (s)."""
        times = [since_t, *(look.t for look in self.looks), self.within.until_t]
        return max(after - before for before, after in pairwise(times))


def _observed(
    history: History, args: Args, within: Span, ground: Ground, holds: Callable[[Json], bool]
) -> _Observed:
    """What looks showed between the ends of a time; one that shows something else within the slack of an end
    may belong to what is beyond it.
    """
    about = (args["what"], args["subject"])
    inside = [
        look
        for look in history.of_kind("observed")
        if (look.data["what"], look.data["subject"]) == about
        and within.since_t <= look.data.get("asked_t", look.t)
        and look.t <= within.until_t
    ]
    surely = Span(
        within.since_t + (_slack_s(args, "since", ground) if "since" in args else 0.0),
        within.until_t - _slack_s(args, "until", ground),
    )
    failed = [look for look in inside if "error" in look.data]
    answered = [look for look in inside if "error" not in look.data]
    other = [look for look in answered if not holds(look.data["value"])]
    wrong = (look for look in other if surely.since_t <= look.t <= surely.until_t)
    return _Observed(
        within,
        [look for look in answered if holds(look.data["value"])],
        next(wrong, None),
        f"a look at {' of '.join(about)} had no answer: {failed[0].data['error']}" if failed else "",
    )


def _slack_s(args: Args, end: str, ground: Ground) -> float:
    """By how much (s) the time of an end may be wrong, beside that of a look: what the harness did itself is
    on the same clock.
    """
    parts = moments.parts(_moment(args, end))
    is_ours = all(not moments.resources(part) and "by" not in part.args for part in parts)
    return 0.0 if is_ours else ground.slack_s


def _shown(look: Entry) -> str:
    return str(look.data["value"]).replace("\n", " | ") or "nothing"


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
    starts = (entry for entry in told if entry.data["what"] == STARTED)
    anew = next((entry for entry in starts if since_t < entry.t < until_t), None)
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
