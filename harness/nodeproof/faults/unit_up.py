"""Unit up: a node runs an extra service that only its service manager knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_TIMEOUT_S = 120.0
"""systemd kills a unit that does not end by itself after 90 s (DefaultTimeoutStopSec=)."""
# Kubelet and runtime have priority: each service has a weight of 100.
_START = """
systemctl --quiet is-active "$0" || systemd-run --quiet --collect --expand-environment=no --unit="$0" \\
    --service-type=exec --property=TasksMax=infinity --property=CPUWeight=20 sh -c "$1"
"""
# Stopping a missing unit fails; the probes ask the kernel whether it is gone.
_STOP = """
systemctl stop "$0" 2>/dev/null
systemctl reset-failed "$0" 2>/dev/null
true
"""
_UNIT_NAME = re.compile(r"^nodeproof-up-([0-9a-f]{8})\.service\b", re.MULTILINE)


@dataclass(frozen=True)
class UnitUp:
    """Service on `node` that runs `script` in a shell; healing stops it with all processes that it started.

    It ends with a power cycle. Files that the script leaves are not removed: it should leave none, however it
    ends.
    """

    name: ClassVar[str] = "unit-up"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    script: str = ""

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that stops the unit, running or not."""
        return ["sh", "-c", _STOP, self._unit]

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "script": self.script}

    def available(self, machine: Shell) -> str:
        """Require a service manager that can run it."""
        return "" if has_systemd(machine) else f"{self.node} has no systemd"

    def inject(self, machine: Shell) -> None:
        """Start the unit, unless it runs."""
        self._run(machine, ["sh", "-c", _START, self._unit, self.script])

    def heal(self, machine: Shell) -> None:
        """Stop the unit, running or not; skip a node that is off."""
        if machine.is_powered():
            self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kernel has processes of the unit."""
        return bool(self._processes(machine))

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the kernel has no processes of the unit."""
        return not self._processes(machine)

    @property
    def _unit(self) -> str:
        return f"nodeproof-up-{self.id}.service"

    def _processes(self, machine: Machine) -> list[str]:
        script = 'cat "/sys/fs/cgroup/system.slice/$0/cgroup.procs" 2>/dev/null || :'
        return machine.run(["sh", "-c", script, self._unit], deadline_s=COMMAND_LIMIT_S).stdout.split()

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=_TIMEOUT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: {self._unit}: {completed.stderr.strip()}")


def units_up_on(machine: Shell) -> list[UnitUp]:
    """Return the faults whose units a machine's service manager knows. Raises MachineError."""
    script = "systemctl list-units --all --plain --no-legend 'nodeproof-up-*' 2>/dev/null || :"
    listed = machine.run(["sh", "-c", script], deadline_s=COMMAND_LIMIT_S).stdout
    return [UnitUp(fault_id, machine.name) for fault_id in _UNIT_NAME.findall(listed)]
