"""A node that joins while the lab runs."""

from __future__ import annotations

from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.labs.ground.spec import check_node_name
from nodeproof.model.problem import Problem

Json = Any


def join(name: str, zone: str = "zone-a", **kubelet: Json) -> Action[None]:
    """Let a new machine boot and its kubelet start, with these fields of KubeletConfiguration besides the
    lab's. It leaves when the scenario is over; where that was not to be, by the next run or `nodeproof heal`.

    The action raises Problem.
    """

    def do(doing: Doing) -> None:
        check_node_name(name)
        fleet = doing.lab.fleet
        if fleet.has(name):
            raise Problem(f"{name} is there already", f"lab {doing.lab.name}", "join under another name")
        doing.lab.safety.expect_node(name)
        if doing.recording is not None:
            doing.recording.append("machine", node=name, step="joining", kubelet=kubelet)
        fleet.join(name, zone, 1 + max(entry.slot for entry in fleet.nodes()), kubelet)

    return Action(f"{name} joins", do)
