"""What was written before what, whatever order two watches told it in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.checks import moments
from nodeproof.checks.anchors import missing
from nodeproof.checks.blind import blind
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, Moment
from nodeproof.model.verdict import Measured, Verdict, conforms, deviates, unproven

Json = Any
Args = Mapping[str, Json]


def in_order(first: Moment, then: Moment) -> Check:
    """The one change of an object was written before the other, by the revisions of etcd, which counts the
    writes of all resources (resourceVersion; a removal has one, too).
    """
    return Check("in-order", {"anchor": first.to_json(), "event": then.to_json()})


def judge(history: History, args: Args) -> Verdict:
    """See `in_order`."""
    first, then = Moment.from_json(args["anchor"]), Moment.from_json(args["event"])
    one, other = moments.find(history, first), moments.find(history, then)
    if one is None:
        return missing(history, first)
    if other is None:
        return missing(history, then)
    if not one.revision or not other.revision:
        raise LookupError(f"{first} and {then} are not both changes of an object")
    gap = blind(history, (first, then), history.began_t, max(one.t, other.t))
    if gap:
        return unproven("gap", f"one of them may have come before: {gap}")
    said = f"{first} was written at revision {one.revision}, {then} at {other.revision}"
    measured = Measured(float(other.revision - one.revision))
    return (
        conforms(said, measured=measured)
        if one.revision < other.revision
        else deviates(said, measured=measured)
    )
