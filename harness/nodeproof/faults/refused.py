"""Refused: the API server takes one kind of a node's heartbeats no more."""

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
    """A ValidatingAdmissionPolicy denies a kubelet the updates of its Node's status, or its Lease; healing
    deletes it.

    The probe asks for such an update as the node, as a dry run.
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
        """No machine's own command: the API's."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {"fault": self.name, "id": self.id, "on": self.on, "what": self.what, "node": self.node}

    def available(self, machine: Shell) -> str:
        """An update that is taken now, and an API server that knows such policies (v1 since 1.30)."""
        known = self._kubectl(machine, "get", _KINDS[1], "--output=name")
        if known.status != 0:
            return f"no admission policies: {known.stderr.strip()}"
        asked = self._ask(machine)
        return "" if asked.status == 0 else f"it is refused already: {asked.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Create the policy and its binding, or leave them as they are."""
        documents = "\n".join(json.dumps(each) for each in (self._policy_body(), self._binding_body()))
        self._must(self._kubectl(machine, "apply", "--filename=-", stdin=documents))

    def heal(self, machine: Shell) -> None:
        """Delete both, there or not."""
        for kind in _KINDS:
            self._must(self._kubectl(machine, "delete", kind, self._policy, "--ignore-not-found"))

    def is_injected(self, machine: Shell) -> bool:
        """An update as the node is denied by this policy."""
        asked = self._ask(machine)
        return asked.status != 0 and self._policy in asked.stderr

    def is_healed(self, machine: Machine) -> bool:
        """An update as the node is taken, or there is nothing any more that could be updated."""
        asked = self._ask(machine)
        return asked.status == 0 or "(NotFound)" in asked.stderr

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

    def _ask(self, machine: Shell) -> CommandResult:
        """Change something of its own as the node, as a dry run; nothing is read first, as a node may not."""
        by = [f"--as=system:node:{self.on}", "--as-group=system:nodes", "--dry-run=server"]
        meta: Json = {"name": self.on}
        if self.what == "lease":
            meta |= {"namespace": LEASE_NAMESPACE, "annotations": {"nodeproof.dev/probe": self.id}}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        else:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"phase": "Running"}}
            by.append("--subresource=status")
        return self._kubectl(machine, *_APPLY, *by, stdin=json.dumps(body))

    def _kubectl(self, machine: Shell, *arguments: str, stdin: str = "") -> CommandResult:
        return machine.run(["kubectl", *arguments], deadline_s=COMMAND_LIMIT_S, stdin=stdin)

    def _must(self, done: CommandResult) -> None:
        if done.status != 0:
            raise MachineError(f"refused {self.what} of {self.on}: {done.stderr.strip()}")


def refused_on(machine: Shell) -> list[Refused]:
    """The refusals whose policies an API has. Raises MachineError."""
    argv = ["kubectl", "get", *_KINDS[1:], "--output=custom-columns=NAME:.metadata.name", "--no-headers"]
    listed = machine.run(argv, deadline_s=COMMAND_LIMIT_S)
    if "have a resource type" in listed.stderr:
        return []
    if listed.status != 0:
        raise MachineError(f"{machine.name}: kubectl: {listed.stderr.strip()}")
    found = _POLICY.findall(listed.stdout)
    return [Refused(name, "", "lease" if what == "lease" else "status") for what, name in found]
