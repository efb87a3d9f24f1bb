"""Changes to the machines in a cluster's cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodeproof.actions.action import Action, Doing
from nodeproof.faults import Cloud, Fault
from nodeproof.faults.cloud import State, answer_anew, give_addresses
from nodeproof.model.needs import CLOUD
from nodeproof.model.problem import Problem


def cloud_says(answers: Mapping[str, State]) -> Action[None]:
    """Replace all answers of the cloud (the fault `cloud`) about nodes' machines.

    Raises:
        Problem: By the action, if the fault does not have the labels of a lost node, which it could not
            restore.
    """
    lost = tuple(node for node, state in answers.items() if state != "exists")

    def do(doing: Doing) -> None:
        _refuse_unlabelled(lost, doing.lab.safety.injector.active.values())
        answer_anew(doing.lab.fleet.machine(CLOUD), answers)

    description = ", ".join(f"{node}: {state}" for node, state in answers.items()) or "that all exist"
    return Action(f"the cloud says {description}", do, harms=lost)


def cloud_gives(node: str, **addresses: Sequence[str]) -> Action[None]:
    """Set a node's addresses in the cloud (the fault `cloud` with `sets_up`), and clear all others.

    The addresses are given by type, such as `ExternalIP=["10.78.1.9"]`.
    """
    entries = [{"type": kind, "address": address} for kind, values in addresses.items() for address in values]
    description = ", ".join(f"{entry['type']} {entry['address']}" for entry in entries)

    def do(doing: Doing) -> None:
        give_addresses(doing.lab.fleet.machine(CLOUD), {node: entries})

    return Action(f"the cloud gives {node} {description or 'no address'}", do)


def _refuse_unlabelled(lost: Sequence[str], active: Iterable[Fault]) -> None:
    clouds = [fault for fault in active if isinstance(fault, Cloud)]
    unlabelled = [node for node in lost if clouds and not clouds[0].labels.get(node)]
    if unlabelled:
        raise Problem(
            f"labels of {', '.join(unlabelled)} are missing",
            "cloud_says(...)",
            "pass them to cloud(..., labels)",
        )
