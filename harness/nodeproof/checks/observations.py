"""Checks of observations, single or repeated, of witnesses that stay alive, and of faults that last."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from nodeproof.checks import moments, witnessed
from nodeproof.checks.checks import (
    Args,
    Case,
    Measurement,
    Times,
    Undecided,
    compare,
    measures,
    require,
    watch_loss,
)
from nodeproof.checks.witnessed import SILENCE_TIMEOUT_S
from nodeproof.model.history import Entry, History, parse_time, stored_events
from nodeproof.model.judgment import Check, Moment, Observation, words_in
from nodeproof.model.pattern import Json, fault, is_equal, is_unfounded, matches
from nodeproof.model.pod_log import STARTED
from nodeproof.model.quantity import amount
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured

_LONGEST_SHOWN = 200
_ONE_PROCESS_S = 2.0
"""Largest difference between two readings of one process's start time: it is computed from whole seconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT.*")


def _observation_times(history: History, args: Args, *_: object) -> Times:
    observations = (Observation.from_json(args[part]) for part in ("before", "seen") if part in args)
    return [_look_span(_entry(history, observation)) for observation in observations]


def _look_span(entry: Entry) -> Span:
    """Return the time from the request for an observed value to its answer."""
    return Span(float(entry.data["asked_t"]), entry.t)


def _span_times(history: History, args: Args, *_: object) -> Times:
    since = Moment.from_json(args["since"]) if "since" in args else None
    return [span(history, since, Moment.from_json(args["until"]))]


def _step_times(history: History, args: Args, *_: object) -> Times:
    return [Span.at(entry.t) for entry in _steps(history, args["fault"])] or None


def _end_time(history: History, *_: object) -> Times:
    return [Span.at(history.ended_t)]


@measures("shows", times=_observation_times, observation="seen")
def shows(case: Case, observation: Observation, pattern: Json) -> Measurement:
    """Check that an observed value matches a pattern (`nodeproof.model.pattern`)."""
    problem = fault(pattern)
    if problem:
        raise LookupError(problem)
    value = _entry(case.history, observation).data["value"]
    reason, measured = f"{_name(observation)} is {_short(value)}", Measured(_short(value))
    if is_unfounded(pattern, value):
        return Measurement(f"{reason}: the pattern does not apply to this value", measured, code="gap")
    return compare(matches(pattern, value), reason, _cut(json.dumps(pattern)), measured)


@measures("same-as", times=_observation_times, observation="seen")
def same_as(case: Case, observation: Observation, before: Observation) -> Measurement:
    """Check that two observations show equal values; `1Gi` equals `1048576Ki`.

    Times with and without a zero fraction are equal as well.
    """
    value, earlier = (_entry(case.history, of).data["value"] for of in (observation, before))
    if value is None and earlier is None:
        raise Undecided("gap", f"{_name(observation)} is missing in both observations")
    reason, measured = f"{_name(observation)} is {_short(value)}", Measured(_short(value))
    if _is_same(value, earlier):
        return Measurement(reason, measured)
    return Measurement(f"{reason}, before {_short(earlier)}", measured, finding="deviates")


@measures("grew", times=_observation_times, after="seen")
def grew(case: Case, before: Observation, after: Observation, low: float, high: float) -> Measurement:
    """Check that a number grew by `low` to `high` between two observations.

    A counter that was missing at first counts as 0; one that is missing in both proves nothing. If its
    process restarted in between, its earlier count is unknown, and the later value is the least by which it
    grew.
    """
    growth = _growth(case, before, after, high)
    reason = f"{_name(after)} grew by {growth:g}"
    return compare(low <= growth <= high, reason, f"{low:g} to {high:g}", Measured(growth))


