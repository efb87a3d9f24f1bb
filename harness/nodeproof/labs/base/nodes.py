"""The nodes of a lab: what all kinds of lab have in common, and shells for the lab's own supervisor.

The dead-man's switch heals through these shells.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from nodeproof.labs.base.pki import Authority, pair_in
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.base.spec import API_ADDRESS, KUBELET_PORT, LabSpec, NodeSpec, check_node_name
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.machines.machine import STATE_FOLDER, CommandResult, MachineError, PowerAction, Shell
from nodeproof.model.overrides import KUBELET
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

LinkState = Literal["up", "down"]


@dataclass(frozen=True)
class NodeEnvironment:
    """The environment of one lab's nodes.

    `memory` is the lab's own file system, `events` records what happens to nodes, and `kubelet` contains the
    settings that their kind of lab gives every kubelet. `power_lock` returns the lock that power actions on a
    node hold.
    """

    lab: LabSpec
    kubelet: Mapping[str, Json]
    memory: Path
    authority: Authority
    processes: Processes
    events: EventLog
    power_lock: Callable[[str], threading.Lock]


@dataclass(frozen=True)
class RunningNode:
    """A node and its first process's id in the lab's PID namespace; None while it is off."""

    spec: NodeSpec
    pid: int | None

    def info(self) -> NodeInfo:
        """Return the node's entry in the lab's status."""
        spec = self.spec
        return NodeInfo(
            spec.name,
            spec.slot,
            spec.zone,
            self.pid is not None,
            spec.control_address,
            spec.data_address,
            spec.machine_id,
            spec.shape.memory_mib,
            spec.shape.cpus,
            self.pid,
        )


class Nodes:
    """All nodes of one lab.

    A kind of lab implements what its machines do, in the methods that raise NotImplementedError here.
    """

    def __init__(self, environment: NodeEnvironment) -> None:
        self._lab = environment.lab
        self._settings = environment.kubelet
        self._memory = environment.memory
        self._authority = environment.authority
        self._processes = environment.processes
        self._events = environment.events
        self._specs: dict[str, NodeSpec] = {}

    def prepare(self) -> None:
        """Start what the nodes run on, if anything. Raises Problem, OutsideError, CommandFailed."""

    def api_servers(self) -> Sequence[str]:
        """Return the addresses of the API servers, if machines of this kind run the control plane."""
        raise NotImplementedError

    def start_control_plane(self) -> None:
        """Start the control plane, if machines of this kind run it. Raises Problem, MachineError."""
        raise NotImplementedError

    def get(self, name: str) -> RunningNode:
        """Return a node by name. Raises Problem if the lab has no such node."""
        if name not in self._specs:
            raise self._problem(f"no node {name!r}", f"it has: {', '.join(self._specs)}")
        return RunningNode(self._specs[name], self._find_pid(name))

    def all(self) -> list[RunningNode]:
        """Return every node, on or off."""
        return [RunningNode(spec, self._find_pid(spec.name)) for spec in list(self._specs.values())]

    def join(self, spec: NodeSpec) -> None:
        """Write the node's seed and power it on. Raises Problem, OutsideError, CommandFailed."""
        check_node_name(spec.name)
        if spec.name in self._specs:
            raise self._problem(f"a node named {spec.name} already exists", "choose another name")
        self._create(spec)

    def start_kubelet(self, name: str) -> None:
        """Start the node's kubelet, unless the node does so itself. Raises Problem."""
        raise NotImplementedError

    def wait_up(self, name: str) -> None:
        """Wait until the node's sshd serves. Raises Problem with its last log lines."""
        raise NotImplementedError

    def power(self, name: str, action: PowerAction) -> None:
        """Do a power action to the node; if its state is already as wanted, do nothing.

        Raises Problem, OutsideError.
        """
        actions: Mapping[PowerAction, Callable[[str], None]] = {
            "off": self.power_off,
            "on": self.power_on,
            "freeze": self.freeze,
            "reset": self.reset,
            "thaw": self.thaw,
            "link-down": partial(self.set_link, state="down"),
            "link-up": partial(self.set_link, state="up"),
        }
        if action not in actions:
            raise self._problem(f"no {action} for {name}", f"use one of: {', '.join(actions)}")
        actions[action](name)

    def power_off(self, name: str) -> None:
        """End the node at once, without flushing anything; do nothing if it is off."""
        raise NotImplementedError

    def power_on(self, name: str) -> None:
        """Boot the node, and start its kubelet; do nothing if it is on."""
        raise NotImplementedError

    def freeze(self, name: str) -> None:
        """Stop all that runs in the node."""
        raise NotImplementedError

    def reset(self, name: str) -> None:
        """Reset the node, and leave it frozen."""
        raise NotImplementedError

    def thaw(self, name: str) -> None:
        """Let a frozen node continue; do nothing if it runs or is off."""
        raise NotImplementedError

    def set_link(self, name: str, state: LinkState) -> None:
        """Unplug the node from `data`, or plug it in, now and at each boot."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it, with its files."""
        raise NotImplementedError

    def shell(self, name: str, power_lock: threading.Lock) -> Shell:
        """Return the node's shell for the supervisor; power actions hold `power_lock`."""
        raise NotImplementedError

    def owner(self, spec: NodeSpec) -> str:
        """Return the owner that a hypervisor must report for the node; empty without a hypervisor."""
        del spec
        return ""

    def runs_on_kvm(self) -> bool | None:
        """Return whether the nodes run on KVM; None if they are not virtual machines."""
        return None

    def _create(self, spec: NodeSpec) -> None:
        """Write a new node's seed, power it on, and register its spec."""
        raise NotImplementedError

    def _find_pid(self, name: str) -> int | None:
        """Return the id of the node's first process; None while it is off."""
        raise NotImplementedError

    def _home(self, name: str) -> Path:
        return self._memory / "nodes" / name

    def _problem(self, message: str, next_step: str, detail: str = "") -> Problem:
        return Problem(message, f"lab {self._lab.lab}", next_step, detail)


