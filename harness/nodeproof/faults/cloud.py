"""Cloud: a cluster has a cloud, which reports some machines as shut down or gone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nodeproof.faults.api import DeleteNode
from nodeproof.faults.fault import COMMAND_TIMEOUT_S, Fault, output_of
from nodeproof.machines.machine import Machine, MachineError, Shell, checked
from nodeproof.model.cluster import has_taint
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import Json

State = Literal["exists", "shut-down", "gone"]
STATES: Sequence[State] = ("exists", "shut-down", "gone")
STARTED = "Initialize"
"""The first call to the cloud, before any controller runs (infra/kubernetes/cloud/provider.go)."""
_SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
_FILE = re.compile(rf"^{CLOUD}/cloud-([0-9a-f]{{8}})\.json$", re.MULTILINE)
_ANSWER = 'cat >"$0.new" && mv "$0.new" "$0"'
_NODE_CONTROLLER_FLAGS = {
    "controllers": "cloud-node-lifecycle-controller,cloud-node-controller",
    "node-status-update-frequency": "2s",
}
"""Flags of a cloud with `initialises_nodes`; the default update period of node addresses is 5 min."""
# The component starts with the flags of each *.json file in its folder; that file is written last.
_INJECT = r"""
cat >"$0.answers.new" && mv "$0.answers.new" "$0.answers" || exit 1
flags="\"nodeproof-calls\": \"$PWD/$0.calls\""
for what in answers addresses; do flags="$flags, \"nodeproof-$what\": \"$PWD/$0.$what\""; done
printf '{%s%s}' "$flags" "$1" >"$0.new" && mv "$0.new" "$0.json"
"""


@dataclass(frozen=True)
class Cloud(Fault):
    """Upstream's cloud-controller-manager over a fake provider; healing stops it and restores its Nodes.

    Healing also removes the taints that the controller added and creates the Nodes that it deleted. The cloud
    must be declared: `needs(components=(CLOUD,))`.

    Attributes:
        answers: The state of each node's machine: `exists`, `shut-down` or `gone`; by default it exists.
        labels: The labels of each Node that it may delete: a running kubelet does not create its Node again.
        initialises_nodes: Whether it also initialises Nodes that wait for a cloud, and updates their
            addresses (`set_cloud_addresses`).
    """

    name = "cloud"
    places = ("component",)
    node: str = field(default=CLOUD, init=False)
    answers: Mapping[str, State]
    labels: Mapping[str, Mapping[str, str]]
    initialises_nodes: bool = field(default=False, kw_only=True, metadata={"key": "sets_up"})

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Cloud]:
        listed = output_of(machine, "find", CLOUD, "-name", "cloud-*.json")
        return [cls({}, {}, id=fault_id) for fault_id in _FILE.findall(listed)]

    @property
    def affected_nodes(self) -> Sequence[str]:
        """The nodes that the cloud reports as gone or shut down."""
        return tuple(name for name, state in self.answers.items() if state != "exists")

    def available(self, machine: Shell) -> str:
        """Require a cluster without a cloud, valid answers, and labels for each node that has an answer."""
        unknown = {*self.answers.values()} - {*STATES}
        if unknown:
            return f"a machine is one of {', '.join(STATES)}, not {', '.join(sorted(unknown))}"
        unlabelled = [name for name in self.answers if not self.labels.get(name)]
        if unlabelled:
            return f"labels of {', '.join(unlabelled)} are missing"
        completed = machine.run(["find", self.node, "-name", "*.json"], timeout_s=COMMAND_TIMEOUT_S)
        if completed.status != 0:
            return f"the lab does not know {self.node}"
        if completed.stdout.strip() or machine.is_powered():
            return f"there is a cloud already: {completed.stdout.strip() or f'{self.node} runs'}"
        return ""

    def inject(self, machine: Shell) -> None:
        """Write the answers and start the controller manager with them."""
        extra_flags = f", {json.dumps(_NODE_CONTROLLER_FLAGS)[1:-1]}" if self.initialises_nodes else ""
        tainted = json.dumps(self._tainted(machine))
        self.run(machine, ["sh", "-c", _ANSWER, self._tainted_before], tainted)
        self.run(machine, ["sh", "-c", _INJECT, self._path, extra_flags], json.dumps(dict(self.answers)))
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Stop the controller manager, delete its files and taints, and create the Nodes that are missing."""
        machine.power("off")
        # The list of earlier taints is deleted last: a repeated healing needs it.
        for name in self._added_taints(machine):
            self.run(machine, ["kubectl", "taint", "node", name, f"{_SHUT_DOWN}:NoSchedule-"])
        files = ("answers", "addresses", "tainted")
        endings = ("json", "new", *files, *(f"{name}.new" for name in files), "calls")
        self.run(machine, ["rm", "-f", *(f"{self._path}.{ending}" for ending in endings)])
        for name, labels in self.labels.items():
            DeleteNode(name, labels, id=self.id).heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether its process answers and has recorded its first call."""
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        calls = machine.run(["cat", f"{self._path}.calls"], timeout_s=COMMAND_TIMEOUT_S)
        return calls.status == 0 and STARTED in calls.stdout

    def is_healed(self, machine: Machine) -> bool:
        """Return whether nothing listens on its port, and no Node is missing or has a taint that it added."""
        if machine.is_powered() or not machine.refuses_on_control() or self._added_taints(machine):
            return False
        listed = {item["metadata"]["name"] for item in self._nodes(machine)}
        return self.labels.keys() <= listed

    @property
    def _path(self) -> str:
        return f"{self.node}/cloud-{self.id}"

    @property
    def _tainted_before(self) -> str:
        return f"{self._path}.tainted"

    def _added_taints(self, machine: Shell) -> Sequence[str]:
        """Return the Nodes that it tainted; none if it never started or is healed."""
        before = machine.run(["cat", self._tainted_before], timeout_s=COMMAND_TIMEOUT_S)
        if before.status != 0:
            return ()
        return sorted({*self._tainted(machine)} - {*json.loads(before.stdout)})

    def _tainted(self, machine: Shell) -> Sequence[str]:
        """Return the Nodes with a cloud's shutdown taint."""
        nodes = self._nodes(machine)
        return [item["metadata"]["name"] for item in nodes if has_taint(item, _SHUT_DOWN, "NoSchedule")]

    def _nodes(self, machine: Shell) -> Sequence[Json]:
        return list(json.loads(self.run(machine, ["kubectl", "get", "nodes", "--output=json"]))["items"])


def replace_answers(machine: Shell, answers: Mapping[str, State]) -> None:
    """Replace all answers of the cluster's cloud. Raises MachineError if it has no cloud."""
    _write(machine, "answers", dict(answers))


def give_addresses(machine: Shell, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Replace all node addresses of the cluster's cloud.

    Each address is an object with `type` and `address`. Raises MachineError if the cluster has no cloud.
    """
    _write(machine, "addresses", {node: list(of) for node, of in addresses.items()})


def _write(machine: Shell, what: str, content: Json) -> None:
    clouds = Cloud.leftovers_on(machine)
    if len(clouds) != 1:
        raise MachineError(f"{machine.name}: {len(clouds)} clouds")
    argv = ["sh", "-c", _ANSWER, f"{CLOUD}/cloud-{clouds[0].id}.{what}"]
    checked(machine.run(argv, timeout_s=COMMAND_TIMEOUT_S, stdin=json.dumps(content)), machine.name)
