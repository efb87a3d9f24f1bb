"""Checks of single observations, alone or compared with an earlier one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.judgment import Check
from nodeproof.model.observation import Observation
from nodeproof.model.pattern import fault, is_about, is_equal, matches
from nodeproof.model.quantity import amount
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven

Json = Any
Args = Mapping[str, Json]
_LONGEST_SHOWN = 200
_ONE_PROCESS_S = 2.0
"""Largest difference between two readings of one process's start time: it is computed from whole seconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT.*")


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


def judge_shows(history: History, args: Args) -> Verdict:
    """Judge a `shows` check.

    Raises:
        LookupError: The pattern is invalid.
    """
    problem = fault(args["pattern"])
    if problem:
        raise LookupError(problem)
    entry = find(history, args["seen"])
    if entry is None:
        return _not_observed(args["seen"])
    value, reason = entry.data["value"], _describe(args["seen"], entry)
    measured = Measured(_short(value))
    if not is_about(args["pattern"], value) and matches(args["pattern"], None):
        return unproven("gap", f"{reason}: the pattern does not apply to this value", measured=measured)
    if matches(args["pattern"], value):
        return conforms(reason, measured=measured)
    return deviates(f"{reason}, expected {_cut(json.dumps(args['pattern']))}", measured=measured)


def judge_same(history: History, args: Args) -> Verdict:
    """Judge a `same_as` check."""
    after, before = find(history, args["seen"]), find(history, args["before"])
    if after is None or before is None:
        return _not_observed(args["seen"] if after is None else args["before"])
    if after.data["value"] is None and before.data["value"] is None:
        return unproven("gap", f"{_name(args['seen'])} is missing in both observations")
    reason, measured = _describe(args["seen"], after), Measured(_short(after.data["value"]))
    if _is_same(after.data["value"], before.data["value"]):
        return conforms(reason, measured=measured)
    return deviates(f"{reason}, before {_short(before.data['value'])}", measured=measured)


def judge_growth(history: History, args: Args) -> Verdict:
    """Judge a `grew` check."""
    after, before = find(history, args["seen"]), find(history, args["before"])
    if after is None or before is None:
        return _not_observed(args["seen"] if after is None else args["before"])
    if after.data["value"] is None:
        return unproven("gap", f"{_name(args['seen'])} is not exported")
    is_anew = _is_started_anew(history, before, after)
    growth = float(after.data["value"]) - (0.0 if is_anew else float(before.data["value"] or 0))
    reason, measured = f"{_name(args['seen'])} grew by {growth:g}", Measured(growth)
    if is_anew and growth <= float(args["high"]):
        return unproven("gap", f"{reason} since its process restarted; its earlier count is lost")
    if float(args["low"]) <= growth <= float(args["high"]):
        return conforms(reason, measured=measured)
    return deviates(f"{reason}, expected {args['low']:g} to {args['high']:g}", measured=measured)


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


def find(history: History, observation: Args) -> Entry | None:
    """Return the entry of an observation."""
    entries = (entry for entry in history.of_kind("observed") if entry.data.get("id") == observation["id"])
    return next(entries, None)


def _not_observed(observation: Args) -> Verdict:
    return unproven("gap", f"the recording has no observation of {_name(observation)}")


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
