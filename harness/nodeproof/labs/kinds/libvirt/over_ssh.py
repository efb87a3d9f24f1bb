"""Commands in a guest for its lab's supervisor: through the ordinary ssh client, on `control`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.machines.machine import CommandResult, MachineError

_SSH_FAILED = 255


@dataclass(frozen=True)
class OverSsh:
    """Runs commands at an address; the file `known_hosts` contains the only host key that is accepted."""

    address: str
    client_key: Path
    known_hosts: Path

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the guest. Raises MachineError if it does not end within `deadline_s`."""
        try:
            command = [*self._ssh(deadline_s), shlex.join(argv)]
            completed = proc.run(command, timeout_s=deadline_s, stdin=stdin, check=False)
        except proc.CommandFailed as error:
            raise MachineError(str(error)) from error
        if completed.status == _SSH_FAILED:
            raise MachineError(f"{self.address}: {completed.stderr.strip()}")
        return CommandResult(completed.status, completed.stdout, completed.stderr)

    def _ssh(self, deadline_s: float) -> list[str]:
        options = {
            "UserKnownHostsFile": str(self.known_hosts),
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": str(max(1, int(deadline_s))),
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", "-F", os.devnull, "-i", str(self.client_key), *flags, f"root@{self.address}", "--"]
