"""Ready patched: the API reports a node as not ready, whatever its kubelet would report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.refused import Refused
from nodeproof.machines.machine import CONTROL_PLANE, Machine, MachineError, Shell
from nodeproof.model.cluster import condition, is_ready
from nodeproof.waiting import insist

Json = Any
_REASON = "NodeproofPatched"
_ACTS_TIMEOUT_S = 8.0
"""A new admission policy is active once the API server has compiled it: after about a second."""


@dataclass(frozen=True)
class ReadyPatched:
    """Patch of a Node's Ready to False, as an administrator can do; healing patches it back to True.

    The kubelet's status updates, which would correct it, are denied until the fault is healed. The node is
    Ready at once when it is patched back.
    """

    name: ClassVar[str] = "ready-patched"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    on: str
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """The node, which counts as not ready."""
        return (self.on,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: it is healed through the API."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "on": self.on, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Require a node that is Ready and whose kubelet can be denied status updates."""
        node = self._get(machine)
        if node is None or not is_ready(node):
            return f"{self.on} is not Ready"
        return self._denial.available(machine)

    def inject(self, machine: Shell) -> None:
        """Deny the kubelet's status updates first: one of them would undo the PATCH."""
        self._denial.inject(machine)
        insist(lambda: self._check_denied(machine), MachineError, limit_s=_ACTS_TIMEOUT_S)
        if not self._is_patched(machine):
            self._patch(machine, "False", _REASON, f"nodeproof {self.id}")

    def heal(self, machine: Shell) -> None:
        """Patch Ready back if it still has our reason, and remove the policy, if any."""
        if self._is_patched(machine):
            self._patch(machine, "True", "KubeletReady", "kubelet is posting ready status")
        self._denial.heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the node is not Ready and its kubelet is denied status updates.

        The control plane sets Ready of a silent node to Unknown.
        """
        node = self._get(machine)
        return node is not None and not is_ready(node) and self._denial.is_injected(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether Ready does not have our reason and the kubelet may update the status."""
        return not self._is_patched(machine) and self._denial.is_healed(machine)

    @property
    def _denial(self) -> Refused:
        return Refused(self.id, self.on, "status", self.node)

    def _check_denied(self, machine: Shell) -> None:
        if not self._denial.is_injected(machine):
            raise MachineError(f"ready patched on {self.on}: its kubelet may still update the status")

    def _is_patched(self, machine: Shell) -> bool:
        node = self._get(machine)
        ready = (condition(node, "Ready") if node is not None else None) or {}
        return ready.get("reason") == _REASON

    def _get(self, machine: Shell) -> Json:
        """Return the Node, or None if it does not exist."""
        output = self._kubectl(machine, "get", "node", self.on, "--output=json", "--ignore-not-found")
        return json.loads(output) if output.strip() else None

    def _patch(self, machine: Shell, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        body = json.dumps({"status": {"conditions": [{**ready, **times}]}})
        self._kubectl(machine, "patch", "node", self.on, "--subresource=status", f"--patch={body}")

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        completed = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"ready patched on {self.on}: {completed.stderr.strip()}")
        return completed.stdout
