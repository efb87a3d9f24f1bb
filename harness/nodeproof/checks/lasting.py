"""Whether what was done to a cluster was there still when it was undone: nobody else took it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict, conforms, deviates, unproven

Args = Mapping[str, Any]


def lasted(fault: str) -> Check:
    """A fault, by its id, that a probe saw when it was injected was seen when it was to be healed, too. For
    claims that the cluster itself leaves alone what somebody did: of such a fault all other claims are
    `not-injected`.
    """
    return Check("lasted", {"fault": fault})


def judge_lasted(history: History, args: Args) -> Verdict:
    """See `lasted`."""
    seen = [entry.data["step"] for entry in steps(history, args)]
    if "injected" not in seen:
        return unproven(
            "not-injected", f"no probe proved fault {args['fault']}; its steps: {', '.join(seen)}"
        )
    if "healing" not in seen:
        return unproven("gap", f"the recording ends before fault {args['fault']} was healed")
    if "unanswered" in seen:
        return unproven("gap", f"no probe was answered that asked for fault {args['fault']}")
    if "unproven" in seen:
        return deviates(f"fault {args['fault']} was gone before it was healed; its steps: {', '.join(seen)}")
    return conforms(f"fault {args['fault']} was in still when it was healed")


def steps(history: History, args: Args) -> list[Entry]:
    """What was told of the fault, in order."""
    return [entry for entry in history.of_kind("fault") if entry.data["id"] == args["fault"]]
