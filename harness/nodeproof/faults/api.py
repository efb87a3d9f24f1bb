"""Changes through the API, as an administrator makes them with kubectl."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault
from nodeproof.faults.units import UnitDown
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, Machine, MachineError, Shell, checked
from nodeproof.model.cluster import LEASE_NAMESPACE, condition, is_ready
from nodeproof.model.pattern import Json
from nodeproof.waiting import retry_on

What = Literal["status", "lease", "csinode"]
_REGISTRATION_ANNOTATIONS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""Without it the attach-detach controller ignores a node (initialNode in kubelet_node_status.go)."""
ELECTION = "election"
_POLICY = re.compile(r"^nodeproof-([a-z]+)-([0-9a-f]{8})$", re.MULTILINE)
_LEASES: Mapping[str, Json] = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
_OF_NODE: Mapping[What, tuple[Mapping[str, Json], Mapping[str, Json]]] = {
    "status": (
        {"apiGroups": [""], "resources": ["nodes/status"]},
        {"apiVersion": "v1", "kind": "Node", "status": {"phase": "Running"}},
    ),
    "lease": (_LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
    "csinode": (
        {"apiGroups": ["storage.k8s.io"], "resources": ["csinodes"]},
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "spec": {"drivers": []}},
    ),
}
"""Of each object of a kubelet: its API group and resource as in a policy, and an update without metadata."""
_APPLY = ("apply", "--server-side", "--force-conflicts", "--validate=false", "--filename=-")
_POLICIES, _BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
_PATCHED_REASON = "NodeproofPatched"
_DENIED_TIMEOUT_S = 8.0
"""A new admission policy is active once the API server has compiled it: after about a second."""


@dataclass(frozen=True)
class ApiFault(Fault):
    """A change of API objects, which only the API can undo."""

    places = ("control-plane",)
    node: str = field(default=CONTROL_PLANE, init=False)

    def kubectl(self, machine: Shell, *arguments: str, stdin: str = "") -> str:
        """Run kubectl and return its output. Raises MachineError if it fails."""
        return self.run(machine, ["kubectl", *arguments], stdin)

    def objects(self, machine: Shell, kind: str, *names: str) -> Sequence[Json]:
        """Return those of the named objects that exist."""
        output = self.kubectl(machine, "get", kind, *names, "--output=json", "--ignore-not-found")
        listed = json.loads(output) if output.strip() else {"items": []}
        # A single object is not a list.
        return list(listed.get("items", [listed]))


@dataclass(frozen=True)
class NodeObjectFault(ApiFault):
    """A change of the Node of `target`."""

    target: str = field(metadata={"key": "on"})

    @property
    def affected_nodes(self) -> Sequence[str]:
        return (self.target,)

    def get(self, machine: Shell, kind: str = "node") -> Json | None:
        """Return the Node or another object of its name, None if it does not exist."""
        return next(iter(self.objects(machine, kind, self.target)), None)


@dataclass(frozen=True)
class Taint(NodeObjectFault):
    """Taint on a Node, and on the Nodes `also`, by one `kubectl taint`; healing removes that taint alone."""

    name = "taint"
    key: str
    effect: str
    value: str = "nodeproof"
    also: Sequence[str] = ()

    def __post_init__(self) -> None:
        # JSON has only lists.
        object.__setattr__(self, "also", tuple(self.also))

    @property
    def affected_nodes(self) -> Sequence[str]:
        return (self.target, *self.also)

    def available(self, machine: Shell) -> str:
        """Require a taint that no node has yet: healing could not tell them apart."""
        tainted = self._tainted(machine)
        return f"{', '.join(tainted)}: tainted already" if tainted else ""

    def inject(self, machine: Shell) -> None:
        taint = f"{self.key}={self.value}:{self.effect}"
        self.kubectl(machine, "taint", "node", *self.affected_nodes, taint, "--overwrite")

    def heal(self, machine: Shell) -> None:
        tainted = self._tainted(machine)
        if tainted:
            self.kubectl(machine, "taint", "node", *tainted, f"{self.key}:{self.effect}-")

    def is_injected(self, machine: Machine) -> bool:
        return len(self._tainted(machine)) == len(self.affected_nodes)

    def is_healed(self, machine: Machine) -> bool:
        return not self._tainted(machine)

    def _tainted(self, machine: Shell) -> list[str]:
        """Return those of the Nodes that have the taint."""
        return [
            node["metadata"]["name"]
            for node in self.objects(machine, "node", *self.affected_nodes)
            if any(
                taint["key"] == self.key and taint["effect"] == self.effect
                for taint in node["spec"].get("taints") or ()
            )
        ]


