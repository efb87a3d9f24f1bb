"""Refused: the API server denies one kind of a node's heartbeats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, Machine, MachineError, Shell
from nodeproof.model.cluster import LEASE_NAMESPACE

Json = Any
What = Literal["status", "lease"]
_POLICY = re.compile(r"^nodeproof-(status|lease)-([0-9a-f]{8})$", re.MULTILINE)
_RULES: Mapping[What, Mapping[str, Json]] = {
    "status": {"apiGroups": [""], "resources": ["nodes/status"]},
    "lease": {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
}
_APPLY = ("apply", "--server-side", "--force-conflicts", "--validate=false", "--filename=-")
_KINDS = ("validatingadmissionpolicybindings", "validatingadmissionpolicies")


@dataclass(frozen=True)
class Refused:
    """Policy that denies a kubelet the updates of its Node's status, or of its Lease; healing deletes it.

    It is a ValidatingAdmissionPolicy. The probe sends such an update as the node, as a dry run.
    """

    name: ClassVar[str] = "refused"
    places: ClassVar[Sequence[Place]] = ("control-plane",)
    ends_components: ClassVar[bool] = False
    id: str
    on: str
    what: What
    node: str = CONTROL_PLANE

    @property
    def harms(self) -> Sequence[str]:
        """The node, which may count as silent."""
        return (self.on,)

    @property
    def undo(self) -> Sequence[str]:
        """Empty: it is healed through the API."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        return {"fault": self.name, "id": self.id, "on": self.on, "what": self.what, "node": self.node}

    def available(self, machine: Shell) -> str:
        """Require an update that is allowed now, and an API server with admission policies (since 1.30)."""
        policies = self._kubectl(machine, "get", _KINDS[1], "--output=name")
        if policies.status != 0:
            return f"no admission policies: {policies.stderr.strip()}"
        update = self._update(machine)
        return "" if update.status == 0 else f"its update is denied already: {update.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Create the policy and its binding, or leave them as they are."""
        documents = "\n".join(json.dumps(body) for body in (self._policy_body(), self._binding_body()))
        self._check(self._kubectl(machine, "apply", "--filename=-", stdin=documents))

    def heal(self, machine: Shell) -> None:
        """Delete both, if they exist."""
        for kind in _KINDS:
            self._check(self._kubectl(machine, "delete", kind, self._policy, "--ignore-not-found"))

    def is_injected(self, machine: Shell) -> bool:
        """Return whether this policy denies an update as the node."""
        update = self._update(machine)
        return update.status != 0 and self._policy in update.stderr

    def is_healed(self, machine: Machine) -> bool:
        """Return whether an update as the node is allowed, or its object no longer exists."""
        update = self._update(machine)
        return update.status == 0 or "(NotFound)" in update.stderr

    @property
    def _policy(self) -> str:
        return f"nodeproof-{self.what}-{self.id}"

    def _policy_body(self) -> Json:
        rule = {**_RULES[self.what], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        message = f"nodeproof refuses {self.what} of {self.on}"
        user = json.dumps(f"system:node:{self.on}")
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self._policy},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": f"request.userInfo.username != {user}", "message": message}],
            },
        }

    def _binding_body(self) -> Json:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": self._policy},
            "spec": {"policyName": self._policy, "validationActions": ["Deny"]},
        }

    def _update(self, machine: Shell) -> CommandResult:
        """Send an update as the node, as a dry run; read nothing first, as a node may not."""
        options = [f"--as=system:node:{self.on}", "--as-group=system:nodes", "--dry-run=server"]
        meta: Json = {"name": self.on}
        if self.what == "lease":
            meta |= {"namespace": LEASE_NAMESPACE, "annotations": {"nodeproof.dev/probe": self.id}}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        else:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"phase": "Running"}}
            options.append("--subresource=status")
        return self._kubectl(machine, *_APPLY, *options, stdin=json.dumps(body))

    def _kubectl(self, machine: Shell, *arguments: str, stdin: str = "") -> CommandResult:
        return machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)

    def _check(self, completed: CommandResult) -> None:
        if completed.status != 0:
            raise MachineError(f"refused {self.what} of {self.on}: {completed.stderr.strip()}")


def refused_on(machine: Shell) -> list[Refused]:
    """Return the faults whose policies are in the cluster. Raises MachineError."""
    argv = ["kubectl", "get", *_KINDS[1:], "--output=custom-columns=NAME:.metadata.name", "--no-headers"]
    listed = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
    if "have a resource type" in listed.stderr:
        return []
    if listed.status != 0:
        raise MachineError(f"{machine.name}: kubectl: {listed.stderr.strip()}")
    policies = _POLICY.findall(listed.stdout)
    return [Refused(fault_id, "", "lease" if what == "lease" else "status") for what, fault_id in policies]
