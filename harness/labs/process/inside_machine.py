"""A node as its own lab's supervisor sees it: the dead-man's switch heals through this, not over SSH."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from harness import proc
from harness.labs.process.nodes import Nodes
from harness.labs.process.processes import enter
from harness.labs.process.spec import API_ADDRESS, NodeSpec
from harness.machines.machine import CommandResult, MachineError


class InsideMachine:
    """Shell and power of one node, without its sshd."""

    def __init__(self, nodes: Nodes, spec: NodeSpec, power_lock: threading.Lock) -> None:
        self.name = spec.name
        self.data_address = spec.data_address
        self.control_plane_address = API_ADDRESS
        self._nodes = nodes
        self._power_lock = power_lock

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError when the node is off or the deadline passes."""
        pid = self._nodes.get(self.name).pid
        if pid is None:
            raise MachineError(f"{self.name} is off")
        try:
            done = proc.run([*enter(pid), *argv], timeout_s=deadline_s, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(str(error)) from error
        return CommandResult(done.status, done.stdout, done.stderr)

    def power_off(self) -> None:
        """Power the node off. Off already is fine."""
        with self._power_lock:
            self._nodes.power_off(self.name)

    def power_on(self) -> None:
        """Power the node on. On already is fine."""
        with self._power_lock:
            self._nodes.power_on(self.name)
