"""Checks of observations, single or repeated, of witnesses that stay alive, and of faults that last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from nodeproof.checks import moments, witnessed
from nodeproof.checks.checks import Times, measures
from nodeproof.checks.evidence import Undecided, require, watch_loss
from nodeproof.checks.placing import Measurement, compare
from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.judgment import Check, Moment, Observation, words_in
from nodeproof.model.pattern import fault, is_about, is_equal, matches
from nodeproof.model.pod_log import BEAT_S, STARTED
from nodeproof.model.quantity import amount
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowContext

Json = Any
Args = Mapping[str, Json]
_LONGEST_SHOWN = 200
_ONE_PROCESS_S = 2.0
"""Largest difference between two readings of one process's start time: it is computed from whole seconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT.*")


def _observation_times(history: History, args: Args, *_: object) -> Times:
    entries = (_entry(history, args[part]) for part in ("before", "seen") if part in args)
    return [Span(float(entry.data["asked_t"]), entry.t) for entry in entries]


def _span_times(history: History, args: Args, *_: object) -> Times:
    return [span(history, args)]


def _step_times(history: History, args: Args, *_: object) -> Times:
    return [Span.at(entry.t) for entry in steps(history, args)] or None


def shows(observation: Observation, pattern: Json) -> Check:
    """Check that an observed value matches a pattern (`nodeproof.model.pattern`)."""
    return Check("shows", {"seen": observation.to_json(), "pattern": pattern})


def same_as(observation: Observation, before: Observation) -> Check:
    """Check that two observations show equal values; `1Gi` equals `1048576Ki`.

    Times with and without a zero fraction are equal as well.
    """
    return Check("same-as", {"seen": observation.to_json(), "before": before.to_json()})


def grew(before: Observation, after: Observation, low: float, high: float) -> Check:
    """Check that a number grew by `low` to `high` between two observations.

    A counter that was missing at first counts as 0; one that is missing in both proves nothing. If its
    process restarted in between, its earlier count is unknown, and the later value is the least by which it
    grew.
    """
    observations = {"before": before.to_json(), "seen": after.to_json()}
    return Check("grew", {**observations, "low": low, "high": high})


@measures("shows", times=_observation_times)
def _measure_value(history: History, args: Args, *_: object) -> Measurement:
    pattern = args["pattern"]
    problem = fault(pattern)
    if problem:
        raise LookupError(problem)
    entry = _entry(history, args["seen"])
    value, reason = entry.data["value"], _describe(args["seen"], entry)
    measured = Measured(_short(value))
    if not is_about(pattern, value) and matches(pattern, None):
        return Measurement(f"{reason}: the pattern does not apply to this value", measured, code="gap")
    return compare(matches(pattern, value), reason, _cut(json.dumps(pattern)), measured)


@measures("same-as", times=_observation_times)
def _measure_sameness(history: History, args: Args, *_: object) -> Measurement:
    after, before = _entry(history, args["seen"]), _entry(history, args["before"])
    if after.data["value"] is None and before.data["value"] is None:
        raise Undecided("gap", f"{_name(args['seen'])} is missing in both observations")
    reason, measured = _describe(args["seen"], after), Measured(_short(after.data["value"]))
    if _is_same(after.data["value"], before.data["value"]):
        return Measurement(reason, measured)
    return Measurement(f"{reason}, before {_short(before.data['value'])}", measured, finding="deviates")


@measures("grew", times=_observation_times)
def _measure_growth(history: History, args: Args, *_: object) -> Measurement:
    after, before = _entry(history, args["seen"]), _entry(history, args["before"])
    if after.data["value"] is None:
        raise Undecided("gap", f"{_name(args['seen'])} is not exported")
    low, high, is_anew = float(args["low"]), float(args["high"]), _is_started_anew(history, before, after)
    growth = float(after.data["value"]) - (0.0 if is_anew else float(before.data["value"] or 0))
    reason = f"{_name(args['seen'])} grew by {growth:g}"
    if is_anew and growth <= high:
        raise Undecided("gap", f"{reason} since its process restarted; its earlier count is lost")
    return compare(low <= growth <= high, reason, f"{args['low']:g} to {args['high']:g}", Measured(growth))


def _is_started_anew(history: History, before: Entry, after: Entry) -> bool:
    """Return whether another process reported the second value, by the start times of both."""
    if "process_s" not in before.data or "process_s" not in after.data:
        return False
    one_t, other_t = (
        float(entry.data["process_s"]) - history.wall_offset_s(entry.t) for entry in (before, after)
    )
    return abs(other_t - one_t) > _ONE_PROCESS_S


