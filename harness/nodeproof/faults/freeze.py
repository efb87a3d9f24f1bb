"""Freeze: the machine stops with its memory intact; no peer is notified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import Place
from nodeproof.faults.seen import is_silent, is_up
from nodeproof.machines.machine import Machine, Shell

Json = Any


@dataclass(frozen=True)
class Freeze:
    """Pause of all processors of `node`; healing resumes them, with the clock set."""

    name: ClassVar[str] = "freeze"
    places: ClassVar[Sequence[Place]] = ("node", "component")
    ends_components: ClassVar[bool] = False
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
        """Accept every machine: its host can always pause it."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Pause the machine."""
        machine.power("freeze")

    def heal(self, machine: Shell) -> None:
        """Resume the machine."""
        machine.power("thaw")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the host reports it as on and no port answers on either network."""
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether it runs, accepts SSH and reaches the control plane in both directions."""
        return is_up(machine)
