"""Freeze: the machine stands still with all that is in its memory; nobody is told."""

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
    """Stops the processors of `node`; healing lets them go on where they were, with the clock set."""

    name: ClassVar[str] = "freeze"
    places: ClassVar[Sequence[Place]] = ("node", "component")
    ends_components: ClassVar[bool] = False
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
        """Every machine's host can stop it."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Stop it."""
        machine.power("freeze")

    def heal(self, machine: Shell) -> None:
        """Let it go on."""
        machine.power("thaw")

    def is_injected(self, machine: Machine) -> bool:
        """The host sees it on, and no port answers on either network."""
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        """It runs, lets us in, and both ways of the data network are open."""
        return is_up(machine)