@measures("grew-with", times=_observation_times, after="seen", event="other")
def grew_with(case: Case, before: Observation, after: Observation, event: Moment) -> Measurement:
    """Check that a number grew by one for each occurrence of an event between two observations.

    An occurrence within the slack of an observation may be counted or not. Numbers are read as for `grew`.
    """
    slack_s = case.context.slack_s
    first, last = (_look_span(_entry(case.history, observation)) for observation in (before, after))
    times = [occurrence.t for occurrence in moments.occurrences(case.history, event)]
    low = sum(first.until_t + slack_s < t < last.since_t - slack_s for t in times)
    high = sum(first.since_t - slack_s <= t <= last.until_t + slack_s for t in times)
    if not high:
        raise Undecided("no-anchor", f"{event} did not occur between both observations")
    growth = _growth(case, before, after, high)
    if not low and not growth:
        raise Undecided("gap", f"{event} occurred within the slack of an observation only")
    reason = f"{_name(after)} grew by {growth:g}, {event} occurred {high} times"
    return Measurement(
        reason,
        Measured(growth),
        finding="deviates" if growth < low else "lacks" if growth > high else "holds",
        read=Span(first.since_t, last.until_t),
        complete=[event],
        complete_t=last.until_t,
        if_missed=f"{event} may have occurred more often",
    )


def _growth(case: Case, before: Observation, after: Observation, high: float) -> float:
    """Return by how much a number grew between two observations, at most by `high` if nothing is wrong.

    Raises:
        Undecided: It is not known.
    """
    entry, earlier = _entry(case.history, after), _entry(case.history, before)
    if entry.data["value"] is None:
        raise Undecided("gap", f"{_name(after)} is not exported")
    is_anew = _is_started_anew(case.history, earlier, entry)
    growth = float(entry.data["value"]) - (0.0 if is_anew else float(earlier.data["value"] or 0))
    if is_anew and growth <= high:
        reason = f"{_name(after)} grew by {growth:g} since its process restarted; its earlier count is lost"
        raise Undecided("gap", reason)
    return growth


@measures("has-writes", times=_observation_times, names="seen")
def has_writes(case: Case, names: Observation) -> Measurement:
    """Check that the observed names of a namespace's objects include every write acknowledged before.

    Acknowledgements are those of `write_repeatedly` in the same namespace.
    """
    entry = _entry(case.history, names)
    acknowledged = {
        str(look.data["value"]).partition(" ")[0]
        for look in _acknowledged(case.history, names.subject)
        if look.t < entry.data["asked_t"]
    }
    if not acknowledged:
        raise Undecided("gap", f"no write in {names.subject} was acknowledged")
    lost = sorted(acknowledged - {*entry.data["value"]})
    reason = f"{_name(names)} lack {len(lost)} of {len(acknowledged)} acknowledged writes"
    reason = _cut(": ".join([reason, ", ".join(lost)])) if lost else reason
    return compare(not lost, reason, "all of them", Measured(float(len(lost)), "writes"))


def _acknowledged(history: History, namespace: str) -> Sequence[Entry]:
    """Return the acknowledgements of `write_repeatedly` in a namespace."""
    looks = (look for look in history.of_kind("observed") if look.data["value"] is not None)
    return [look for look in looks if (look.data["what"], look.data["subject"]) == (moments.WRITE, namespace)]


_CONFIG_MAPS = "configmaps"


