"""Link down: the cable of a node's data network is unplugged; `control` is not affected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import Place
from nodeproof.machines.machine import Machine, Shell

Json = Any


@dataclass(frozen=True)
class LinkDown:
    """Loss of the carrier of `node`'s `data` network, caused by its host; healing restores it.

    As with a real cable, a power cycle of the node does not change it.
    """

    name: ClassVar[str] = "link-down"
    places: ClassVar[Sequence[Place]] = ("node",)
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
        """Accept every machine: its host has the other end of its cable."""
        del machine
        return ""

    def inject(self, machine: Shell) -> None:
        """Unplug the cable."""
        machine.power("link-down")

    def heal(self, machine: Shell) -> None:
        """Plug the cable in."""
        machine.power("link-up")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether `data` is cut in both directions while the machine accepts SSH on `control`."""
        if not machine.answers_on_control():
            return False
        return not machine.reaches_control_plane() and not machine.reached_from_control_plane()

    def is_healed(self, machine: Machine) -> bool:
        """Return whether both directions are open."""
        return machine.reaches_control_plane() and machine.reached_from_control_plane()
