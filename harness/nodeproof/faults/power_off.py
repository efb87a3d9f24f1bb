"""Power off: the machine stops at once; nothing is flushed, and no peer is notified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import Place
from nodeproof.faults.seen import has_booted, is_silent
from nodeproof.machines.machine import Machine, Shell

Json = Any


@dataclass(frozen=True)
class PowerOff:
    """Power loss of `node`; healing boots it."""

    name: ClassVar[str] = "power-off"
    places: ClassVar[Sequence[Place]] = ("node", "component")
    ends_components: ClassVar[bool] = True
    id: str
    node: str

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: only the machine's host can heal it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Accept every machine: its host can always cut the power."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Cut the power."""
        machine.power("off")

    def heal(self, machine: Shell) -> None:
        """Boot the machine."""
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the host sees no first process and no port answers on either network."""
        return is_silent(machine) and not machine.is_powered()

    def is_healed(self, machine: Machine) -> bool:
        """Return whether it runs, accepts SSH, reaches the control plane both ways and its kubelet serves."""
        return has_booted(machine)
