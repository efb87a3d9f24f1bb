"""Taint: nodes have a taint that an administrator added."""

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
    """Taint on a Node, and on the Nodes `also`, by one `kubectl taint`; healing removes that taint alone."""

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
        # JSON has only lists.
        object.__setattr__(self, "also", tuple(self.also))

    @property
    def harms(self) -> Sequence[str]:
        """The nodes, whose pods it may evict."""
        return (self.on, *self.also)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: it is healed through the API."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        taint = {"on": self.on, "key": self.key, "value": self.value, "effect": self.effect}
        return {"fault": self.name, "id": self.id, **taint, "node": self.node, "also": list(self.also)}

    def available(self, machine: Shell) -> str:
        """Require a taint that no node has yet: healing could not tell them apart."""
        tainted = self._tainted(machine)
        return f"{', '.join(tainted)}: tainted already" if tainted else ""

    def inject(self, machine: Shell) -> None:
        """Add the taint."""
        taint = f"{self.key}={self.value}:{self.effect}"
        self._kubectl(machine, "taint", "node", *self.harms, taint, "--overwrite")

    def heal(self, machine: Shell) -> None:
        """Remove the taint, if any."""
        tainted = self._tainted(machine)
        if tainted:
            self._kubectl(machine, "taint", "node", *tainted, f"{self.key}:{self.effect}-")

    def is_injected(self, machine: Machine) -> bool:
        """Return whether every Node has the taint."""
        return len(self._tainted(machine)) == len(self.harms)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether no Node has the taint."""
        return not self._tainted(machine)

    def _tainted(self, machine: Shell) -> list[str]:
        """Return those of the Nodes that have the taint."""
        output = self._kubectl(machine, "get", "node", *self.harms, "--output=json", "--ignore-not-found")
        listed = json.loads(output) if output.strip() else {"items": []}
        return [
            node["metadata"]["name"]
            for node in listed.get("items", [listed])
            if any(self._is_same(taint) for taint in node["spec"].get("taints") or ())
        ]

    def _is_same(self, taint: Json) -> bool:
        return bool(taint["key"] == self.key and taint["effect"] == self.effect)

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        completed = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"taint on {self.on}: {completed.stderr.strip()}")
        return completed.stdout
