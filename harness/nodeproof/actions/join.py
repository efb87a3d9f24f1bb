"""A node that joins while the lab runs."""

from __future__ import annotations

from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.labs.ground.spec import check_node_name
from nodeproof.model.problem import Problem

Json = Any


def join(name: str, zone: str = "", **kubelet: Json) -> Action[None]:
    """Let a new machine boot and its kubelet start, with these fields of KubeletConfiguration besides the
    lab's, in the zone of the lab's first node unless told. It leaves when the scenario is over; where that
    was not to be, by the next run or `nodeproof heal`.

    The action raises Problem.
    """

    def do(doing: Doing) -> None:
        check_node_name(name)
        fleet = doing.lab.fleet
        place = zone or fleet.nodes()[0].zone
        if doing.lab.zone not in ("", place):
            raise Problem(f"{place} is not the scenario's zone", "join(...)", f"it has {doing.lab.zone}")
        if fleet.has(name) or fleet.is_others(name):
            raise Problem(f"{name} is there already", f"lab {doing.lab.name}", "join under another name")
        doing.lab.safety.expect_node(name)
        if doing.recording is not None:
            doing.recording.append("machine", node=name, step="joining", kubelet=kubelet)
        fleet.join(name, place, fleet.free_slot(), kubelet)

    return Action(f"{name} joins", do)
