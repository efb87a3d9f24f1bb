"""Taint: a node carries a taint that an administrator put there."""

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
    """Taints a Node, as `kubectl taint` does; healing removes that taint alone."""

    name: ClassVar[str] = "taint"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    on: str
    key: str
    value: str
    effect: str
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """The node, whose pods it may evict."""
        return (self.on,)

    @property
    def undo(self) -> Sequence[str]:
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"on": self.on, "key": self.key, "value": self.value, "effect": self.effect}
        return {"fault": self.name, "id": self.id, **told, "node": self.node}

    def available(self, machine: Shell) -> str:
        """One that the node does not carry yet: whose it is could not be told afterwards."""
        return f"{self.on} carries it already" if self._is_there(machine) else ""

    def inject(self, machine: Shell) -> None:
        """Taint it."""
        taint = f"{self.key}={self.value}:{self.effect}"
        self._kubectl(machine, "taint", "node", self.on, taint, "--overwrite")

    def heal(self, machine: Shell) -> None:
        """Remove the taint, there or not."""
        if self._is_there(machine):
            self._kubectl(machine, "taint", "node", self.on, f"{self.key}:{self.effect}-")

    def is_injected(self, machine: Machine) -> bool:
        """The Node carries it."""
        return self._is_there(machine)

    def is_healed(self, machine: Machine) -> bool:
        """The Node does not."""
        return not self._is_there(machine)

    def _is_there(self, machine: Shell) -> bool:
        said = self._kubectl(machine, "get", "node", self.on, "--output=json", "--ignore-not-found")
        taints = json.loads(said)["spec"].get("taints") or () if said.strip() else ()
        return any(each["key"] == self.key and each["effect"] == self.effect for each in taints)

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        done = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"taint on {self.on}: {done.stderr.strip()}")
        return done.stdout
