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
    """Reject flags that a shell or a unit file would split. Raises Problem."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise Problem(f"invalid flag {flag!r}", "flags", "use --NAME=VALUE with plain characters")


def join(
    name: str,
    zone: str = "",
    *,
    node: str = "",
    flags: Sequence[str] = (),
    shape: Shape = AS_ALL,
    **kubelet: Json,
) -> Action[None]:
    """Boot a new machine and start its kubelet; the machine and its Node are removed after the scenario.

    If that fails, the next run or `nodeproof heal` removes them.

    Args:
        name: The machine's name.
        zone: By default the zone of the lab's first node.
        node: The name of its Node; by default the machine's.
        flags: Kubelet flags besides the lab's.
        shape: A shape of its own needs the feature `shapes`.
        **kubelet: Fields of KubeletConfiguration.

    Raises:
        Problem: By the action, if the machine cannot join.
    """

    def do(doing: Doing) -> None:
        check_node_name(name)
        node_name = check_node_name(node or name)
        check_flags(flags)
        fleet = doing.lab.fleet
        node_zone = zone or fleet.nodes()[0].zone
        if doing.lab.zone not in ("", node_zone):
            raise Problem(f"{node_zone} is not the scenario's zone", "join(...)", f"use {doing.lab.zone}")
        for new_name in {name, node_name}:
            if fleet.has(new_name) or fleet.is_others(new_name):
                raise Problem(f"{new_name} exists already", f"lab {doing.lab.name}", "use another name")
        doing.lab.safety.expect_node(name, node_name)
        if doing.recording is not None:
            options: Json = {"kubelet": kubelet, "flags": list(flags), "as": node_name}
            doing.recording.append("machine", node=name, step="joining", **options)
        fleet.join(name, node_zone, fleet.free_slot(), kubelet, flags, node_name, shape)

    return Action(f"{name} joins", do)
