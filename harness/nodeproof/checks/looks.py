"""Checks of repeated observations outside the API, and of witnesses that must stay alive."""

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
"""Longest time without an observation, as a share of the whole: observations must not be at one end only."""
_LONGEST_UNSEEN_S = 5.0
"""Longest time (s) without an observation, and after the last one, of values that are read twice a second."""
SILENCE_LIMIT_S = 25 * BEAT_S
"""Longest silence (s) of a living witness: a loaded node may not let it run for a while."""


def listed(what: str, subject: str, line: str, since: Moment, until: Moment) -> Check:
    """Check that every observation between two moments has this line; there must be at least one.

    Repeated observations must go on to the end. The scenario's own observations are judged one by one.
    """
    args = {"since": since.to_json(), "until": until.to_json(), "line": line}
    return Check("listed", {"what": what, "subject": subject, **args})


def not_listed(what: str, subject: str, line: str, until: Moment) -> Check:
    """Check that no observation up to a moment has this line; observations count as for `listed`."""
    return Check("not-listed", {"what": what, "subject": subject, "until": until.to_json(), "line": line})


def amounts_to(what: str, subject: str, low: float, high: float, since: Moment, until: Moment) -> Check:
    """Check that every observation between two moments is a number in [low, high]; `max` is not a number.

    Observations count as for `listed`.
    """
    args = {"since": since.to_json(), "until": until.to_json(), "low": low, "high": high}
    return Check("amounts-to", {"what": what, "subject": subject, **args})


def shown_throughout(what: str, subject: str, value: str, since: Moment, until: Moment) -> Check:
    """Check that every observation between two moments shows `value`.

    No gap between observations may be longer than half the time.
    """
    args = {
        "what": what,
        "subject": subject,
        "value": value,
        "since": since.to_json(),
        "until": until.to_json(),
    }
    return Check("shown-throughout", args)


def lives_on(pod: str, since: Moment, until: Moment) -> Check:
    """Check that a witness pod stays alive between two moments, without a restart."""
    return Check("lives-on", {"subject": pod, "since": since.to_json(), "until": until.to_json()})


