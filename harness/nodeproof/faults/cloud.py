"""Cloud: a cluster has a cloud, which reports some machines as shut down or gone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.faults.node_deleted import NodeDeleted
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.cluster import has_taint
from nodeproof.model.needs import CLOUD

Json = Any
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
"""Flags of a cloud with `sets_up`; the default update period of node addresses is 5 min."""
# The component starts with the flags of each *.json file in its folder; that file is written last.
_INJECT = r"""
cat >"$0.answers.new" && mv "$0.answers.new" "$0.answers" || exit 1
flags="\"nodeproof-calls\": \"$PWD/$0.calls\""
for what in answers addresses; do flags="$flags, \"nodeproof-$what\": \"$PWD/$0.$what\""; done
printf '{%s%s}' "$flags" "$1" >"$0.new" && mv "$0.new" "$0.json"
"""


@dataclass(frozen=True)
class Cloud:
    """Upstream's cloud-controller-manager over a fake provider; healing stops it and restores its Nodes.

    `answers` gives the state of each node's machine; a machine without an entry exists. Healing also removes
    the taints of the controller and creates the Nodes that it deleted.

    `labels` are those of each Node that it may delete: a running kubelet does not create its Node again. With
    `sets_up` the controller runs as well that initialises Nodes that wait for a cloud, and updates their
    addresses.
    """

    name: ClassVar[str] = "cloud"
    places: ClassVar[Sequence[Place]] = ("component",)
    ends_components: ClassVar[bool] = False
    id: str
    answers: Mapping[str, State] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    node: str = CLOUD
    sets_up: bool = False

    @property
    def harms(self) -> Sequence[str]:
        """The nodes that the cloud reports as gone or shut down."""
        return tuple(name for name, state in self.answers.items() if state != "exists")

    @property
    def undo(self) -> Sequence[str]:
        """Empty: only the machine's host can stop it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        options = {
            "answers": dict(self.answers),
            "labels": {name: dict(labels) for name, labels in self.labels.items()},
        }
        return {"fault": self.name, "id": self.id, **options, "node": self.node, "sets_up": self.sets_up}

    def available(self, machine: Shell) -> str:
        """Require a cluster without a cloud, valid answers, and labels for each node that has an answer."""
        unknown = {*self.answers.values()} - {*STATES}
        if unknown:
            return f"a machine is one of {', '.join(STATES)}, not {', '.join(sorted(unknown))}"
        unlabelled = [name for name in self.answers if not self.labels.get(name)]
        if unlabelled:
            return f"labels of {', '.join(unlabelled)} are missing"
        completed = machine.run(["find", self.node, "-name", "*.json"], deadline_s=COMMAND_LIMIT_S)
        if completed.status != 0:
            return f"the lab does not know {self.node}"
        if completed.stdout.strip() or machine.is_powered():
            return f"there is a cloud already: {completed.stdout.strip() or f'{self.node} runs'}"
        return ""

    def inject(self, machine: Shell) -> None:
        """Write the answers and start the controller manager with them."""
        extra_flags = f", {json.dumps(_NODE_CONTROLLER_FLAGS)[1:-1]}" if self.sets_up else ""
        self._run(machine, ["sh", "-c", _INJECT, self._path, extra_flags], json.dumps(dict(self.answers)))
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Stop the controller manager, delete its files and taints, and create the Nodes that are missing."""
        machine.power("off")
        files = ("answers", "addresses")
        endings = ("json", "new", *files, *(f"{name}.new" for name in files), "calls")
        self._run(machine, ["rm", "-f", *(f"{self._path}.{ending}" for ending in endings)])
        for name in self._tainted(machine):
            self._run(machine, ["kubectl", "taint", "node", name, f"{_SHUT_DOWN}:NoSchedule-"])
        for name, labels in self.labels.items():
            NodeDeleted(self.id, name, labels).heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether its process answers and has recorded its first call."""
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        calls = machine.run(["cat", f"{self._path}.calls"], deadline_s=COMMAND_LIMIT_S)
        return calls.status == 0 and STARTED in calls.stdout

    def is_healed(self, machine: Machine) -> bool:
        """Return whether nothing listens on its port, no Node is missing and no Node has its taint."""
        if machine.is_powered() or not machine.refuses_on_control() or self._tainted(machine):
            return False
        listed = {item["metadata"]["name"] for item in self._nodes(machine)}
        return self.labels.keys() <= listed

    @property
    def _path(self) -> str:
        return f"{self.node}/cloud-{self.id}"

    def _tainted(self, machine: Shell) -> Sequence[str]:
        """Return the Nodes with its taint, which nothing else removes."""
        nodes = self._nodes(machine)
        return [item["metadata"]["name"] for item in nodes if has_taint(item, _SHUT_DOWN, "NoSchedule")]

    def _nodes(self, machine: Shell) -> Sequence[Json]:
        return list(json.loads(self._run(machine, ["kubectl", "get", "nodes", "--output=json"]))["items"])

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"{self.node}: {argv[0]}: {completed.stderr.strip()}")
        return completed.stdout


def answer_anew(machine: Shell, answers: Mapping[str, State]) -> None:
    """Replace all answers of the cluster's cloud. Raises MachineError if it has no cloud."""
    _write(machine, "answers", dict(answers))


def give_addresses(machine: Shell, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Replace all node addresses of the cluster's cloud.

    Each address is an object with `type` and `address`. Raises MachineError if the cluster has no cloud.
    """
    _write(machine, "addresses", {node: list(of) for node, of in addresses.items()})


def _write(machine: Shell, what: str, content: Json) -> None:
    clouds = clouds_on(machine)
    if len(clouds) != 1:
        raise MachineError(f"{machine.name}: {len(clouds)} clouds")
    argv = ["sh", "-c", _ANSWER, f"{CLOUD}/cloud-{clouds[0].id}.{what}"]
    completed = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=json.dumps(content))
    if completed.status != 0:
        raise MachineError(f"{machine.name}: {completed.stderr.strip()}")


def clouds_on(machine: Shell) -> list[Cloud]:
    """Return the clouds whose files are on a control plane."""
    listed = machine.run(["find", CLOUD, "-name", "cloud-*.json"], deadline_s=COMMAND_LIMIT_S)
    return [Cloud(fault_id) for fault_id in _FILE.findall(listed.stdout)]
