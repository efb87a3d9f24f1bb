"""How many bytes one kind of write costs beside another, between two moments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nodeproof.checks import counting, moments, shapes
from nodeproof.checks.anchors import unfenced
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.slack import Span
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven

Json = Any
Args = Mapping[str, Json]


def outweighs(event: Moment, other: Moment, times: float, *, after: Moment, until: Moment) -> Check:
    """Between two moments an event's writes store at least so many times the bytes of another's.

    Each write counts the whole object as JSON, without who wrote which of its fields.
    Raises ValueError on a number of times that is none.
    """
    if times <= 0:
        raise ValueError(f"{times} times")
    told = {"event": event.to_json(), "other": other.to_json(), "times": times}
    return Check("outweighs", {**told, "anchor": after.to_json(), "until": until.to_json()})


def judge(history: History, args: Args) -> Verdict:
    """See `outweighs`. Raises LookupError on a moment that is no change of one object."""
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    about = [Moment.from_json(args[part]) for part in ("event", "other")]
    ends = [Moment.from_json(args[part]) for part in ("anchor", "until")]
    unsure = blind(history, (*about, *ends), within.since_t, within.until_t)
    unsure = unsure or next((why for each in about if (why := unfenced(history, each, within.until_t))), "")
    if unsure:
        return unproven("gap", unsure)
    heavy, light = (_sizes(history, each, within) for each in about)
    if not heavy or not light:
        return unproven("no-anchor", f"{about[0]} came {len(heavy)} times, {about[1]} {len(light)} times")
    times, ratio = float(args["times"]), sum(heavy) / sum(light)
    said = " beside ".join(f"{sum(sizes)} bytes in {len(sizes)} writes" for sizes in (heavy, light))
    measured = Measured(round(ratio, 2))
    if ratio < times:
        return deviates(f"{said}, at least {times:g} times as much expected", measured=measured)
    return conforms(said, measured=measured)


def _sizes(history: History, moment: Moment, within: Span) -> list[int]:
    """The bytes of each object that was written."""
    shape = moments.shape(moment)
    if not isinstance(shape, shapes.Changed):
        raise LookupError(f"{moment} is no change of one object")
    came = {each.t for each in shape.each(history) if within.since_t <= each.t <= within.until_t}
    return [_bytes(seen.object) for seen in shape.of.seen(history) if seen.t in came]


def _bytes(found: Json) -> int:
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return len(json.dumps({**found, "metadata": metadata}, separators=(",", ":")).encode())
