"""Checks of what was looked at, or answered, once: by itself, or beside another look."""

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
"""So much the start of one process may be told apart at two looks: it is computed from whole seconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT.*")


def shows(seen: Observation, pattern: Json) -> Check:
    """What was seen matches a pattern (`nodeproof.model.pattern`)."""
    return Check("shows", {"seen": seen.to_json(), "pattern": pattern})


def same_as(seen: Observation, before: Observation) -> Check:
    """Two looks showed the same; `1Gi` and `1048576Ki` are, and a time with and without a fraction of 0."""
    return Check("same-as", {"seen": seen.to_json(), "before": before.to_json()})


def grew(before: Observation, seen: Observation, low: float, high: float) -> Check:
    """A number was between `low` and `high` higher at the second look; a counter that is not there counted
    nothing yet. One that neither look found proves nothing. Of one whose process was started anew in between
    nobody knows what it had counted before: it grew by what it counted since, at least.
    """
    told = {"before": before.to_json(), "seen": seen.to_json()}
    return Check("grew", {**told, "low": low, "high": high})


def judge_shows(history: History, args: Args) -> Verdict:
    """See `shows`. Raises LookupError on a pattern that is none."""
    wrong = fault(args["pattern"])
    if wrong:
        raise LookupError(wrong)
    found = find(history, args["seen"])
    if found is None:
        return _unseen(args["seen"])
    value, said = found.data["value"], _said(args["seen"], found)
    measured = Measured(_short(value))
    if not is_about(args["pattern"], value) and matches(args["pattern"], None):
        return unproven("gap", f"{said}: nothing that could lack what is not to be in it", measured=measured)
    if matches(args["pattern"], value):
        return conforms(said, measured=measured)
    return deviates(f"{said}, expected {_cut(json.dumps(args['pattern']))}", measured=measured)


def judge_same(history: History, args: Args) -> Verdict:
    """See `same_as`."""
    found, before = find(history, args["seen"]), find(history, args["before"])
    if found is None or before is None:
        return _unseen(args["seen"] if found is None else args["before"])
    if found.data["value"] is None and before.data["value"] is None:
        return unproven("gap", f"there is no {_name(args['seen'])}, and there was none before")
    said, measured = _said(args["seen"], found), Measured(_short(found.data["value"]))
    if _is_same(found.data["value"], before.data["value"]):
        return conforms(said, measured=measured)
    return deviates(f"{said}, before {_short(before.data['value'])}", measured=measured)


def judge_growth(history: History, args: Args) -> Verdict:
    """See `grew`."""
    found, before = find(history, args["seen"]), find(history, args["before"])
    if found is None or before is None:
        return _unseen(args["seen"] if found is None else args["before"])
    if found.data["value"] is None:
        return unproven("gap", f"nobody exports {_name(args['seen'])}")
    is_anew = _is_started_anew(history, before, found)
    grown = float(found.data["value"]) - (0.0 if is_anew else float(before.data["value"] or 0))
    said, measured = f"{_name(args['seen'])} grew by {grown:g}", Measured(grown)
    if is_anew and grown <= float(args["high"]):
        return unproven("gap", f"{said} since its process was started anew; what it counted before is lost")
    if float(args["low"]) <= grown <= float(args["high"]):
        return conforms(said, measured=measured)
    return deviates(f"{said}, expected {args['low']:g} to {args['high']:g}", measured=measured)


def _is_started_anew(history: History, before: Entry, found: Entry) -> bool:
    """Whether another process told a number at the second look: both tell when they were started."""
    if "process_s" not in before.data or "process_s" not in found.data:
        return False
    one_t, other_t = (
        float(look.data["process_s"]) - history.wall_offset_s(look.t) for look in (before, found)
    )
    return abs(other_t - one_t) > _ONE_PROCESS_S


def _is_same(one: Json, other: Json) -> bool:
    """Whether two values are the same thing, however it is written."""
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
    """Whether two quantities are; without any unit they may as well be versions, of which 1.10 is not 1.1."""
    if not (one[-1:].isalpha() or other[-1:].isalpha()):
        return False
    try:
        return amount(one) == amount(other)
    except ValueError:
        return False


def find(history: History, seen: Args) -> Entry | None:
    """The entry of an observation."""
    found = (entry for entry in history.of_kind("observed") if entry.data.get("id") == seen["id"])
    return next(found, None)


def _unseen(seen: Args) -> Verdict:
    return unproven("gap", f"the recording holds no look at {_name(seen)}")


def _name(seen: Args) -> str:
    return f"{seen['what']} of {seen['subject']}".replace("\0", "")


def _said(seen: Args, found: Entry) -> str:
    return f"{_name(seen)} is {_short(found.data['value'])}"


def _short(value: Json) -> str:
    """A line for people: of an answer its status, and what the API says beside it; what kubectl printed."""
    if isinstance(value, Mapping) and value.keys() == {"status", "body"}:
        message = value["body"].get("message", "") if isinstance(value["body"], Mapping) else value["body"]
        value = f"{value['status']} {message}".strip()
    if isinstance(value, Mapping) and value.keys() == {"status", "stdout", "stderr"}:
        value = f"{value['stdout']}{value['stderr']}".strip()
    return _cut(str(value).replace("\n", " | ").replace("\0", ""))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
