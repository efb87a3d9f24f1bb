"""Reset: the reset button is pressed and held; nothing is flushed, no peer is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import Place
from nodeproof.faults.seen import has_booted, is_silent
from nodeproof.machines.machine import Machine, Shell

Json = Any


@dataclass(frozen=True)
class Reset:
    """Throws `node` back to before its boot and holds it there; healing lets go, and it boots.

    Held, because a machine that boots by itself undoes the harm by itself: a probe that comes late could not
    tell it from one that was never reset. To reset and let go at once, end the context at once.
    """

    name: ClassVar[str] = "reset"
    places: ClassVar[Sequence[Place]] = ("node",)
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
        """Every machine's host can reset it."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Press the button; pressed again it does the same."""
        machine.power("reset")

    def heal(self, machine: Shell) -> None:
        """Let go; one that was on its way only has no power yet."""
        machine.power("thaw")
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """The host sees it on, and no port answers on either network."""
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        """It has booted, lets us in, both ways of the data network are open, and its kubelet serves."""
        return has_booted(machine)
