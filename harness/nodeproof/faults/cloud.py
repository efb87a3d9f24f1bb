"""Cloud: a cluster has a cloud, which says of some machines that they are shut down, or gone."""

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
"""The call that comes first, before any controller runs (infra/kubernetes/cloud/provider.go)."""
_SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
_FILE = re.compile(rf"^{CLOUD}/cloud-([0-9a-f]{{8}})\.json$", re.MULTILINE)
_ANSWER = 'cat >"$0.new" && mv "$0.new" "$0"'
_SETS_UP = {
    "controllers": "cloud-node-lifecycle-controller,cloud-node-controller",
    "node-status-update-frequency": "2s",
}
"""Flags of a cloud that also sets nodes up: it goes through their addresses each 5 min unless told."""
# The component starts with the flags of each file *.json in its folder; this one is written last.
_INJECT = r"""
cat >"$0.answers.new" && mv "$0.answers.new" "$0.answers" || exit 1
flags="\"nodeproof-calls\": \"$PWD/$0.calls\""
for what in answers addresses; do flags="$flags, \"nodeproof-$what\": \"$PWD/$0.$what\""; done
printf '{%s%s}' "$flags" "$1" >"$0.new" && mv "$0.new" "$0.json"
"""


@dataclass(frozen=True)
class Cloud:
    """Runs upstream's cloud controller manager with `answers` of ours: what each node's machine is; one that
    is not named exists. Healing ends it, takes its taints away, and makes those Nodes again that it took.

    `labels` are those of each Node that it may take away: a running kubelet makes no Node again. With
    `sets_up` the controller runs as well that makes those Nodes ready for use that wait for a cloud, and
    keeps their addresses.
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
        """Those of which the cloud says that they are gone, or shut down."""
        return tuple(name for name, state in self.answers.items() if state != "exists")

    @property
    def undo(self) -> Sequence[str]:
        """Only its host can end it."""
        return ()

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"answers": dict(self.answers), "labels": {name: dict(of) for name, of in self.labels.items()}}
        return {"fault": self.name, "id": self.id, **told, "node": self.node, "sets_up": self.sets_up}

    def available(self, machine: Shell) -> str:
        """A cluster without a cloud, answers that there are, and labels for each node that they are about."""
        odd = {*self.answers.values()} - {*STATES}
        if odd:
            return f"a machine is one of {', '.join(STATES)}, not {', '.join(sorted(odd))}"
        bare = [name for name in self.answers if not self.labels.get(name)]
        if bare:
            return f"nobody told the labels of {', '.join(bare)}"
        done = machine.run(["find", self.node, "-name", "*.json"], deadline_s=COMMAND_LIMIT_S)
        if done.status != 0:
            return f"the lab does not know {self.node}"
        if done.stdout.strip() or machine.is_powered():
            return f"there is a cloud already: {done.stdout.strip() or f'{self.node} runs'}"
        return ""

    def inject(self, machine: Shell) -> None:
        """Write the answers down and start it with them."""
        besides = f", {json.dumps(_SETS_UP)[1:-1]}" if self.sets_up else ""
        self._run(machine, ["sh", "-c", _INJECT, self._path, besides], json.dumps(dict(self.answers)))
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """End it, forget answers and calls, there or not, take its taints away, and make Nodes that lack."""
        machine.power("off")
        written = ("answers", "addresses")
        endings = ("json", "new", *written, *(f"{each}.new" for each in written), "calls")
        self._run(machine, ["rm", "-f", *(f"{self._path}.{ending}" for ending in endings)])
        for name in self._tainted(machine):
            self._run(machine, ["kubectl", "taint", "node", name, f"{_SHUT_DOWN}:NoSchedule-"])
        for name, labels in self.labels.items():
            NodeDeleted(self.id, name, labels).heal(machine)

    def is_injected(self, machine: Machine) -> bool:
        """Its process answers, and has begun to write down what it asks."""
        if not machine.is_powered() or not machine.answers_on_control():
            return False
        calls = machine.run(["cat", f"{self._path}.calls"], deadline_s=COMMAND_LIMIT_S)
        return calls.status == 0 and STARTED in calls.stdout

    def is_healed(self, machine: Machine) -> bool:
        """Nobody listens where it served, no Node is missing, and none has its taint."""
        if machine.is_powered() or not machine.refuses_on_control() or self._tainted(machine):
            return False
        listed = {item["metadata"]["name"] for item in self._nodes(machine)}
        return self.labels.keys() <= listed

    @property
    def _path(self) -> str:
        return f"{self.node}/cloud-{self.id}"

    def _tainted(self, machine: Shell) -> Sequence[str]:
        """The Nodes with its taint, which nobody else takes away."""
        nodes = self._nodes(machine)
        return [item["metadata"]["name"] for item in nodes if has_taint(item, _SHUT_DOWN, "NoSchedule")]

    def _nodes(self, machine: Shell) -> Sequence[Json]:
        return list(json.loads(self._run(machine, ["kubectl", "get", "nodes", "--output=json"]))["items"])

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if done.status != 0:
            raise MachineError(f"{self.node}: {argv[0]}: {done.stderr.strip()}")
        return done.stdout


def answer_anew(machine: Shell, answers: Mapping[str, State]) -> None:
    """Give the cloud that a cluster has these answers in place of all it had. Raises MachineError where there
    is none.
    """
    _write(machine, "answers", dict(answers))


def give_addresses(machine: Shell, addresses: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Give the cloud that a cluster has these addresses of nodes, `type` and `address`, in place of all it
    had. Raises MachineError where there is none.
    """
    _write(machine, "addresses", {node: list(of) for node, of in addresses.items()})


def _write(machine: Shell, what: str, content: Json) -> None:
    found = clouds_on(machine)
    if len(found) != 1:
        raise MachineError(f"{machine.name}: {len(found)} clouds")
    argv = ["sh", "-c", _ANSWER, f"{CLOUD}/cloud-{found[0].id}.{what}"]
    done = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=json.dumps(content))
    if done.status != 0:
        raise MachineError(f"{machine.name}: {done.stderr.strip()}")


def clouds_on(machine: Shell) -> list[Cloud]:
    """The clouds whose files a control plane has."""
    listed = machine.run(["find", CLOUD, "-name", "cloud-*.json"], deadline_s=COMMAND_LIMIT_S)
    return [Cloud(found) for found in _FILE.findall(listed.stdout)]
