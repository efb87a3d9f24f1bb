"""What the nodes of a lab can do, whatever they are made of."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nodeproof.labs.ground.pki import Authority
from nodeproof.labs.ground.processes import EventLog, Processes
from nodeproof.labs.ground.spec import LabSpec, NodeSpec
from nodeproof.machines.machine import PowerAction, Shell

Json = Any


@dataclass(frozen=True)
class Ground:
    """What the nodes of one lab are made on; `memory` is the lab's own, `events` what happens to them,
    `kubelet` how their kind's kubelets are set.
    """

    lab: LabSpec
    kubelet: Mapping[str, Json]
    memory: Path
    authority: Authority
    processes: Processes
    events: EventLog


_TOLD = ("name", "slot", "zone", "machine_id", "control_address", "data_address")


@dataclass(frozen=True)
class RunningNode:
    """A node and the process id, in the lab's PID namespace, of what it runs in; None while it is off."""

    spec: NodeSpec
    pid: int | None

    def told(self) -> Mapping[str, Json]:
        """What a lab's status says of it: what it was asked to be, and whether it is on."""
        asked = {key: getattr(self.spec, key) for key in _TOLD}
        shape = {"memory_mib": self.spec.shape.memory_mib, "cpus": self.spec.shape.cpus}
        return {**asked, **shape, "on": self.pid is not None, "pid": self.pid}


class Nodes(Protocol):
    """All nodes of one lab: join, power, links, leave."""

    def prepare(self) -> None:
        """Start what the nodes run on. Raises Problem, CommandFailed."""
        ...

    def get(self, name: str) -> RunningNode:
        """Look a node up. Raises Problem when the lab has none of that name."""
        ...

    def all(self) -> list[RunningNode]:
        """Every node, on or off."""
        ...

    def join(self, spec: NodeSpec) -> None:
        """Write the node's seed and power it on. Raises Problem, CommandFailed."""
        ...

    def start_kubelet(self, name: str) -> None:
        """Start the node's kubelet, where nothing in the node does. Raises Problem."""
        ...

    def wait_up(self, name: str) -> None:
        """Wait until the node has booted as far as its sshd. Raises Problem with its last words."""
        ...

    def power(self, name: str, action: PowerAction) -> None:
        """Do something to the node from outside; what is so already is fine. Booting takes its kubelet with
        it. Raises Problem.
        """
        ...

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it."""
        ...

    def shell(self, name: str, power_lock: threading.Lock) -> Shell:
        """The node as the supervisor itself reaches it; power goes with `power_lock` held."""
        ...

    def owner(self, spec: NodeSpec) -> str:
        """Whose machine a hypervisor must say the node is; nobody's where there is no hypervisor."""
        ...

    def facts(self) -> Mapping[str, Json]:
        """What the lab's status says of its nodes' ground, besides what every lab's does."""
        ...