def judge_listed(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `listed` check."""
    return _judge_values(
        history, args, ground, lambda value: args["line"] in value.splitlines(), repr(args["line"])
    )


def judge_not_listed(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `not_listed` check."""
    return _judge_values(
        history, args, ground, lambda value: args["line"] not in value.splitlines(), f"no {args['line']!r}"
    )


def judge_amount(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge an `amounts_to` check."""
    low, high = float(args["low"]), float(args["high"])
    return _judge_values(
        history,
        args,
        ground,
        lambda value: value.isdecimal() and low <= int(value) <= high,
        f"{low:g}" if low == high else f"{low:g} to {high:g}",
    )


def _judge_values(
    history: History, args: Args, ground: Ground, holds: Callable[[str], bool], expected: str
) -> Verdict:
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    observations = _observations(history, args, Span(*times), ground, holds)
    if observations.wrong is not None:
        value = _shown(observations.wrong)
        return deviates(f"{what} is {value}, expected {expected}", measured=Measured(value))
    if observations.unanswered or not observations.looks:
        return unproven("gap", observations.unanswered or f"no observation of {what}")
    # The observed thing may not exist from the start.
    unobserved_s = observations.unseen_s(observations.looks[0].t)
    if observations.is_repeated and unobserved_s > _LONGEST_UNSEEN_S:
        return unproven("gap", f"no observation of {what} for {unobserved_s:.1f} s")
    value = _shown(observations.looks[-1])
    return conforms(f"{what} is {value}", measured=Measured(value))


def judge_throughout(history: History, args: Args, ground: Ground) -> Verdict:
    """Judge a `shown_throughout` check."""
    what = f"{args['what']} of {args['subject']}"
    times = span(history, args)
    if isinstance(times, Verdict):
        return times
    observations = _observations(
        history, args, Span(*times), ground, lambda value: bool(value == args["value"])
    )
    if observations.wrong is not None:
        value = str(observations.wrong.data["value"])
        reason = (
            f"{what} was {value!r} {observations.wrong.t - times[0]:.1f} s after {_moment(args, 'since')}"
        )
        return deviates(reason, measured=Measured(value), last_state=f"expected {args['value']!r}")
    if observations.unanswered or len(observations.looks) < _LEAST_LOOKS:
        reason = f"{len(observations.looks)} observations of {what}, need {_LEAST_LOOKS}"
        return unproven("gap", observations.unanswered or reason)
    unobserved_s = observations.unseen_s(times[0])
    if unobserved_s > (times[1] - times[0]) * _MOST_BLIND:
        return unproven("gap", f"no observation of {what} for {unobserved_s:.1f} s")
    return conforms(
        f"{len(observations.looks)} observations of {args['value']!r}", measured=Measured(str(args["value"]))
    )


@dataclass(frozen=True)
class _Observations:
    """The observations of a time: those with the expected value, the first other one, and why one failed."""

    within: Span
    looks: Sequence[Entry]
    wrong: Entry | None
    unanswered: str

    @property
    def is_repeated(self) -> bool:
        """Whether the harness repeats these observations; a scenario's own have an id."""
        return any("id" not in entry.data for entry in self.looks)

    def unseen_s(self, since_t: float) -> float:
        """Return the longest time (s) without an observation, from a time on (s)."""
        times = [since_t, *(entry.t for entry in self.looks), self.within.until_t]
        return max(after - before for before, after in pairwise(times))


def _observations(
    history: History, args: Args, within: Span, ground: Ground, holds: Callable[[Json], bool]
) -> _Observations:
    """Return the observations within a time.

    A deviating one within the slack of an end may belong to the time beyond it, and is ignored.
    """
    about = (args["what"], args["subject"])
    inside = [
        entry
        for entry in history.of_kind("observed")
        if (entry.data["what"], entry.data["subject"]) == about
        and within.since_t <= entry.data.get("asked_t", entry.t)
        and entry.t <= within.until_t
    ]
    certain = Span(
        within.since_t + (_slack_s(args, "since", ground) if "since" in args else 0.0),
        within.until_t - _slack_s(args, "until", ground),
    )
    failed = [entry for entry in inside if "error" in entry.data]
    answered = [entry for entry in inside if "error" not in entry.data]
    deviating = [entry for entry in answered if not holds(entry.data["value"])]
    wrong = (entry for entry in deviating if certain.since_t <= entry.t <= certain.until_t)
    return _Observations(
        within,
        [entry for entry in answered if holds(entry.data["value"])],
        next(wrong, None),
        f"an observation of {' of '.join(about)} failed: {failed[0].data['error']}" if failed else "",
    )


def _slack_s(args: Args, end: str, ground: Ground) -> float:
    """Return the largest error (s) of an end's time.

    Actions of the harness are on the same clock and have no error.
    """
    parts = moments.parts(_moment(args, end))
    is_ours = all(not moments.resources(part) and "by" not in part.args for part in parts)
    return 0.0 if is_ours else ground.slack_s


def _shown(look: Entry) -> str:
    return str(look.data["value"]).replace("\n", " | ") or "nothing"


def judge_life(history: History, args: Args) -> Verdict:
    """Judge a `lives_on` check."""
    pod, times = str(args["subject"]), span(history, args)
    if isinstance(times, Verdict):
        return times
    since_t, until_t = times
    if until_t - since_t < 2 * SILENCE_LIMIT_S:
        reason = f"{until_t - since_t:.1f} s are too short to detect a silence of {SILENCE_LIMIT_S:g} s"
        return unproven("scaled", reason)
    doubt = witnessed.unheard(history, witnessed.last_sign(pod), until_t)
    if doubt:
        return unproven("gap", doubt)
    messages = [entry for entry in history.of_kind("told") if entry.data["by"] == pod]
    starts = (entry for entry in messages if entry.data["what"] == STARTED)
    restart = next((entry for entry in starts if since_t < entry.t < until_t), None)
    if restart is not None:
        return deviates(f"{pod} restarted {restart.t - since_t:.1f} s after {_moment(args, 'since')}")
    sign_times = [since_t, *(entry.t for entry in messages if since_t < entry.t < until_t), until_t]
    silence, silent_t = max((after - before, before) for before, after in pairwise(sign_times))
    measured = Measured(silence, "s")
    if silence > SILENCE_LIMIT_S:
        after_s = silent_t - since_t
        reason = f"{pod} was silent for {silence:.1f} s, {after_s:.1f} s after {_moment(args, 'since')}"
        return deviates(reason, measured=measured, last_state=witnessed.last_told(history, pod))
    duration_s = until_t - since_t
    reason = f"{pod} sent {len(sign_times) - 2} signs of life in {duration_s:.1f} s"
    reason += f", longest silence {silence:.1f} s"
    return conforms(reason, measured=measured)


def _moment(args: Args, name: str) -> Moment:
    return Moment.from_json(args[name])


def span(history: History, args: Args) -> tuple[float, float] | Verdict:
    """Return the judged time (s), or the verdict if one of its ends is missing."""
    since_t = history.began_t
    if "since" in args:
        since = _when(history, _moment(args, "since"), since_t)
        if isinstance(since, Verdict):
            return since
        since_t = since
    until_t = _when(history, _moment(args, "until"), since_t)
    return until_t if isinstance(until_t, Verdict) else (since_t, until_t)


def _when(history: History, moment: Moment, since_t: float) -> float | Verdict:
    occurrence = moments.find(history, moment, since_t)
    if occurrence is None:
        return missing(history, moment)
    gap = blind(history, (moment,), occurrence.t, occurrence.t)
    return unproven("gap", f"{moment} occurred while {gap}") if gap else occurrence.t