class NodeShell:
    """Shell and power of one node; its kind implements `run`. Power actions hold `power_lock`."""

    state_folder = STATE_FOLDER

    def __init__(self, nodes: Nodes, name: str, power_lock: threading.Lock) -> None:
        self.name = name
        self.data_address = nodes.get(name).spec.data_address
        self.control_plane_addresses = (API_ADDRESS,)
        self._nodes = nodes
        self._power_lock = power_lock

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the node. Raises MachineError if it does not end within `timeout_s`."""
        raise NotImplementedError

    def is_powered(self) -> bool:
        """Return whether the node's first process runs."""
        return self._nodes.get(self.name).pid is not None

    def power(self, action: PowerAction) -> None:
        """Do a power action to the node; after power-on or a thaw, wait until it is up."""
        with self._power_lock:
            self._nodes.power(self.name, action)
        if action == "on" or (action == "thaw" and self.is_powered()):
            self._nodes.wait_up(self.name)

    def beside(self, name: str) -> Shell:
        """Raise MachineError: a node's shell reaches no other machine."""
        raise MachineError(f"{self.name} knows no machine {name}")


def kubelet_configuration(
    lab: LabSpec, node: NodeSpec, folder: Path, settings: Mapping[str, Json]
) -> dict[str, Json]:
    """Return a KubeletConfiguration.

    Args:
        lab: the lab of the node.
        node: the node; its `kubelet` fields take precedence over everything else.
        folder: where the node finds its credentials.
        settings: the fields that the kind of lab sets.

    Raises:
        Problem: The user sets one of the lab's own fields.
    """
    pair = pair_in(folder, "kubelet")
    own = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.data_address,
        "port": KUBELET_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder / "ca.crt")},
        },
        "tlsCertFile": str(pair.cert),
        "tlsPrivateKeyFile": str(pair.key),
    }
    lab.overrides.refuse_own(KUBELET, own)
    return {
        **own,
        **settings,
        **profile_named(lab.profile).kubelet,
        **lab.overrides.of(KUBELET),
        **node.kubelet,
    }


def kubelet_flags(lab: LabSpec, node: NodeSpec) -> list[str]:
    """Return the kubelet's flags: its identity, its labels and the node's own flags.

    If a flag is repeated, the last value counts; labels add up.
    """
    return [
        f"--hostname-override={node.node_name}",
        f"--node-ip={node.data_address}",
        f"--node-labels=topology.kubernetes.io/zone={node.zone},nodeproof.dev/lab={lab.lab}",
        *node.flags,
    ]
