"""Check that the effect of a fault lasted until it was healed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict, conforms, deviates, unproven

Args = Mapping[str, Any]


def lasted(fault: str) -> Check:
    """Check that a fault, by its id, was still active when it was to be healed.

    For claims that the cluster does not undo a change. If such a fault did not last, all other claims are
    `not-injected`.
    """
    return Check("lasted", {"fault": fault})


def judge_lasted(history: History, args: Args) -> Verdict:
    """Judge a `lasted` check."""
    fault_steps = [entry.data["step"] for entry in steps(history, args)]
    if "injected" not in fault_steps:
        return unproven(
            "not-injected", f"no probe confirmed fault {args['fault']}; steps: {', '.join(fault_steps)}"
        )
    if "healing" not in fault_steps:
        return unproven("gap", f"the recording ends before fault {args['fault']} was healed")
    if "unanswered" in fault_steps:
        return unproven("gap", f"the probe of fault {args['fault']} was not answered")
    if "unproven" in fault_steps:
        return deviates(f"fault {args['fault']} ended before it was healed; steps: {', '.join(fault_steps)}")
    return conforms(f"fault {args['fault']} was still active when it was healed")


def steps(history: History, args: Args) -> list[Entry]:
    """Return the recorded steps of the fault, in order."""
    return [entry for entry in history.of_kind("fault") if entry.data["id"] == args["fault"]]
