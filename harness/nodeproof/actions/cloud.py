"""What becomes of machines in a cluster's cloud."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.actions.action import Action, Doing
from nodeproof.faults.cloud import State, answer_anew
from nodeproof.model.needs import CLOUD


def cloud_says(answers: Mapping[str, State]) -> Action[None]:
    """Let the cloud (the fault `cloud`) say this of nodes, in place of all that it said."""

    def do(doing: Doing) -> None:
        answer_anew(doing.lab.fleet.machine(CLOUD), answers)

    told = ", ".join(f"{node}: {state}" for node, state in answers.items()) or "that all exist"
    lost = tuple(node for node, state in answers.items() if state != "exists")
    return Action(f"the cloud says {told}", do, harms=lost)
