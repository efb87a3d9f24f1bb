"""Checks of what was looked at, or answered, once: by itself, or beside another look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.observation import Observation
from nodeproof.model.pattern import fault, matches
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven

Json = Any
Args = Mapping[str, Json]
_LONGEST_SHOWN = 200


def shows(seen: Observation, pattern: Json) -> Check:
    """What was seen matches a pattern (`nodeproof.model.pattern`)."""
    return Check("shows", {"seen": seen.to_json(), "pattern": pattern})


def same_as(seen: Observation, before: Observation) -> Check:
    """Two looks showed the same."""
    return Check("same-as", {"seen": seen.to_json(), "before": before.to_json()})


def grew(before: Observation, seen: Observation, low: float, high: float) -> Check:
    """A number was between `low` and `high` higher at the second look; a counter that is not there counted
    nothing yet. One that neither look found proves nothing.
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
    if found.data["value"] == before.data["value"]:
        return conforms(said, measured=measured)
    return deviates(f"{said}, before {_short(before.data['value'])}", measured=measured)


def judge_growth(history: History, args: Args) -> Verdict:
    """See `grew`."""
    found, before = find(history, args["seen"]), find(history, args["before"])
    if found is None or before is None:
        return _unseen(args["seen"] if found is None else args["before"])
    if found.data["value"] is None:
        return unproven("gap", f"nobody exports {_name(args['seen'])}")
    grown = float(found.data["value"]) - float(before.data["value"] or 0)
    said, measured = f"{_name(args['seen'])} grew by {grown:g}", Measured(grown)
    if float(args["low"]) <= grown <= float(args["high"]):
        return conforms(said, measured=measured)
    return deviates(f"{said}, expected {args['low']:g} to {args['high']:g}", measured=measured)


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
