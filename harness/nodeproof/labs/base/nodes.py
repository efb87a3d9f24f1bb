"""The interface of a lab's nodes, for every kind of lab, and their shells for the lab's own supervisor.

The dead-man's switch heals through these shells.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nodeproof.labs.base.pki import Authority
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.base.spec import API_ADDRESS, LabSpec, NodeSpec
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.machines.machine import STATE_FOLDER, CommandResult, MachineError, PowerAction, Shell

Json = Any


@dataclass(frozen=True)
class NodeEnvironment:
    """The environment of one lab's nodes.

    `memory` is the lab's own file system, `events` records what happens to nodes, and `kubelet` contains the
    settings that their kind of lab gives every kubelet. `power_lock` returns the lock that power actions on a
    node hold.
    """

    lab: LabSpec
    kubelet: Mapping[str, Json]
    memory: Path
    authority: Authority
    processes: Processes
    events: EventLog
    power_lock: Callable[[str], threading.Lock]


@dataclass(frozen=True)
class RunningNode:
    """A node and its first process's id in the lab's PID namespace; None while it is off."""

    spec: NodeSpec
    pid: int | None

    def info(self) -> NodeInfo:
        """Return the node's entry in the lab's status."""
        spec = self.spec
        return NodeInfo(
            spec.name,
            spec.slot,
            spec.zone,
            self.pid is not None,
            spec.control_address,
            spec.data_address,
            spec.machine_id,
            spec.shape.memory_mib,
            spec.shape.cpus,
            self.pid,
        )


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

    def runs_on_kvm(self) -> bool | None:
        """Return whether the nodes run on KVM; None if they are not virtual machines."""
        ...


class NodeShell:
    """Shell and power of one node; its kind implements `run`. Power actions hold `power_lock`."""

    state_folder = STATE_FOLDER

    def __init__(self, nodes: Nodes, name: str, power_lock: threading.Lock) -> None:
        self.name = name
        self.data_address = nodes.get(name).spec.data_address
        self.control_plane_address = API_ADDRESS
        self._nodes = nodes
        self._power_lock = power_lock

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError if it does not end within `timeout_s`."""
        raise NotImplementedError

    def is_powered(self) -> bool:
        """Return whether the node's first process runs."""
        return self._nodes.get(self.name).pid is not None

    def power(self, action: PowerAction) -> None:
        """Do a power action to the node; after power-on or a thaw, wait until it is up."""
        with self._power_lock:
            self._nodes.power(self.name, action)
        if action == "on" or (action == "thaw" and self.is_powered()):
            self._nodes.wait_up(self.name)

    def beside(self, name: str) -> Shell:
        """Raise MachineError: a node's shell reaches no other machine."""
        raise MachineError(f"{self.name} knows no machine {name}")