@dataclass(frozen=True)
class SetLabel(ApiFault):
    """Other value of a label on Nodes, set as `kubectl label` does; healing restores what each had `before`.

    `before` maps the nodes to their former values. None stands for a missing label.
    """

    name = "labelled"
    key: str
    value: str | None
    before: Mapping[str, str | None]

    @property
    def affected_nodes(self) -> Sequence[str]:
        """The labelled nodes, which controllers may treat differently."""
        return tuple(self.before)

    def available(self, machine: Shell) -> str:
        """Require that the nodes have the values in `before`."""
        values = self._values(machine)
        mismatched = [name for name, before in self.before.items() if values.get(name, ()) != before]
        if not mismatched:
            return ""
        return f"label {self.key} on {', '.join(mismatched)} does not have the expected value"

    def inject(self, machine: Shell) -> None:
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
        metadata = [node["metadata"] for node in self.objects(machine, "nodes", *self.before)]
        return {meta["name"]: meta.get("labels", {}).get(self.key) for meta in metadata}

    def _set(self, machine: Shell, value: str | None, nodes: Sequence[str]) -> None:
        label = f"{self.key}-" if value is None else f"{self.key}={value}"
        if nodes:
            self.kubectl(machine, "label", "nodes", *nodes, label, "--overwrite")


