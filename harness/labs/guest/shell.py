"""A guest as its own lab's supervisor reaches it: by the ordinary ssh client, on `control`."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import proc
from harness.labs.process.nodes import Nodes
from harness.labs.process.spec import API_ADDRESS, NodeSpec
from harness.machines.machine import CommandResult, MachineError

_NOT_REACHED = 255


@dataclass(frozen=True)
class Keys:
    """The client's key, and a file with the only host key that is accepted."""

    client: Path
    known_hosts: Path


class GuestShell:
    """Shell and power of one virtual machine."""

    def __init__(self, nodes: Nodes, spec: NodeSpec, keys: Keys, power_lock: threading.Lock) -> None:
        self.name = spec.name
        self.data_address = spec.data_address
        self.control_plane_address = API_ADDRESS
        self._spec = spec
        self._nodes = nodes
        self._keys = keys
        self._power_lock = power_lock

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the guest. Raises MachineError when it does not end within `deadline_s`."""
        try:
            command = [*self._ssh(deadline_s), shlex.join(argv)]
            done = proc.run(command, timeout_s=deadline_s, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(str(error)) from error
        if done.status == _NOT_REACHED:
            raise MachineError(f"{self.name}: {done.stderr.strip()}")
        return CommandResult(done.status, done.stdout, done.stderr)

    def power_off(self) -> None:
        """Power the guest off. Off already is fine."""
        with self._power_lock:
            self._nodes.power_off(self.name)

    def power_on(self) -> None:
        """Power the guest on and wait until it is up. On already is fine."""
        with self._power_lock:
            self._nodes.power_on(self.name)
        self._nodes.wait_up(self.name)

    def _ssh(self, deadline_s: float) -> list[str]:
        options = {
            "UserKnownHostsFile": str(self._keys.known_hosts),
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": str(max(1, int(deadline_s))),
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        to = f"root@{self._spec.control_address}"
        return ["ssh", "-F", os.devnull, "-i", str(self._keys.client), *flags, to, "--"]
