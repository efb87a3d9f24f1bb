"""A node that joins while the lab runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.labs.ground.spec import AS_ALL, Shape, check_node_name
from nodeproof.model.problem import Problem

Json = Any
_FLAG = re.compile(r"--[A-Za-z0-9._:/,=@-]*")


def check_flags(flags: Sequence[str]) -> None:
    """Refuse flags that shells and units would take apart. Raises Problem."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise Problem(
                f"no flag as a shell takes it whole: {flag!r}", "flags", "--NAME=VALUE, plain characters"
            )


def join(
    name: str,
    zone: str = "",
    *,
    node: str = "",
    flags: Sequence[str] = (),
    shape: Shape = AS_ALL,
    **kubelet: Json,
) -> Action[None]:
    """Let a new machine boot and its kubelet start, with these fields of KubeletConfiguration and these
    flags besides the lab's, in the zone of the lab's first node unless told. Its Node is called like the
    machine, or `node`. It leaves when the scenario is over, and its Node with it; where that was not to be,
    by the next run or `nodeproof heal`. A machine with a `shape` of its own needs the feature `shapes`.

    The action raises Problem.
    """

    def do(doing: Doing) -> None:
        check_node_name(name)
        node_name = check_node_name(node or name)
        check_flags(flags)
        fleet = doing.lab.fleet
        place = zone or fleet.nodes()[0].zone
        if doing.lab.zone not in ("", place):
            raise Problem(f"{place} is not the scenario's zone", "join(...)", f"it has {doing.lab.zone}")
        for each in {name, node_name}:
            if fleet.has(each) or fleet.is_others(each):
                raise Problem(f"{each} is there already", f"lab {doing.lab.name}", "join under another name")
        doing.lab.safety.expect_node(name, node_name)
        if doing.recording is not None:
            told: Json = {"kubelet": kubelet, "flags": list(flags), "as": node_name}
            doing.recording.append("machine", node=name, step="joining", **told)
        fleet.join(name, place, fleet.free_slot(), kubelet, flags, node_name, shape)

    return Action(f"{name} joins", do)
