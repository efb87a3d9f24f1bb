"""Labelled: nodes have another value of a label, or lack the label."""

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
    """Other value of a label on Nodes, set as `kubectl label` does; healing restores what each had `before`.

    None stands for a missing label.
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
        """The labelled nodes, which controllers may treat differently."""
        return tuple(self.before)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: it is healed through the API."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        label = {"key": self.key, "value": self.value, "before": dict(self.before)}
        return {"fault": self.name, "id": self.id, **label, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Require that the nodes have the values in `before`."""
        values = self._values(machine)
        mismatched = [name for name, before in self.before.items() if values.get(name, ()) != before]
        return (
            f"label {self.key} on {', '.join(mismatched)} does not have the expected value"
            if mismatched
            else ""
        )

    def inject(self, machine: Shell) -> None:
        """Set the label, or remove it."""
        self._set(machine, self.value, list(self.before))

    def heal(self, machine: Shell) -> None:
        """Restore the label of each node that exists."""
        existing = self._values(machine)
        for value in dict.fromkeys(self.before.values()):
            self._set(machine, value, [name for name in existing if self.before[name] == value])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether all nodes exist and have the value, or lack the label."""
        values = self._values(machine)
        return values.keys() == self.before.keys() and set(values.values()) == {self.value}

    def is_healed(self, machine: Machine) -> bool:
        """Return whether all nodes that exist have the value in `before`."""
        return all(self.before[name] == value for name, value in self._values(machine).items())

    def _values(self, machine: Shell) -> Mapping[str, str | None]:
        output = self._kubectl(machine, "get", "nodes", *self.before, "--output=json", "--ignore-not-found")
        listed = json.loads(output) if output.strip() else {"items": []}
        nodes = listed.get("items", [listed])
        return {node["metadata"]["name"]: node["metadata"].get("labels", {}).get(self.key) for node in nodes}

    def _set(self, machine: Shell, value: str | None, nodes: Sequence[str]) -> None:
        label = f"{self.key}-" if value is None else f"{self.key}={value}"
        if nodes:
            self._kubectl(machine, "label", "nodes", *nodes, label, "--overwrite")

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        completed = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"labels of {', '.join(self.before)}: {completed.stderr.strip()}")
        return completed.stdout
