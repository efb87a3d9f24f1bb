"""Unit down: a service of a node is stopped in an orderly way and stays stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.seen import has_booted, has_systemd
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
KUBELET = "kubelet.service"
_TIMEOUT_S = 120.0
"""systemd kills a unit that does not end by itself after 90 s (DefaultTimeoutStopSec=)."""
_START = """
systemctl reset-failed "$0" 2>/dev/null
systemctl start "$0"
"""


@dataclass(frozen=True)
class UnitDown:
    """Stop of `unit` on `node`; healing starts it. A process node has one unit, its kubelet.

    It ends with a power cycle, which starts every unit.
    """

    name: ClassVar[str] = "unit-down"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = True
    id: str
    node: str
    unit: str = KUBELET

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that starts the unit, running or not."""
        return ["sh", "-c", _START, self.unit]

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node, "unit": self.unit}

    def available(self, machine: Shell) -> str:
        """Require a unit that is running."""
        if not has_systemd(machine):
            return "" if self.unit == KUBELET else f"{self.node} has no systemd, and so no {self.unit}"
        state = self._state(machine)
        return "" if state == "active" else f"{self.unit} of {self.node} is {state}"

    def inject(self, machine: Shell) -> None:
        """Stop the unit, running or not."""
        if has_systemd(machine):
            self._run(machine, ["systemctl", "stop", self.unit])
        else:
            machine.power("kubelet-off")

    def heal(self, machine: Shell) -> None:
        """Start the unit, running or not; skip a node that is off: it has no stopped unit."""
        if not machine.is_powered():
            return
        if has_systemd(machine):
            self._run(machine, self.undo)
        else:
            machine.power("kubelet-on")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the unit is stopped; for the kubelet, whether its port is closed."""
        if self.unit == KUBELET:
            return machine.answers_on_control() and not machine.serves_kubelet()
        return self._state(machine) in ("inactive", "failed")

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the unit runs; for the kubelet, whether it serves."""
        if self.unit == KUBELET:
            return has_booted(machine)
        return self._state(machine) == "active"

    def _state(self, machine: Shell) -> str:
        completed = machine.run(["systemctl", "is-active", self.unit], deadline_s=COMMAND_LIMIT_S)
        return completed.stdout.strip()

    def _run(self, machine: Shell, argv: Sequence[str]) -> None:
        completed = machine.run(argv, deadline_s=_TIMEOUT_S)
        if completed.status != 0:
            raise MachineError(f"{self.node}: {self.unit}: {completed.stderr.strip()}")
