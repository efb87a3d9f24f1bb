"""Check that compares the bytes that two kinds of update write."""

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
    """Check that the updates of one event write at least `times` the bytes of another event's updates.

    The check covers the time between two moments. Each update counts as the whole object in JSON, without
    managedFields.

    Raises:
        ValueError: `times` is not positive.
    """
    if times <= 0:
        raise ValueError(f"{times} times")
    args = {"event": event.to_json(), "other": other.to_json(), "times": times}
    return Check("outweighs", {**args, "anchor": after.to_json(), "until": until.to_json()})


def judge(history: History, args: Args) -> Verdict:
    """Judge an `outweighs` check.

    Raises:
        LookupError: A moment is not a change of one object.
    """
    within = counting.span(history, args)
    if isinstance(within, Verdict):
        return within
    weighed = [Moment.from_json(args[part]) for part in ("event", "other")]
    ends = [Moment.from_json(args[part]) for part in ("anchor", "until")]
    doubt = blind(history, (*weighed, *ends), within.since_t, within.until_t)
    doubt = doubt or next(
        (doubt for moment in weighed if (doubt := unfenced(history, moment, within.until_t))), ""
    )
    if doubt:
        return unproven("gap", doubt)
    heavy, light = (_sizes(history, moment, within) for moment in weighed)
    if not heavy or not light:
        return unproven("no-anchor", f"{weighed[0]} came {len(heavy)} times, {weighed[1]} {len(light)} times")
    times, ratio = float(args["times"]), sum(heavy) / sum(light)
    reason = " beside ".join(f"{sum(sizes)} bytes in {len(sizes)} writes" for sizes in (heavy, light))
    measured = Measured(round(ratio, 2))
    if ratio < times:
        return deviates(f"{reason}, at least {times:g} times as much expected", measured=measured)
    return conforms(reason, measured=measured)


def _sizes(history: History, moment: Moment, within: Span) -> list[int]:
    """Return the size in bytes of each written object."""
    shape = moments.shape(moment)
    if not isinstance(shape, shapes.Changed):
        raise LookupError(f"{moment} is no change of one object")
    times = {
        occurrence.t for occurrence in shape.each(history) if within.since_t <= occurrence.t <= within.until_t
    }
    return [_bytes(version.object) for version in shape.of.seen(history) if version.t in times]


def _bytes(stored: Json) -> int:
    metadata = {key: field for key, field in stored["metadata"].items() if key != "managedFields"}
    return len(json.dumps({**stored, "metadata": metadata}, separators=(",", ":")).encode())
