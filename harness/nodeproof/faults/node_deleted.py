"""Node deleted: an administrator deletes a Node and creates it again."""

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
_REGISTRATION_ANNOTATIONS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""Without it the attach-detach controller ignores a node (initialNode in kubelet_node_status.go)."""


@dataclass(frozen=True)
class NodeDeleted:
    """Deletion of a Node; healing creates it again with its labels and restarts its kubelet.

    A running kubelet does not create its Node again by itself (`registrationCompleted` in
    pkg/kubelet/kubelet_node_status.go). It reports to a Node that was created for it, but uses the UID of the
    former one for its CSINode: that is garbage-collected as soon as it is created, and no CSI driver comes up
    (`nodeID` in pkg/volume/csi/nodeinfomanager/nodeinfomanager.go).
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
        """The deleted node, which loses its pods."""
        return (self.on,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: it is healed through the API."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        target = {"on": self.on, "labels": dict(self.labels)}
        return {"fault": self.name, "id": self.id, **target, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Require an existing Node and its labels, which name its lab."""
        if not self.labels:
            return f"labels of {self.on} are missing"
        return "" if self._get(machine) else f"Node {self.on} does not exist"

    def inject(self, machine: Shell) -> None:
        """Delete the Node, if it exists."""
        self._kubectl(machine, "delete", "node", self.on, "--ignore-not-found", "--wait=false")

    def heal(self, machine: Shell) -> None:
        """Create the Node if it is missing, and restart its kubelet if it uses the former one."""
        if self._get(machine) is None:
            metadata = {
                "name": self.on,
                "labels": dict(self.labels),
                "annotations": _REGISTRATION_ANNOTATIONS,
            }
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self._kubectl(machine, "apply", "--filename=-", stdin=json.dumps(body))
        target = machine.beside(self.on)
        if target.is_powered() and not self._is_used_by_kubelet(machine):
            kubelet = UnitDown(self.id, self.on)
            kubelet.inject(target)
            kubelet.heal(target)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the Node is missing."""
        return not self._get(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the Node exists with its labels, is Ready, and is the one that its kubelet uses."""
        node = self._get(machine)
        if node is None:
            return False
        labels = node["metadata"].get("labels") or {}
        has_labels = self.labels.items() <= labels.items()
        return is_ready(node) and has_labels and self._is_used_by_kubelet(machine)

    def _is_used_by_kubelet(self, machine: Shell) -> bool:
        """Return whether this Node owns the CSINode, which a kubelet creates once when it starts."""
        node, csi_node = self._get(machine), self._get(machine, "csinode")
        if node is None or csi_node is None:
            return False
        owners = csi_node["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] == node["metadata"]["uid"] for owner in owners)

    def _get(self, machine: Shell, kind: str = "node") -> Json:
        output = self._kubectl(machine, "get", kind, self.on, "--output=json", "--ignore-not-found")
        return json.loads(output) if output.strip() else None

    def _kubectl(self, machine: Shell, *arguments: str, stdin: str = "") -> str:
        completed = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"node {self.on} deleted: {completed.stderr.strip()}")
        return completed.stdout
