"""Taint: nodes carry a taint that an administrator put there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell

Json = Any


@dataclass(frozen=True)
class Taint:
    """Taints a Node, and the Nodes `also`, as one `kubectl taint` does; healing removes that taint alone."""

    name: ClassVar[str] = "taint"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    on: str
    key: str
    value: str
    effect: str
    node: str = CONTROL_PLANE
    also: Sequence[str] = ()

    def __post_init__(self) -> None:
        # JSON has lists alone.
        object.__setattr__(self, "also", tuple(self.also))

    @property
    def harms(self) -> Sequence[str]:
        """The nodes, whose pods it may evict."""
        return (self.on, *self.also)

    @property
    def undo(self) -> Sequence[str]:
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"on": self.on, "key": self.key, "value": self.value, "effect": self.effect}
        return {"fault": self.name, "id": self.id, **told, "node": self.node, "also": list(self.also)}

    def available(self, machine: Shell) -> str:
        """One that no node carries yet: whose it is could not be told afterwards."""
        carry = self._carrying(machine)
        return f"{', '.join(carry)}: there already" if carry else ""

    def inject(self, machine: Shell) -> None:
        """Taint it."""
        taint = f"{self.key}={self.value}:{self.effect}"
        self._kubectl(machine, "taint", "node", *self.harms, taint, "--overwrite")

    def heal(self, machine: Shell) -> None:
        """Remove the taint, there or not."""
        carry = self._carrying(machine)
        if carry:
            self._kubectl(machine, "taint", "node", *carry, f"{self.key}:{self.effect}-")

    def is_injected(self, machine: Machine) -> bool:
        """Every Node carries it."""
        return len(self._carrying(machine)) == len(self.harms)

    def is_healed(self, machine: Machine) -> bool:
        """No Node does."""
        return not self._carrying(machine)

    def _carrying(self, machine: Shell) -> list[str]:
        """Those of the Nodes that carry it."""
        said = self._kubectl(machine, "get", "node", *self.harms, "--output=json", "--ignore-not-found")
        found = json.loads(said) if said.strip() else {"items": []}
        return [
            each["metadata"]["name"]
            for each in found.get("items", [found])
            if any(self._is_it(taint) for taint in each["spec"].get("taints") or ())
        ]

    def _is_it(self, taint: Json) -> bool:
        return bool(taint["key"] == self.key and taint["effect"] == self.effect)

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        done = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"taint on {self.on}: {done.stderr.strip()}")
        return done.stdout
