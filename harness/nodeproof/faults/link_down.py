"""Link-down: the cable of the node's data network is pulled; `control` is left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import Place
from nodeproof.machines.machine import Machine, Shell

Json = Any


@dataclass(frozen=True)
class LinkDown:
    """Takes the carrier of `data` from `node`, through its host; healing gives it back.

    As with a cable, a power cycle of the node changes nothing.
    """

    name: ClassVar[str] = "link-down"
    places: ClassVar[Sequence[Place]] = ("node",)
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
        """Every machine's host has the other end of its cable."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Pull the cable."""
        machine.power("link-down")

    def heal(self, machine: Shell) -> None:
        """Plug it in."""
        machine.power("link-up")

    def is_injected(self, machine: Machine) -> bool:
        """Nothing passes on `data` in either direction, though the machine lets us in on `control`."""
        if not machine.answers_on_control():
            return False
        return not machine.reaches_control_plane() and not machine.reached_from_control_plane()

    def is_healed(self, machine: Machine) -> bool:
        """Both ways are open again."""
        return machine.reaches_control_plane() and machine.reached_from_control_plane()
