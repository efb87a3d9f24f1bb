"""The interface of a lab's nodes, for every kind of lab."""

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
    """The environment of one lab's nodes.

    `memory` is the lab's own file system, `events` records what happens to nodes, and `kubelet` contains the
    settings that their kind of lab gives every kubelet.
    """

    lab: LabSpec
    kubelet: Mapping[str, Json]
    memory: Path
    authority: Authority
    processes: Processes
    events: EventLog


_REPORTED_FIELDS = ("name", "slot", "zone", "machine_id", "control_address", "data_address")


@dataclass(frozen=True)
class RunningNode:
    """A node and its first process's id in the lab's PID namespace; None while it is off."""

    spec: NodeSpec
    pid: int | None

    def told(self) -> Mapping[str, Json]:
        """Return the node's entry in the lab's status: its spec, and whether it is on."""
        spec = {key: getattr(self.spec, key) for key in _REPORTED_FIELDS}
        shape = {"memory_mib": self.spec.shape.memory_mib, "cpus": self.spec.shape.cpus}
        return {**spec, **shape, "on": self.pid is not None, "pid": self.pid}


class Nodes(Protocol):
    """All nodes of one lab."""

    def prepare(self) -> None:
        """Start what the nodes run on. Raises Problem, CommandFailed."""
        ...

    def get(self, name: str) -> RunningNode:
        """Return a node by name. Raises Problem if the lab has no such node."""
        ...

    def all(self) -> list[RunningNode]:
        """Return every node, on or off."""
        ...

    def join(self, spec: NodeSpec) -> None:
        """Write the node's seed and power it on. Raises Problem, CommandFailed."""
        ...

    def start_kubelet(self, name: str) -> None:
        """Start the node's kubelet, unless the node does so itself. Raises Problem."""
        ...

    def wait_up(self, name: str) -> None:
        """Wait until the node's sshd serves. Raises Problem with its last log lines."""
        ...

    def power(self, name: str, action: PowerAction) -> None:
        """Do a power action to the node; if its state is already as wanted, do nothing.

        Power-on also starts the kubelet. Raises Problem.
        """
        ...

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it."""
        ...

    def shell(self, name: str, power_lock: threading.Lock) -> Shell:
        """Return the node's shell for the supervisor; power actions hold `power_lock`."""
        ...

    def owner(self, spec: NodeSpec) -> str:
        """Return the owner that a hypervisor must report for the node; empty without a hypervisor."""
        ...

    def facts(self) -> Mapping[str, Json]:
        """Return the entries of the lab's status that only this kind of nodes has."""
        ...
