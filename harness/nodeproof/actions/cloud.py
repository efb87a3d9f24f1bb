"""What becomes of machines in a cluster's cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodeproof.actions.action import Action, Doing
from nodeproof.faults import Cloud, Fault
from nodeproof.faults.cloud import State, answer_anew, give_addresses
from nodeproof.model.needs import CLOUD
from nodeproof.model.problem import Problem


def cloud_says(answers: Mapping[str, State]) -> Action[None]:
    """Let the cloud (the fault `cloud`) say this of nodes, in place of all that it said. The action raises
    Problem on a lost node whose labels the fault was not told: it could not be given back.
    """
    lost = tuple(node for node, state in answers.items() if state != "exists")

    def do(doing: Doing) -> None:
        _refuse_unlabelled(lost, doing.lab.safety.injector.active.values())
        answer_anew(doing.lab.fleet.machine(CLOUD), answers)

    told = ", ".join(f"{node}: {state}" for node, state in answers.items()) or "that all exist"
    return Action(f"the cloud says {told}", do, harms=lost)


def cloud_gives(node: str, **addresses: Sequence[str]) -> Action[None]:
    """Let the cloud (the fault `cloud` that `sets_up` nodes) give a node these addresses by their types, such
    as `ExternalIP=["10.78.1.9"]`, and all others none.
    """
    given = [{"type": kind, "address": each} for kind, several in addresses.items() for each in several]
    told = ", ".join(f"{each['type']} {each['address']}" for each in given)

    def do(doing: Doing) -> None:
        give_addresses(doing.lab.fleet.machine(CLOUD), {node: given})

    return Action(f"the cloud gives {node} {told or 'no address'}", do)


def _refuse_unlabelled(lost: Sequence[str], active: Iterable[Fault]) -> None:
    clouds = [fault for fault in active if isinstance(fault, Cloud)]
    bare = [node for node in lost if clouds and not clouds[0].labels.get(node)]
    if bare:
        raise Problem(
            f"nobody told the labels of {', '.join(bare)}", "cloud_says(...)", "tell them: cloud(..., labels)"
        )
