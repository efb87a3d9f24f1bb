"""Unit up: a node runs something more, as a service of its own that nobody but its service manager knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_LIMIT_S = 120.0
"""systemd kills what does not end by itself after 90 s (DefaultTimeoutStopSec=)."""
# Whatever it does, kubelet and runtime come first: each service has a weight of 100.
_START = """
systemctl --quiet is-active "$0" || systemd-run --quiet --collect --expand-environment=no --unit="$0" \\
    --service-type=exec --property=TasksMax=infinity --property=CPUWeight=20 sh -c "$1"
"""
# One that is not there can't be stopped; whether it is gone the kernel says.
_STOP = """
systemctl stop "$0" 2>/dev/null
systemctl reset-failed "$0" 2>/dev/null
true
"""
_FOUND = re.compile(r"^nodeproof-up-([0-9a-f]{8})\.service\b", re.MULTILINE)


@dataclass(frozen=True)
class UnitUp:
    """Runs `script` on `node` by a shell of its own; healing ends it, and all that it has begun.

    It ends with a power cycle. What it leaves in files is not undone: however it ends, it should leave
    nothing.
    """

    name: ClassVar[str] = "unit-up"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    script: str = ""

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """End it, running or not."""
        return ["sh", "-c", _STOP, self._unit]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node, "script": self.script}

    def available(self, machine: Shell) -> str:
        """A service manager to run it."""
        return "" if has_systemd(machine) else f"{self.node} has no systemd"

    def inject(self, machine: Shell) -> None:
        """Let it run; running already is fine."""
        self._run(machine, ["sh", "-c", _START, self._unit, self.script])

    def heal(self, machine: Shell) -> None:
        """End it, running or not. On a node that is off nothing runs."""
        if machine.is_powered():
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """The kernel has processes of it."""
        return bool(self._processes(machine))

    def is_healed(self, machine: Machine) -> bool:
        """The kernel has none."""
        return not self._processes(machine)

    @property
    def _unit(self) -> str:
        return f"nodeproof-up-{self.id}.service"

    def _processes(self, machine: Machine) -> list[str]:
        script = 'cat "/sys/fs/cgroup/system.slice/$0/cgroup.procs" 2>/dev/null || :'
        return machine.run(["sh", "-c", script, self._unit], deadline_s=COMMAND_LIMIT_S).stdout.split()

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        done = machine.run(argv, deadline_s=_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{self.node}: {self._unit}: {done.stderr.strip()}")


def units_up_on(machine: Shell) -> list[UnitUp]:
    """The units of ours that a machine's service manager knows. Raises MachineError."""
    script = "systemctl list-units --all --plain --no-legend 'nodeproof-up-*' 2>/dev/null || :"
    listed = machine.run(["sh", "-c", script], deadline_s=COMMAND_LIMIT_S).stdout
    return [UnitUp(found, machine.name) for found in _FOUND.findall(listed)]