# A running kubelet does not create its Node again by itself (`registrationCompleted` in
# pkg/kubelet/kubelet_node_status.go). It reports to a Node that was created for it, but uses the UID of the
# former one for its CSINode: that is garbage-collected as soon as it is created, and no CSI driver comes up
# (`nodeID` in pkg/volume/csi/nodeinfomanager/nodeinfomanager.go).
@dataclass(frozen=True)
class DeleteNode(NodeObjectFault):
    """Deletion of a Node; healing creates it again with its `labels` and restarts its kubelet."""

    name = "node-deleted"
    labels: Mapping[str, str]

    def available(self, machine: Shell) -> str:
        """Require an existing Node and its labels, which name its lab."""
        if not self.labels:
            return f"labels of {self.target} are missing"
        return "" if self.get(machine) else f"Node {self.target} does not exist"

    def inject(self, machine: Shell) -> None:
        self.kubectl(machine, "delete", "node", self.target, "--ignore-not-found", "--wait=false")

    def heal(self, machine: Shell) -> None:
        """Create the Node if it is missing, and restart its kubelet if it uses the former one."""
        if self.get(machine) is None:
            metadata = {
                "name": self.target,
                "labels": dict(self.labels),
                "annotations": _REGISTRATION_ANNOTATIONS,
            }
            body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            self.kubectl(machine, "apply", "--filename=-", stdin=json.dumps(body))
        target = machine.beside(self.target)
        if target.is_powered() and not self._is_used_by_kubelet(machine):
            kubelet = UnitDown(self.target, id=self.id)
            kubelet.inject(target)
            kubelet.heal(target)

    def is_injected(self, machine: Machine) -> bool:
        return not self.get(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the Node exists with its labels, is Ready, and is the one that its kubelet uses."""
        node = self.get(machine)
        if node is None:
            return False
        labels = node["metadata"].get("labels") or {}
        has_labels = self.labels.items() <= labels.items()
        return is_ready(node) and has_labels and self._is_used_by_kubelet(machine)

    def _is_used_by_kubelet(self, machine: Shell) -> bool:
        """Return whether this Node owns the CSINode, which a kubelet creates once when it starts."""
        node, csi_node = self.get(machine), self.get(machine, "csinode")
        if node is None or csi_node is None:
            return False
        owners = csi_node["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] == node["metadata"]["uid"] for owner in owners)


@dataclass(frozen=True)
class Denied:
    """Updates of one object by one user, and an example of them.

    `user` is the user and its groups, `rule` the API group and resource as in a policy, `body` the example,
    and `command` the arguments of kubectl that send it. `allows` is true for requests about other objects.
    """

    user: Sequence[str]
    rule: Mapping[str, Json]
    body: Json
    command: Sequence[str]
    allows: str = "false"


class Denial(ApiFault):
    """A ValidatingAdmissionPolicy that denies one user the updates of one object; healing deletes it.

    The probe sends such an update as the user, as a dry run.
    """

    what: str
    """What is denied, as in the name of the policy."""

    @property
    @abstractmethod
    def denied(self) -> Denied:
        """The updates that the policy denies."""

    def available(self, machine: Shell) -> str:
        """Require an update that is allowed now, and an API server with admission policies (since 1.30)."""
        listed = machine.run(["kubectl", "get", _POLICIES, "--output=name"], timeout_s=COMMAND_TIMEOUT_S)
        if listed.status != 0:
            return f"no admission policies: {listed.stderr.strip()}"
        update = self._update(machine)
        return "" if update.status == 0 else f"its update is denied already: {update.stderr.strip()}"

    def inject(self, machine: Shell) -> None:
        """Create the policy and its binding, or leave them as they are."""
        documents = "\n".join(map(json.dumps, self._documents()))
        self.kubectl(machine, "apply", "--filename=-", stdin=documents)

    def heal(self, machine: Shell) -> None:
        for kind in (_BINDINGS, _POLICIES):
            self.kubectl(machine, "delete", kind, self._policy, "--ignore-not-found")

    def is_injected(self, machine: Shell) -> bool:
        """Return whether this policy denies an update as the user."""
        update = self._update(machine)
        return update.status != 0 and self._policy in update.stderr

    def is_healed(self, machine: Machine) -> bool:
        """Return whether an update as the user is allowed, or its object no longer exists."""
        update = self._update(machine)
        return update.status == 0 or "(NotFound)" in update.stderr

    @property
    def _policy(self) -> str:
        return f"nodeproof-{self.what}-{self.id}"

    def _documents(self) -> Sequence[Json]:
        """Return the policy and its binding."""
        denied = self.denied
        rule = {**denied.rule, "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        message = f"nodeproof refuses {self.what} of {', '.join(self.affected_nodes)}"
        condition = f"request.userInfo.username != {json.dumps(denied.user[0])} || {denied.allows}"
        policy = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": condition, "message": message}],
        }
        binding = {"policyName": self._policy, "validationActions": ["Deny"]}
        common = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": self._policy}}
        return (
            {**common, "kind": "ValidatingAdmissionPolicy", "spec": policy},
            {**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        )

    def _update(self, machine: Shell) -> CommandResult:
        """Send an update as the user, as a dry run; read nothing first, as a node may not."""
        denied, (user, *groups) = self.denied, self.denied.user
        identity = [f"--as={user}", *(f"--as-group={group}" for group in groups)]
        argv = ["kubectl", *denied.command, *identity, "--dry-run=server"]
        return machine.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin=json.dumps(denied.body))


@dataclass(frozen=True)
class DenyUpdates(NodeObjectFault, Denial):
    """Policy that denies a kubelet updates of its Node's `status`, `lease` or `csinode`; healing deletes it.

    It is a ValidatingAdmissionPolicy. The probe sends such an update as the node, as a dry run. A kubelet
    that starts and may not make its CSINode does not become Ready.
    """

    name = "refused"
    what: What

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[DenyUpdates]:
        kinds = {str(what): what for what in _OF_NODE}
        return [cls("", kinds[what], id=fault_id) for what, fault_id in denied_on(machine) if what in kinds]

    @property
    def denied(self) -> Denied:
        meta: Json = {"name": self.target}
        if self.what != "status":
            meta["annotations"] = {"nodeproof.dev/probe": self.id}
        if self.what == "lease":
            meta["namespace"] = LEASE_NAMESPACE
        user = (f"system:node:{self.target}", "system:nodes")
        rule, update = _OF_NODE[self.what]
        options = ("--subresource=status",) if self.what == "status" else ()
        return Denied(user, rule, {**update, "metadata": meta}, (*_APPLY, *options))


@dataclass(frozen=True)
class DenyElection(Denial):
    """Policy that denies every replica of `component` updates of the Lease that elects its leader.

    Healing deletes it. It is a ValidatingAdmissionPolicy. The probe sends such an update as the component, as
    a dry run.
    """

    name = "election-refused"
    what = ELECTION
    component: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[DenyElection]:
        return [cls("", id=fault_id) for what, fault_id in denied_on(machine) if what == ELECTION]

    @property
    def affected_nodes(self) -> Sequence[str]:
        return (self.component,)

    @property
    def denied(self) -> Denied:
        annotations = {"nodeproof.dev/probe": self.id}
        meta = {"name": self.component, "namespace": "kube-system", "annotations": annotations}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        # It may update the Lease, and not patch it (bootstrappolicy/policy.go in plugin/pkg/auth/authorizer).
        command = ("replace", "--validate=false", "--filename=-")
        other = f"request.name != {json.dumps(self.component)}"
        return Denied((f"system:{self.component}",), _LEASES, body, command, other)


def denied_on(machine: Shell) -> Sequence[tuple[str, str]]:
    """Return what each policy of a fault denies, and the id of the fault. Raises MachineError."""
    argv = ["kubectl", "get", _POLICIES, "--output=custom-columns=NAME:.metadata.name", "--no-headers"]
    listed = machine.run(argv, timeout_s=COMMAND_TIMEOUT_S)
    if "have a resource type" in listed.stderr:
        return ()
    return _POLICY.findall(checked(listed, f"{machine.name}: kubectl"))


@dataclass(frozen=True)
class PatchReady(NodeObjectFault):
    """Patch of a Node's Ready to False, as an administrator can do; healing patches it back to True.

    The kubelet's status updates, which would correct it, are denied until the fault is healed. The node is
    Ready at once when it is patched back.
    """

    name = "ready-patched"

    def available(self, machine: Shell) -> str:
        """Require a node that is Ready and whose kubelet can be denied status updates."""
        node = self.get(machine)
        if node is None or not is_ready(node):
            return f"{self.target} is not Ready"
        return self._denial.available(machine)

    def inject(self, machine: Shell) -> None:
        """Deny the kubelet's status updates first: one of them would undo the PATCH."""
        self._denial.inject(machine)
        retry_on(lambda: self._check_denied(machine), MachineError, timeout_s=_DENIED_TIMEOUT_S)
        if not self._is_patched(machine):
            self._patch(machine, "False", _PATCHED_REASON, f"nodeproof {self.id}")

    def heal(self, machine: Shell) -> None:
        """Patch Ready back if it still has our reason, and remove the policy, if any."""
        if self._is_patched(machine):
            self._patch(machine, "True", "KubeletReady", "kubelet is posting ready status")
        self._denial.heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the node is not Ready and its kubelet is denied status updates.

        The control plane sets Ready of a silent node to Unknown.
        """
        node = self.get(machine)
        return node is not None and not is_ready(node) and self._denial.is_injected(machine)

    def is_healed(self, machine: Machine) -> bool:
        """Return whether Ready does not have our reason and the kubelet may update the status."""
        return not self._is_patched(machine) and self._denial.is_healed(machine)

    @property
    def _denial(self) -> DenyUpdates:
        return DenyUpdates(self.target, "status", id=self.id)

    def _check_denied(self, machine: Shell) -> None:
        if not self._denial.is_injected(machine):
            raise MachineError(f"{self.name} on {self.target}: its kubelet may still update the status")

    def _is_patched(self, machine: Shell) -> bool:
        node = self.get(machine)
        ready = (condition(node, "Ready") if node is not None else None) or {}
        return ready.get("reason") == _PATCHED_REASON

    def _patch(self, machine: Shell, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        body = json.dumps({"status": {"conditions": [{**ready, **times}]}})
        self.kubectl(machine, "patch", "node", self.target, "--subresource=status", f"--patch={body}")