# Revisions order the writes, not times: a slow host delays a watch, and changes nothing in its order.
@measures("watched-writes", times=_end_time, in_namespace="subject")
def watched_writes(case: Case, in_namespace: str) -> Measurement:
    """Check that the watch of ConfigMaps delivered each write acknowledged in a namespace, in order and once.

    Acknowledgements are those of `write_repeatedly`. The watch must have been interrupted meanwhile, and have
    resumed from its last resourceVersion: a new LIST proves nothing about events.
    """
    history, what = case.history, f"the watch of {_CONFIG_MAPS}"
    for gap in history.gaps(_CONFIG_MAPS, history.began_t, history.ended_t):
        if gap.is_lossy:
            raise Undecided("gap", f"{what} did not resume: {gap.reason}")
    stored = stored_events(history, _CONFIG_MAPS)
    if not stored.passed:
        raise Undecided("gap", stored.reason)
    written_t = {int(look.data["value"].split()[1]): look.t for look in _acknowledged(history, in_namespace)}
    broken = [entry for entry in history.of_kind("gap") if entry.data["resource"] == _CONFIG_MAPS]
    missable = [t for t in written_t.values() if any(entry.data["since"] < t < entry.t for entry in broken)]
    if not missable:
        raise Undecided("no-anchor", f"no write was acknowledged while {what} was interrupted")
    versions = (version for version in history.all_versions(_CONFIG_MAPS) if not version.listed)
    delivered = [int(version.object["metadata"]["resourceVersion"]) for version in versions]
    lost = [revision for revision in written_t.keys() - {*delivered} if revision < max(delivered)]
    repeated = [after for before, after in pairwise(delivered) if after <= before]
    writes = f"{len(written_t)} acknowledged writes, {len(missable)} of them while it was interrupted"
    reason = f"{what} lacks {len(lost)} of {writes}; {len(repeated)} events are not newer than the last one"
    return compare(not lost and not repeated, reason, "none", Measured(float(len(lost)), "writes"))


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
        return one == other or any(_reads_same(read, one, other) for read in _readings(one, other))
    return is_equal(one, other)


def _readings(one: str, other: str) -> Iterator[Callable[[str], object]]:
    """Yield how two texts may be read: as times, and as quantities.

    Numbers without a unit may be versions, where 1.10 is not 1.1.
    """
    if _TIME.fullmatch(one) and _TIME.fullmatch(other):
        yield parse_time
    if one[-1:].isalpha() or other[-1:].isalpha():
        yield amount


def _reads_same(read: Callable[[str], object], one: str, other: str) -> bool:
    try:
        return read(one) == read(other)
    except ValueError:
        return False


def _entry(history: History, observation: Observation) -> Entry:
    """Return the entry of an observation.

    Raises:
        Undecided: There is none.
    """
    for entry in history.of_kind("observed"):
        if entry.data.get("id") == observation.id:
            return entry
    raise Undecided("gap", f"the recording has no observation of {_name(observation)}")


def _name(observation: Observation) -> str:
    return f"{observation.what} of {observation.subject}".replace("\0", "")


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
_LEAST_REPEATED = 3
"""Least observations without an id in a recording that the harness has certainly repeated."""
_MOST_BLIND = 0.5
"""Longest time without an observation, as a share of the whole: observations must not be at one end only."""
_LONGEST_UNSEEN_S = 5.0
"""Longest time (s) without an observation, and after the last one, of values that are read twice a second."""


@measures("listed", times=_span_times)
def listed(case: Case, what: str, subject: str, line: str, since: Moment, until: Moment) -> Measurement:
    """Check that every observation between two moments has this line; there must be at least one.

    Repeated observations must go on from the start to the end. The scenario's own are judged one by one.
    """
    looks = _repeated(case, what, subject, since, until, lambda value: line in value.splitlines())
    return _compare_looks(looks, repr(line))


@measures("not-listed", times=_span_times)
def not_listed(case: Case, what: str, subject: str, line: str, until: Moment) -> Measurement:
    """Check that no observation up to a moment has this line; observations count as for `listed`."""
    looks = _repeated(case, what, subject, None, until, lambda value: line not in value.splitlines())
    return _compare_looks(looks, f"no {line!r}")


@measures("amounts-to", times=_span_times)
def amounts_to(
    case: Case, what: str, subject: str, low: float, high: float, since: Moment, until: Moment
) -> Measurement:
    """Check that every observation between two moments is a number in [low, high]; `max` is not a number.

    Observations count as for `listed`.
    """
    looks = _repeated(
        case, what, subject, since, until, lambda value: value.isdecimal() and low <= int(value) <= high
    )
    return _compare_looks(looks, f"{low:g}" if low == high else f"{low:g} to {high:g}")


