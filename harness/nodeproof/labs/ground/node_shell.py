"""A node's shell for the supervisor of its own lab; the dead-man's switch heals through it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeproof import proc
from nodeproof.labs.ground.nodes import Nodes
from nodeproof.labs.ground.processes import enter
from nodeproof.labs.ground.spec import API_ADDRESS
from nodeproof.machines.machine import STATE_FOLDER, CommandResult, MachineError, PowerAction, Shell


class Runner(Protocol):
    """Runs commands in a node."""

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError if it does not end within `deadline_s`."""
        ...


class NodeShell:
    """Shell and power of one node of any kind; power actions hold `power_lock`."""

    state_folder = STATE_FOLDER

    def __init__(self, nodes: Nodes, name: str, runner: Runner, power_lock: threading.Lock) -> None:
        self.name = name
        self.data_address = nodes.get(name).spec.data_address
        self.control_plane_address = API_ADDRESS
        self._nodes = nodes
        self._runner = runner
        self._power_lock = power_lock

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError if it does not end within `deadline_s`."""
        return self._runner.run(argv, deadline_s=deadline_s, stdin=stdin)

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


@dataclass(frozen=True)
class Inside:
    """Runs commands in a process node's namespaces, without its sshd."""

    nodes: Nodes
    name: str

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError if the node is off or on a timeout."""
        pid = self.nodes.get(self.name).pid
        if pid is None:
            raise MachineError(f"{self.name} is off")
        try:
            completed = proc.run([*enter(pid), *argv], timeout_s=deadline_s, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(str(error)) from error
        return CommandResult(completed.status, completed.stdout, completed.stderr)
