"""Power-off: the machine stops in mid-instruction; nothing is flushed, no peer is told."""

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
    """Cuts the power of `node`; healing boots it."""

    name: ClassVar[str] = "power-off"
    places: ClassVar[Sequence[Place]] = ("node", "component")
    ends_components: ClassVar[bool] = True
    id: str
    node: str

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Only the machine's host can."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Every machine that has power can lose it."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Cut the power."""
        machine.power("off")

    def heal(self, machine: Shell) -> None:
        """Boot."""
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """The host sees no first process, and no port answers on either network."""
        return is_silent(machine) and not machine.is_powered()

    def is_healed(self, machine: Machine) -> bool:
        """It runs, lets us in, both ways of the data network are open, and its kubelet serves."""
        return has_booted(machine)
