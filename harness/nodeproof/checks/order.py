"""Check of the order in which two objects were written, whatever the order of their watch events."""

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
    """Check that one change of an object was written before another, by their resourceVersions.

    etcd's revision counts the writes of all resources. A removal has a revision, too.
    """
    return Check("in-order", {"anchor": first.to_json(), "event": then.to_json()})


def judge(history: History, args: Args) -> Verdict:
    """Judge an `in_order` check."""
    first, then = Moment.from_json(args["anchor"]), Moment.from_json(args["event"])
    earlier, later = moments.find(history, first), moments.find(history, then)
    if earlier is None:
        return missing(history, first)
    if later is None:
        return missing(history, then)
    if not earlier.revision or not later.revision:
        raise LookupError(f"{first} and {then} are not both changes of an object")
    gap = blind(history, (first, then), history.began_t, max(earlier.t, later.t))
    if gap:
        return unproven("gap", f"one of them may have occurred earlier: {gap}")
    reason = f"{first} was written at revision {earlier.revision}, {then} at {later.revision}"
    measured = Measured(float(later.revision - earlier.revision))
    return (
        conforms(reason, measured=measured)
        if earlier.revision < later.revision
        else deviates(reason, measured=measured)
    )
