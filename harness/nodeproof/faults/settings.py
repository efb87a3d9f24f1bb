"""Settings: a component of the control plane runs with other flags than the lab's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_booted
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_FILE = re.compile(r"^\./([a-z-]+)/nodeproof-([0-9a-f]{8})\.json$", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """Restart of the component `node` with other flags, at once; healing restarts it without them.

    The process gets no grace period. The probes read its flags from the command line of its process.
    """

    name: ClassVar[str] = "settings"
    places: ClassVar[Sequence[Place]] = ("component",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def harms(self) -> Sequence[str]:
        """Empty: no node is lost."""
        return ()

    @property
    def undo(self) -> Sequence[str]:
        """Empty: only the machine's host can start it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "flags": dict(self.flags)}

    def available(self, machine: Shell) -> str:
        """Require a component with unchanged settings."""
        completed = machine.run(["find", self.node, "-name", "*.json"], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            return f"the lab does not start {self.node}"
        return (
            f"its settings are changed already: {completed.stdout.strip()}"
            if completed.stdout.strip()
            else ""
        )

    def inject(self, machine: Shell) -> None:
        """Write the flags and restart the component with them."""
        script = 'cat >"$0.new" && mv "$0.new" "$0"'
        self._run(machine, ["sh", "-c", script, self._file], stdin=json.dumps(self.flags))
        machine.power("off")
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Delete the flags, if any, and start the component if they existed or it is off."""
        was_set = machine.run(["test", "-e", self._file], deadline_s=COMMAND_LIMIT_S).status == 0
        if was_set:
            machine.power("off")
        self._run(machine, ["rm", "-f", self._file, f"{self._file}.new"])
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its process has every one of the flags."""
        return has_booted(machine) and all(flag in self._command_line(machine) for flag in self._wanted())

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its process has none of the flags."""
        return has_booted(machine) and not any(flag in self._command_line(machine) for flag in self._wanted())

    @property
    def _file(self) -> str:
        return f"./{self.node}/nodeproof-{self.id}.json"

    def _wanted(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self.flags.items()]

    def _command_line(self, machine: Machine) -> list[str]:
        """Return the command line of its process, as the kernel reports it."""
        read = ["sh", "-c", "tr '\\0' '\\n' </proc/\"$0\"/cmdline", machine.boot_id()]
        return self._run(machine, read).splitlines()

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"{self.node}: settings: {completed.stderr.strip()}")
        return completed.stdout


def settings_on(machine: Shell) -> list[Settings]:
    """Return the faults whose files are on a control plane. Raises MachineError."""
    listed = machine.run(["find", ".", "-name", "nodeproof-*.json"], deadline_s=COMMAND_LIMIT_S).stdout
    return [Settings(fault_id, component) for component, fault_id in _FILE.findall(listed)]
