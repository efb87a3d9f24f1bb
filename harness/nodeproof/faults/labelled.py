"""Labelled: nodes carry another value of a label, or lack it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell

Json = Any


@dataclass(frozen=True)
class Labelled:
    """Gives Nodes a value of a label, or takes it from them, as `kubectl label` does; healing gives each node
    back what it had `before`. None is a label that is not there.
    """

    name: ClassVar[str] = "labelled"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    key: str
    value: str | None
    before: Mapping[str, str | None]
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """The nodes, for whom controllers may do something else then."""
        return tuple(self.before)

    @property
    def undo(self) -> Sequence[str]:
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"key": self.key, "value": self.value, "before": dict(self.before)}
        return {"fault": self.name, "id": self.id, **told, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Nodes that have what is to be given back to them."""
        found = self._found(machine)
        other = [name for name, value in self.before.items() if found.get(name, ()) != value]
        return f"{self.key} is not as told on {', '.join(other)}" if other else ""

    def inject(self, machine: Shell) -> None:
        """Give it, or take it."""
        self._give(machine, self.value, list(self.before))

    def heal(self, machine: Shell) -> None:
        """Give each node that is there back what it had."""
        there = self._found(machine)
        for value in dict.fromkeys(self.before.values()):
            self._give(machine, value, [name for name in there if self.before[name] == value])

    def is_injected(self, machine: Machine) -> bool:
        """All of them have it, or lack it."""
        found = self._found(machine)
        return found.keys() == self.before.keys() and set(found.values()) == {self.value}

    def is_healed(self, machine: Machine) -> bool:
        """Those that are there have what they had."""
        return all(self.before[name] == value for name, value in self._found(machine).items())

    def _found(self, machine: Shell) -> Mapping[str, str | None]:
        said = self._kubectl(machine, "get", "nodes", *self.before, "--output=json", "--ignore-not-found")
        told = json.loads(said) if said.strip() else {"items": []}
        nodes = told.get("items", [told])
        return {each["metadata"]["name"]: each["metadata"].get("labels", {}).get(self.key) for each in nodes}

    def _give(self, machine: Shell, value: str | None, nodes: Sequence[str]) -> None:
        label = f"{self.key}-" if value is None else f"{self.key}={value}"
        if nodes:
            self._kubectl(machine, "label", "nodes", *nodes, label, "--overwrite")

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        done = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"labels of {', '.join(self.before)}: {done.stderr.strip()}")
        return done.stdout