def _compare_looks(looks: _Repeated, expected: str) -> Measurement:
    if looks.wrong is not None:
        value = _shown(looks.wrong)
        return compare(False, f"{looks.name} is {value}", expected, Measured(value))
    if looks.unanswered or not looks.looks:
        raise Undecided("gap", looks.unanswered or f"no observation of {looks.name}")
    # Recordings from before single observations had an id do not tell these from repeated ones.
    is_periodic = looks.is_marked or looks.recorded >= _LEAST_REPEATED
    unobserved_s = looks.unseen_s(looks.within.since_t if is_periodic else _look_began_t(looks.looks[0]))
    if looks.is_repeated and unobserved_s > _LONGEST_UNSEEN_S:
        raise Undecided("gap", f"no observation of {looks.name} for {unobserved_s:.1f} s")
    value = _shown(looks.looks[-1])
    return Measurement(f"{looks.name} is {value}", Measured(value))


@measures("shown-throughout", times=_span_times)
def shown_throughout(
    case: Case, what: str, subject: str, value: str, since: Moment, until: Moment
) -> Measurement:
    """Check that every observation between two moments shows `value`.

    No gap between observations may be longer than half the time.
    """
    looks = _repeated(case, what, subject, since, until, lambda observed: bool(observed == value))
    within, wrong, count = looks.within, looks.wrong, len(looks.looks)
    if wrong is not None:
        other = str(wrong.data["value"])
        reason = f"{looks.name} was {other!r} {wrong.t - within.since_t:.1f} s after {since}"
        return Measurement(reason, Measured(other), finding="deviates", last_state=f"expected {value!r}")
    if looks.unanswered or count < _LEAST_LOOKS:
        reason = f"{count} observations of {looks.name}, need {_LEAST_LOOKS}"
        raise Undecided("gap", looks.unanswered or reason)
    unobserved_s = looks.unseen_s(within.since_t)
    if unobserved_s > (within.until_t - within.since_t) * _MOST_BLIND:
        raise Undecided("gap", f"no observation of {looks.name} for {unobserved_s:.1f} s")
    return Measurement(f"{count} observations of {value!r}", Measured(value))


@dataclass(frozen=True)
class _Repeated:
    """The observations of a time: those with the expected value, the first other one, and why one failed.

    `recorded` counts the observations without an id in the whole recording; `is_marked` is whether one of
    them has the period of its repetition.
    """

    name: str
    within: Span
    looks: Sequence[Entry]
    wrong: Entry | None
    unanswered: str
    recorded: int
    is_marked: bool

    @property
    def is_repeated(self) -> bool:
        """Whether the harness repeats these observations; a scenario's own have an id."""
        return any("id" not in entry.data for entry in self.looks)

    def unseen_s(self, since_t: float) -> float:
        """Return the longest time (s) without an observation, from a time on (s).

        The time of a value is unknown between its request and its response.
        """
        looks = (Span(_look_began_t(entry), entry.t) for entry in self.looks)
        spans = (Span.at(since_t), *looks, Span.at(self.within.until_t))
        return max(after.until_t - before.since_t for before, after in pairwise(spans))


def _repeated(
    case: Case, what: str, subject: str, since: Moment | None, until: Moment, holds: Callable[[Json], bool]
) -> _Repeated:
    """Return the observations between two moments.

    A deviating one within the slack of an end may belong to the time beyond it, and is ignored.
    """
    name, within = f"{what} of {subject}", span(case.history, since, until)
    recorded = [
        entry
        for entry in case.history.of_kind("observed")
        if (entry.data["what"], entry.data["subject"]) == (what, subject)
    ]
    inside = [
        entry for entry in recorded if within.since_t <= _look_began_t(entry) and entry.t <= within.until_t
    ]
    certain_t = within.since_t + (_slack_s(since, case) if since else 0.0)
    certain = Span(certain_t, within.until_t - _slack_s(until, case))
    failed = [entry for entry in inside if "error" in entry.data]
    answered = [entry for entry in inside if "error" not in entry.data]
    deviating = [entry for entry in answered if not holds(entry.data["value"])]
    return _Repeated(
        name,
        within,
        [entry for entry in answered if holds(entry.data["value"])],
        next((entry for entry in deviating if certain.since_t <= entry.t <= certain.until_t), None),
        f"an observation of {name} failed: {failed[0].data['error']}" if failed else "",
        sum("id" not in entry.data for entry in recorded),
        any("period_s" in entry.data for entry in recorded),
    )


