"""Node deleted: an administrator deletes a Node, and gives it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.unit_down import UnitDown
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell
from nodeproof.model.cluster import is_ready

Json = Any
_GIVEN_AT_REGISTRATION = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""Without it the attach-detach controller leaves a node alone (initialNode in kubelet_node_status.go)."""


@dataclass(frozen=True)
class NodeDeleted:
    """Deletes a Node; healing makes it again with its labels, and restarts its kubelet.

    A running kubelet does not make its Node again by itself (`registrationCompleted` in
    pkg/kubelet/kubelet_node_status.go). It reports to one that somebody else made, but takes its CSINode for
    the former one's: that is collected as soon as it is made, and no CSI driver comes up (`nodeID` in
    pkg/volume/csi/nodeinfomanager/nodeinfomanager.go).
    """

    name: ClassVar[str] = "node-deleted"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    on: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """The node, whose pods go."""
        return (self.on,)

    @property
    def undo(self) -> Sequence[str]:
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"on": self.on, "labels": dict(self.labels)}
        return {"fault": self.name, "id": self.id, **told, "node": self.node}

    def available(self, machine: Shell) -> str:
        """A Node that is there, and whose labels are known: they name its lab."""
        if not self.labels:
            return f"nobody told the labels of {self.on}"
        return "" if self._found(machine) else f"there is no Node {self.on}"

    def inject(self, machine: Shell) -> None:
        """Delete it, there or not."""
        self._kubectl(machine, "delete", "node", self.on, "--ignore-not-found", "--wait=false")

    def heal(self, machine: Shell) -> None:
        """Make it, unless it is there, and restart a kubelet that holds another for its own."""
        if self._found(machine) is None:
            metadata = {"name": self.on, "labels": dict(self.labels), "annotations": _GIVEN_AT_REGISTRATION}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self._kubectl(machine, "apply", "--filename=-", stdin=json.dumps(body))
        lost = machine.beside(self.on)
        if lost.is_powered() and not self._is_known_to_its_kubelet(machine):
            kubelet = UnitDown(self.id, self.on)
            kubelet.inject(lost)
            kubelet.heal(lost)

    def is_injected(self, machine: Machine) -> bool:
        """It is not there."""
        return not self._found(machine)

    def is_healed(self, machine: Machine) -> bool:
        """It is there, with its labels, Ready, and what its kubelet holds for its own."""
        found = self._found(machine)
        if found is None:
            return False
        labels = found["metadata"].get("labels") or {}
        has_labels = self.labels.items() <= labels.items()
        return is_ready(found) and has_labels and self._is_known_to_its_kubelet(machine)

    def _is_known_to_its_kubelet(self, machine: Shell) -> bool:
        """Whether this Node owns the CSINode, which a kubelet makes once at its start."""
        node, of_kubelet = self._found(machine), self._found(machine, "csinode")
        if node is None or of_kubelet is None:
            return False
        owners = of_kubelet["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] == node["metadata"]["uid"] for owner in owners)

    def _found(self, machine: Shell, kind: str = "node") -> Json:
        said = self._kubectl(machine, "get", kind, self.on, "--output=json", "--ignore-not-found")
        return json.loads(said) if said.strip() else None

    def _kubectl(self, machine: Shell, *arguments: str, stdin: str = "") -> str:
        done = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if done.status != 0:
            raise MachineError(f"node {self.on} deleted: {done.stderr.strip()}")
        return done.stdout
