"""Ready patched: the API says of a node that it is not ready, whatever its kubelet would say."""

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
_ACTS_LIMIT_S = 8.0
"""A new admission policy acts once the API server has it compiled: about a second."""


@dataclass(frozen=True)
class ReadyPatched:
    """Patches Ready to False on a Node, as an administrator can, and refuses its kubelet the status that
    would put it right; healing patches it back to True, so that the node is ready at once, and lets the
    kubelet report again.
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
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "on": self.on, "node": self.node}

    def available(self, machine: Shell) -> str:
        """A node that is ready, whose kubelet can be refused its status."""
        found = self._found(machine)
        if found is None or not is_ready(found):
            return f"{self.on} is not Ready"
        return self._refusal.available(machine)

    def inject(self, machine: Shell) -> None:
        """Refuse the kubelet's status first: a report of its own would undo the PATCH."""
        self._refusal.inject(machine)
        insist(lambda: self._check_refused(machine), MachineError, limit_s=_ACTS_LIMIT_S)
        if not self._is_said(machine):
            self._patch(machine, "False", _REASON, f"nodeproof {self.id}")

    def heal(self, machine: Shell) -> None:
        """Take back what was said, if it stands, and the refusal, there or not."""
        if self._is_said(machine):
            self._patch(machine, "True", "KubeletReady", "kubelet is posting ready status")
        self._refusal.heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Nobody says otherwise, and its kubelet can't: of a node that falls silent, the control plane says
        that it is Unknown.
        """
        found = self._found(machine)
        return found is not None and not is_ready(found) and self._refusal.is_injected(machine)

    def is_healed(self, machine: Machine) -> bool:
        """The Node does not say so, and its kubelet may report."""
        return not self._is_said(machine) and self._refusal.is_healed(machine)

    @property
    def _refusal(self) -> Refused:
        return Refused(self.id, self.on, "status", self.node)

    def _check_refused(self, machine: Shell) -> None:
        if not self._refusal.is_injected(machine):
            raise MachineError(f"ready patched on {self.on}: its kubelet is not refused its status yet")

    def _is_said(self, machine: Shell) -> bool:
        found = self._found(machine)
        ready = (condition(found, "Ready") if found is not None else None) or {}
        return ready.get("reason") == _REASON

    def _found(self, machine: Shell) -> Json:
        """The Node as it is; None where there is none."""
        said = self._kubectl(machine, "get", "node", self.on, "--output=json", "--ignore-not-found")
        return json.loads(said) if said.strip() else None

    def _patch(self, machine: Shell, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        body = json.dumps({"status": {"conditions": [{**ready, **times}]}})
        self._kubectl(machine, "patch", "node", self.on, "--subresource=status", f"--patch={body}")

    def _kubectl(self, machine: Shell, *arguments: str) -> str:
        done = machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"ready patched on {self.on}: {done.stderr.strip()}")
        return done.stdout
