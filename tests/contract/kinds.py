"""The kinds of lab that pass these tests; a new kind is one line of KINDS."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.faults import Fault, Partition, PowerOff
from harness.labs import process_lab
from harness.labs.components import Components
from harness.labs.lab import Lab


@dataclass(frozen=True)
class Kind:
    """How a kind of lab is started with so many nodes, and where the lab's side sees a node's credentials."""

    start: Callable[[Components, int], Lab]
    node_files: Callable[[Lab, str], Path]


def _start_process_lab(components: Components, nodes: int) -> Lab:
    asked = process_lab.Request(process_lab.new_name(), nodes, 1, "fast", keep=False)
    return process_lab.up(asked, components, print)


KINDS: Mapping[str, Kind] = {
    "process": Kind(_start_process_lab, lambda lab, node: lab.dir / "mem" / "nodes" / node / "run" / "node"),
}

FAULTS: Mapping[str, Callable[[str], Fault]] = {
    "partition-both": lambda node: Partition(_new_id(), node, "both"),
    "partition-node-to-api": lambda node: Partition(_new_id(), node, "node-to-api"),
    "partition-api-to-node": lambda node: Partition(_new_id(), node, "api-to-node"),
    "power-off": lambda node: PowerOff(_new_id(), node),
}


def _new_id() -> str:
    return uuid.uuid4().hex[:8]
