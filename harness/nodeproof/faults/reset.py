"""Reset: the reset button is pressed and held; nothing is flushed, and no peer is notified."""

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
    """Reset of `node`, held before its boot; healing releases it, and it boots.

    It is held because a machine that boots undoes the fault by itself: a late probe could not distinguish it
    from one that was never reset. To reset and boot at once, end the context at once.
    """

    name: ClassVar[str] = "reset"
    places: ClassVar[Sequence[Place]] = ("node",)
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
        """Accept every machine: its host can always reset it."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Press the reset button; pressing it again has the same effect."""
        machine.power("reset")

    def heal(self, machine: Shell) -> None:
        """Release the button; a machine whose reset was under way may only lack power."""
        machine.power("thaw")
        machine.power("on")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the host reports it as on and no port answers on either network."""
        return machine.is_powered() and is_silent(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether it booted, accepts SSH, is reachable both ways and its kubelet serves."""
        return has_booted(machine)