def _look_began_t(look: Entry) -> float:
    return float(look.data.get("asked_t", look.t))


def _slack_s(end: Moment, case: Case) -> float:
    """Return the largest error (s) of an end's time."""
    return 0.0 if moments.is_on_our_clock(end) else case.context.slack_s


def _shown(look: Entry) -> str:
    return str(look.data["value"]).replace("\n", " | ") or "nothing"


@measures("lives-on", times=_span_times, pod="subject")
def stays_alive(case: Case, pod: str, since: Moment, until: Moment) -> Measurement:
    """Check that a witness pod stays alive between two moments, without a restart."""
    history, within = case.history, span(case.history, since, until)
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
        reason = f"{pod} restarted {restart.t - since_t:.1f} s after {since}"
        return Measurement(reason, finding="deviates")
    sign_times = [since_t, *(entry.t for entry in signs), until_t]
    silence, silent_t = max((after - before, before) for before, after in pairwise(sign_times))
    measured = Measured(silence, "s")
    if silence > SILENCE_TIMEOUT_S:
        after_s = silent_t - since_t
        reason = f"{pod} was silent for {silence:.1f} s, {after_s:.1f} s after {since}"
        state = witnessed.last_message(history, pod)
        return Measurement(reason, measured, finding="deviates", last_state=state)
    reason = f"{pod} sent {len(signs)} signs of life in {until_t - since_t:.1f} s"
    return Measurement(f"{reason}, longest silence {silence:.1f} s", measured)


def span(history: History, since: Moment | None, until: Moment) -> Span:
    """Return the judged time, from the start of the recording by default.

    Raises:
        Undecided: One of its ends is missing, or its time is unknown.
    """
    since_t = _when(history, since, history.began_t) if since else history.began_t
    return Span(since_t, _when(history, until, since_t))


def _when(history: History, moment: Moment, since_t: float) -> float:
    t = require(history, moment, since_t).t
    gap = watch_loss(history, (moment,), Span.at(t))
    if gap:
        raise Undecided("gap", f"{moment} occurred while {gap}")
    return t


@measures("lasted", times=_step_times)
def lasted(case: Case, fault: str) -> Measurement:
    """Check that a fault, by its id, was still active when it was to be healed.

    For claims that the cluster does not undo a change. If such a fault did not last, all other claims are
    `not-injected`.
    """
    fault_steps = [entry.data["step"] for entry in _steps(case.history, fault)]
    steps_text = ", ".join(fault_steps)
    if "injected" not in fault_steps:
        raise Undecided("not-injected", f"no probe confirmed fault {fault}; steps: {steps_text}")
    if "healing" not in fault_steps:
        raise Undecided("gap", f"the recording ends before fault {fault} was healed")
    if "unanswered" in fault_steps:
        raise Undecided("gap", f"the probe of fault {fault} was not answered")
    if "unproven" in fault_steps:
        reason = f"fault {fault} ended before it was healed; steps: {steps_text}"
        return Measurement(reason, finding="deviates")
    return Measurement(f"fault {fault} was still active when it was healed")


def _steps(history: History, fault: str) -> list[Entry]:
    """Return the recorded steps of the fault, in order."""
    return [entry for entry in history.of_kind("fault") if entry.data["id"] == fault]


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