def _is_same(one: Json, other: Json) -> bool:
    """Return whether two values are equal, however they are written."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, str) and isinstance(other, str):
        return one == other or _is_same_time(one, other) or _is_same_amount(one, other)
    return is_equal(one, other)


def _is_same_time(one: str, other: str) -> bool:
    if not (_TIME.fullmatch(one) and _TIME.fullmatch(other)):
        return False
    try:
        return parse_time(one) == parse_time(other)
    except ValueError:
        return False


def _is_same_amount(one: str, other: str) -> bool:
    """Return whether two quantities are equal.

    Numbers without a unit may be versions, where 1.10 is not 1.1.
    """
    if not (one[-1:].isalpha() or other[-1:].isalpha()):
        return False
    try:
        return amount(one) == amount(other)
    except ValueError:
        return False


def _entry(history: History, observation: Args) -> Entry:
    """Return the entry of an observation.

    Raises:
        Undecided: There is none.
    """
    for entry in history.of_kind("observed"):
        if entry.data.get("id") == observation["id"]:
            return entry
    raise Undecided("gap", f"the recording has no observation of {_name(observation)}")


def _name(observation: Args) -> str:
    return f"{observation['what']} of {observation['subject']}".replace("\0", "")


def _describe(observation: Args, entry: Entry) -> str:
    return f"{_name(observation)} is {_short(entry.data['value'])}"


def _short(value: Json) -> str:
    """Return a value on one line: the status and message of a response, the output of kubectl."""
    if isinstance(value, Mapping) and value.keys() == {"status", "body"}:
        message = value["body"].get("message", "") if isinstance(value["body"], Mapping) else value["body"]
        value = f"{value['status']} {message}".strip()
    if isinstance(value, Mapping) and value.keys() == {"status", "stdout", "stderr"}:
        value = f"{value['stdout']}{value['stderr']}".strip()
    return _cut(str(value).replace("\n", " | ").replace("\0", ""))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_LEAST_LOOKS = 2
_MOST_BLIND = 0.5
"""Longest time without an observation, as a share of the whole: observations must not be at one end only."""
_LONGEST_UNSEEN_S = 5.0
"""Longest time (s) without an observation, and after the last one, of values that are read twice a second."""
SILENCE_TIMEOUT_S = 25 * BEAT_S
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


def stays_alive(pod: str, since: Moment, until: Moment) -> Check:
    """Check that a witness pod stays alive between two moments, without a restart."""
    return Check("lives-on", {"subject": pod, "since": since.to_json(), "until": until.to_json()})


@measures("listed", times=_span_times)
def _measure_line(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    return _measure_values(
        history, args, context, lambda value: args["line"] in value.splitlines(), repr(args["line"])
    )


@measures("not-listed", times=_span_times)
def _measure_missing_line(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    return _measure_values(
        history, args, context, lambda value: args["line"] not in value.splitlines(), f"no {args['line']!r}"
    )


@measures("amounts-to", times=_span_times)
def _measure_amount(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    low, high = float(args["low"]), float(args["high"])
    return _measure_values(
        history,
        args,
        context,
        lambda value: value.isdecimal() and low <= int(value) <= high,
        f"{low:g}" if low == high else f"{low:g} to {high:g}",
    )


def _measure_values(
    history: History, args: Args, context: WindowContext, holds: Callable[[str], bool], expected: str
) -> Measurement:
    what = f"{args['what']} of {args['subject']}"
    observations = _repeated(history, args, context, holds)
    if observations.wrong is not None:
        value = _shown(observations.wrong)
        return compare(False, f"{what} is {value}", expected, Measured(value))
    if observations.unanswered or not observations.looks:
        raise Undecided("gap", observations.unanswered or f"no observation of {what}")
    # The observed thing may not exist from the start.
    unobserved_s = observations.unseen_s(observations.looks[0].t)
    if observations.is_repeated and unobserved_s > _LONGEST_UNSEEN_S:
        raise Undecided("gap", f"no observation of {what} for {unobserved_s:.1f} s")
    value = _shown(observations.looks[-1])
    return Measurement(f"{what} is {value}", Measured(value))


@measures("shown-throughout", times=_span_times)
def _measure_throughout(history: History, args: Args, context: WindowContext, *_: object) -> Measurement:
    what, expected = f"{args['what']} of {args['subject']}", str(args["value"])
    observations = _repeated(history, args, context, lambda value: bool(value == args["value"]))
    within, wrong, count = observations.within, observations.wrong, len(observations.looks)
    if wrong is not None:
        value = str(wrong.data["value"])
        reason = f"{what} was {value!r} {wrong.t - within.since_t:.1f} s after {_moment(args, 'since')}"
        state = f"expected {expected!r}"
        return Measurement(reason, Measured(value), finding="deviates", last_state=state)
    if observations.unanswered or count < _LEAST_LOOKS:
        reason = f"{count} observations of {what}, need {_LEAST_LOOKS}"
        raise Undecided("gap", observations.unanswered or reason)
    unobserved_s = observations.unseen_s(within.since_t)
    if unobserved_s > (within.until_t - within.since_t) * _MOST_BLIND:
        raise Undecided("gap", f"no observation of {what} for {unobserved_s:.1f} s")
    return Measurement(f"{count} observations of {args['value']!r}", Measured(expected))


@dataclass(frozen=True)
class _Repeated:
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


def _repeated(
    history: History, args: Args, context: WindowContext, holds: Callable[[Json], bool]
) -> _Repeated:
    """Return the observations within a time.

    A deviating one within the slack of an end may belong to the time beyond it, and is ignored.
    """
    within, about = span(history, args), (args["what"], args["subject"])
    inside = [
        entry
        for entry in history.of_kind("observed")
        if (entry.data["what"], entry.data["subject"]) == about
        and within.since_t <= entry.data.get("asked_t", entry.t)
        and entry.t <= within.until_t
    ]
    certain = Span(
        within.since_t + (_slack_s(args, "since", context) if "since" in args else 0.0),
        within.until_t - _slack_s(args, "until", context),
    )
    failed = [entry for entry in inside if "error" in entry.data]
    answered = [entry for entry in inside if "error" not in entry.data]
    deviating = [entry for entry in answered if not holds(entry.data["value"])]
    wrong = (entry for entry in deviating if certain.since_t <= entry.t <= certain.until_t)
    return _Repeated(
        within,
        [entry for entry in answered if holds(entry.data["value"])],
        next(wrong, None),
        f"an observation of {' of '.join(about)} failed: {failed[0].data['error']}" if failed else "",
    )


def _slack_s(args: Args, end: str, context: WindowContext) -> float:
    """Return the largest error (s) of an end's time.

    Actions of the harness are on the same clock and have no error.
    """
    parts = moments.parts(_moment(args, end))
    is_ours = all(not moments.resources(part) and "by" not in part.args for part in parts)
    return 0.0 if is_ours else context.slack_s


def _shown(look: Entry) -> str:
    return str(look.data["value"]).replace("\n", " | ") or "nothing"


@measures("lives-on", times=_span_times)
def _measure_life(history: History, args: Args, *_: object) -> Measurement:
    pod, within = str(args["subject"]), span(history, args)
    since_t, until_t = within.since_t, within.until_t
    if until_t - since_t < 2 * SILENCE_TIMEOUT_S:
        reason = f"{until_t - since_t:.1f} s are too short to detect a silence of {SILENCE_TIMEOUT_S:g} s"
        raise Undecided("scaled", reason)
    doubt = witnessed.not_collected(history, witnessed.last_sign(pod), until_t)
    if doubt:
        raise Undecided("gap", doubt)
    signs = [
        entry for entry in history.of_kind("told") if entry.data["by"] == pod and since_t < entry.t < until_t
    ]
    restart = next((entry for entry in signs if entry.data["what"] == STARTED), None)
    if restart is not None:
        reason = f"{pod} restarted {restart.t - since_t:.1f} s after {_moment(args, 'since')}"
        return Measurement(reason, finding="deviates")
    sign_times = [since_t, *(entry.t for entry in signs), until_t]
    silence, silent_t = max((after - before, before) for before, after in pairwise(sign_times))
    measured = Measured(silence, "s")
    if silence > SILENCE_TIMEOUT_S:
        after_s = silent_t - since_t
        reason = f"{pod} was silent for {silence:.1f} s, {after_s:.1f} s after {_moment(args, 'since')}"
        state = witnessed.last_message(history, pod)
        return Measurement(reason, measured, finding="deviates", last_state=state)
    reason = f"{pod} sent {len(signs)} signs of life in {until_t - since_t:.1f} s"
    return Measurement(f"{reason}, longest silence {silence:.1f} s", measured)


def _moment(args: Args, name: str) -> Moment:
    return Moment.from_json(args[name])


def span(history: History, args: Args) -> Span:
    """Return the judged time.

    Raises:
        Undecided: One of its ends is missing, or its time is unknown.
    """
    since_t = _when(history, _moment(args, "since"), history.began_t) if "since" in args else history.began_t
    return Span(since_t, _when(history, _moment(args, "until"), since_t))


def _when(history: History, moment: Moment, since_t: float) -> float:
    t = require(history, moment, since_t).t
    gap = watch_loss(history, (moment,), Span.at(t))
    if gap:
        raise Undecided("gap", f"{moment} occurred while {gap}")
    return t


def lasted(fault: str) -> Check:
    """Check that a fault, by its id, was still active when it was to be healed.

    For claims that the cluster does not undo a change. If such a fault did not last, all other claims are
    `not-injected`.
    """
    return Check("lasted", {"fault": fault})


@measures("lasted", times=_step_times)
def _measure_lasting(history: History, args: Args, *_: object) -> Measurement:
    fault_steps = [entry.data["step"] for entry in steps(history, args)]
    steps_text = ", ".join(fault_steps)
    if "injected" not in fault_steps:
        raise Undecided("not-injected", f"no probe confirmed fault {args['fault']}; steps: {steps_text}")
    if "healing" not in fault_steps:
        raise Undecided("gap", f"the recording ends before fault {args['fault']} was healed")
    if "unanswered" in fault_steps:
        raise Undecided("gap", f"the probe of fault {args['fault']} was not answered")
    if "unproven" in fault_steps:
        reason = f"fault {args['fault']} ended before it was healed; steps: {steps_text}"
        return Measurement(reason, finding="deviates")
    return Measurement(f"fault {args['fault']} was still active when it was healed")


def steps(history: History, args: Args) -> list[Entry]:
    """Return the recorded steps of the fault, in order."""
    return [entry for entry in history.of_kind("fault") if entry.data["id"] == args["fault"]]


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
