"""The interface of a kind of lab, and of a running lab as its kind reaches it.

A `Kind` is one object with everything that differs; no code checks a kind's name. It is neither kind
(Kubernetes IN Docker) nor the kind of an API object.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nodeproof.artifacts.components import HOLLOW, Components
from nodeproof.cluster.workloads import LAB_PODS, PodSettings
from nodeproof.hints import BASE, Hint, hint_for
from nodeproof.labs.base.control_plane import DriverFactory
from nodeproof.labs.base.nodes import NodeEnvironment, Nodes
from nodeproof.labs.base.profiles import DOCUMENTED, FAST, FIXED_KUBELET, Profile, fixed_flags
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.base.wire import LabStatus, NodeInfo
from nodeproof.machines.machine import Machine
from nodeproof.model.needs import MOST_IN_A_ZONE
from nodeproof.model.overrides import COMPONENTS, KUBELET, NO_OVERRIDES, Overrides
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.root import check_tools

if TYPE_CHECKING:
    from nodeproof.cluster.api import Api
    from nodeproof.faults import Fault
    from nodeproof.model.cluster import Calibration, Configuration
    from nodeproof.safety.deadman import Deadman
    from nodeproof.safety.guard import Declared, Record
    from nodeproof.safety.injector import AbortPoll
    from nodeproof.safety.ledger import FaultLedger

Report = Callable[[str], None]
Run = Callable[[Sequence[str]], str]
"""Runs a command beside a lab's hypervisor and returns its output."""
OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: `ok`, `missing` with its fix, or a `note` that stops no lab."""

    state: str
    subject: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"  {self.state:<8} {self.subject}"
        return f"{line}; {self.fix}" if self.fix else line


@dataclass(frozen=True)
class Trial:
    """A script that root tries in its own namespaces, which shows whether the kernel allows it."""

    subject: str
    script: str
    fix: str


@dataclass(frozen=True)
class Image:
    """An image that nodes boot and that has to be built.

    `tools` are the programs that build it, `space_gib` is its size in the cache, and `is_cached` returns
    whether it is built already.
    """

    tools: Sequence[str]
    space_gib: float
    is_cached: Callable[[Components], bool]


@dataclass(frozen=True)
class HostNeeds:
    """What a lab needs of its host, besides its control plane and the programs that every lab runs.

    `control_plane_mib` is memory; other memory, space and inotify instances are per node. The defaults were
    measured with hollow nodes.
    `machine_mib` is the part of a node's memory that its virtual machine gets, unless its shape differs.
    `doctor` checks a kind with `is_checked_by_default` False only if it is named.
    """

    control_plane_mib: int = 512
    node_mib: int = 40
    machine_mib: int = 0
    node_gib: float = 0.0
    node_inotify: int = 4
    tools: Sequence[str] = ()
    trials: Sequence[Trial] = ()
    checks: Sequence[Callable[[], str]] = ()
    notes: Callable[[], Iterator[Finding]] = lambda: iter(())
    image: Image | None = None
    hint: Hint = BASE
    is_checked_by_default: bool = True


@dataclass(frozen=True)
class Limits:
    """The limits of a kind of lab.

    `nodes` is the maximum number of nodes, `ready_timeout_s` the timeout until the lab serves,
    `nodes_ready_timeout_s` that until its nodes are Ready from then on, `node_mib` each node's share of the
    lab's memory. `labs_per_core` and `zones_per_core` are how many labs, or zones of one lab, a core supports
    in parallel without making verdicts unproven; 0 if zones are not shared. A scenario that needs more than
    `common_nodes` gets a lab of its own size, or one resized for it. Runs without a number of workers use as
    many as the host supports with `runs_in_parallel`, else one.
    """

    nodes: int = 100
    ready_timeout_s: float = 180.0
    nodes_ready_timeout_s: float = 120.0
    node_mib: int = 64
    labs_per_core: float = 1.5
    zones_per_core: float = 3.0
    common_nodes: int = MOST_IN_A_ZONE
    runs_in_parallel: bool = False


def _no_nodes(_environment: NodeEnvironment) -> Nodes:
    raise NotImplementedError


@dataclass(frozen=True)
class Kind:
    """A kind of lab.

    `features` are what scenarios may require (`nodeproof.model.needs`), `host` is what `nodeproof doctor`
    checks, `kubelet` returns the settings of its kubelets before the profile's. The lab's init calls
    `make_nodes`; a lab that no supervisor of nodeproof runs has `connect` instead, which reaches it by name.
    `storage` serves volumes to its nodes, if it can (the feature `volumes`). `boot_files` provides what nodes
    boot, before the lab starts; `start_messages` yields messages for the user about the start; `owner` asks
    the hypervisor for the owner of a node. `is_hollow` means that its kubelets are hollow, `has_shapes` that
    each node has its own memory and processors, `has_node_versions` that a node may have a kubelet of another
    version, `has_control_planes` that it may have three control planes, `has_host_clock` that its nodes share
    the clock of the harness's kernel, `hosts_control_plane` that its machines run the control plane, so that
    no run starts it: it is used like somebody's own cluster. `other_machines` are the names of machines that
    are no nodes. `deviations` lists how its nodes differ from a
    normal installation.
    `only_faults` are the words of the faults that it can have if it is somebody's own cluster, which is
    attached and never started, with the arguments that a scenario may set; None if it is a lab.
    """

    name: str
    make_nodes: Callable[[NodeEnvironment], Nodes] = _no_nodes
    features: frozenset[str] = frozenset()
    limits: Limits = Limits()
    host: HostNeeds = HostNeeds()
    kubelet: Callable[[], Mapping[str, Json]] = lambda: FIXED_KUBELET
    is_hollow: bool = False
    has_shapes: bool = False
    has_node_versions: bool = False
    has_control_planes: bool = False
    has_host_clock: bool = False
    hosts_control_plane: bool = False
    other_machines: Sequence[str] = ()
    deviations: Sequence[str] = ()
    storage: DriverFactory | None = None
    boot_files: Callable[[Components, Report], Mapping[str, str]] = lambda _components, _report: {}
    start_messages: Callable[[LabStatus, Sequence[Mapping[str, Json]]], Iterator[str]] = field(
        default=lambda _status, _events: iter(())
    )
    owner: Callable[[Run, str], str] = lambda _run, _node: ""
    connect: Callable[[str], Access] | None = None
    only_faults: Mapping[str, Set[str]] | None = None

    @property
    def is_attached(self) -> bool:
        """Whether it is somebody's own cluster."""
        return self.only_faults is not None

    @property
    def default_profile(self) -> Profile:
        """The profile of a lab that a person starts."""
        return DOCUMENTED if self.hosts_control_plane else FAST

    @property
    def kubelet_role(self) -> str:
        """The role of the executable that its nodes run."""
        return HOLLOW if self.is_hollow else KUBELET

    def check_host(self) -> None:
        """Check that the host has what only labs of this kind need. Raises Problem."""
        next_step = f"{hint_for(self.host.hint)}, or see `nodeproof doctor`"
        check_tools(self.host.tools, f"{self.name} lab", next_step)
        for check in self.host.checks:
            check()

    def check_nodes(self, count: int) -> None:
        """Check that a lab of this kind may have `count` nodes. Raises Problem."""
        if not 1 <= count <= self.limits.nodes:
            limits = f"a {self.name} lab has 1 to {self.limits.nodes}"
            raise Problem(f"{count} nodes requested", "--nodes", limits)

    def check_run(self) -> None:
        """Check that a run may use a lab of this kind as its lab. Raises Problem."""
        if self.hosts_control_plane:
            message = f"a {self.name} lab is used like your own cluster"
            raise Problem(message, "--lab", "run on it with --cluster FILE")

    def runs_tested_kubelet(self, components: Components) -> bool:
        """Return whether its kubelets are built from the Kubernetes version under test."""
        return components.hollow_from_tree or not self.is_hollow

    def flags_set(
        self, profile: Profile, overrides: Overrides = NO_OVERRIDES
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the settings per component that differ from upstream's defaults, for display.

        Claims about defaults do not use these: they read command lines and the kubelet's configuration file.
        """
        fixed = fixed_flags(profile, overrides.control_planes)
        flags: dict[str, dict[str, Json]] = {name: dict(values) for name, values in fixed.items()}
        flags["kube-apiserver"] |= profile.api_server
        flags["kube-controller-manager"] |= profile.controller_manager
        flags[KUBELET] = {**self.kubelet(), **profile.kubelet}
        for component in COMPONENTS:
            flags[component] = {**flags.get(component, {}), **overrides.of(component)}
        return {
            component: {name: str(value) for name, value in values.items()}
            for component, values in flags.items()
            if values
        }

    def settings(self, profile: Profile, overrides: Overrides = NO_OVERRIDES) -> list[str]:
        """Return every setting that differs from upstream's default, one line each, for display.

        Those of somebody's own cluster, and of one like it, are not of nodeproof's making.
        """
        if self.is_attached or self.hosts_control_plane:
            return []
        flags_of_components = [
            f"{component} {name}={value}"
            for component, flags in self.flags_set(profile, overrides).items()
            for name, value in flags.items()
        ]
        environment = [f"kubelet environment {name}={value}" for name, value in profile.kubelet_env.items()]
        return [*flags_of_components, *environment, *self.deviations, "etcd data in memory"]


RunKubectl = Callable[[Sequence[str], float, str], Mapping[str, Json]]
"""Runs kubectl with arguments, a timeout (s) and standard input; returns status, stdout, stderr."""


class Fleet(Protocol):
    """A lab's machines: their names, how to reach them, and power over them."""

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes, on or off; those of its zone if the fleet was narrowed. Raises Problem."""

    def zones(self) -> list[str]:
        """Return the zones of the whole lab. Raises Problem."""

    def restrict_to_zone(self, zone: str) -> None:
        """Restrict the fleet to the nodes of one zone from now on."""

    def is_in_other_zone(self, name: str) -> bool:
        """Return whether a node is, or was before it left, in another zone. Raises Problem."""

    def free_slot(self) -> int:
        """Return a slot where a node may join, even if other zones add nodes meanwhile. Raises Problem."""

    def node_names(self) -> list[str]:
        """Return the nodes' names. Raises Problem."""
        return [entry.name for entry in self.nodes()]

    def has(self, name: str) -> bool:
        """Return whether a node in any zone, or a control plane component, has that name. Raises Problem."""

    def control_planes(self) -> Mapping[str, str]:
        """Return the address of each of several control planes; none if there is only one."""
        return {}

    def machine(self, name: str, purpose: str = ...) -> Machine:
        """Return a node, a control plane component or the whole control plane as a machine.

        Its connection stays open, one per purpose: a command's timeout cuts off all commands that share a
        connection.

        Raises Problem if there is no such machine.
        """

    def dial(self, host: str, port: int, timeout_s: float, source: str = "") -> socket.socket:
        """Connect from where the lab's networks meet; `source` is the address to connect from, if any.

        Raises OSError, Problem.
        """

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        """Return the command lines of the control plane's components, as far as known. Raises Problem."""

    def owner(self, name: str) -> str:
        """Return a node's owner according to its hypervisor; empty without one. Raises Problem."""

    def join(self, spec: NodeSpec) -> None:
        """Let a machine join while the lab runs. Raises Problem."""

    def leave(self, name: str) -> None:
        """Power a node off for good. Raises Problem."""

    def fetch_journals(self, into: Path) -> None:
        """Fetch the present boot's journals of the machines; skip those that do not answer."""

    def close(self) -> None:
        """Close all connections."""


class Lifecycle(Protocol):
    """The life cycle of a lab: its health, its logs and its end."""

    def check_alive(self) -> None:
        """Raise Problem, with the last log lines, if a component has died; ignore nodes of other zones."""

    def has_control_plane(self) -> bool:
        """Return whether no control plane component has died. Raises Problem."""

    @property
    def logs(self) -> Path:
        """The folder of the components' logs, until the lab is closed. Raises Problem."""

    def last_lines(self, component: str) -> str:
        """Return the end of a component's log; empty if it has none. Raises Problem."""

    def full_parts(self, since_t: float | None = None) -> list[str]:
        """Describe each part of the lab's memory that is full, or was since a time (s, monotonic).

        Raises Problem.
        """

    def close(self) -> None:
        """Give up the lab; it stays."""

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""


@dataclass(frozen=True)
class Consent:
    """The consent of a cluster's owner to faults, in place of the record that a lab wrote of itself.

    `record` returns facts about the marked nodes; `permit` raises Refused unless a fault is permitted now;
    `check_open` raises Refused if no run can have injected a fault that the ledger lists; `abort` is polled
    while a fault is in.
    """

    record: Callable[[], Record]
    permit: Callable[[Fault, Declared], None]
    check_open: Callable[[Fault], None]
    abort: AbortPoll


@dataclass(frozen=True)
class Access:
    """Everything that `LabHandle` needs of a running lab.

    `dir` is a folder for the harness's files about the lab, with the `record.json` that the guard reads.
    `switch` arms dead-man's switches out of the faults' reach; `armed_faults` returns the faults whose switch
    was never disarmed. `upgrade_version` is the version that faults upgrade the control plane to, if any.
    `pods` says how pods of scenarios run, None that none may.
    Somebody's own cluster has a `consent`, a `ledger` that its other users see, and `read_configuration`.
    `heal_command` is the command that heals what a run left.
    """

    dir: Path
    features: frozenset[str]
    profile: str
    components: Components
    api: Api
    kubectl: RunKubectl
    fleet: Fleet
    life: Lifecycle
    switch: Deadman
    armed_faults: Callable[[], Sequence[Mapping[str, Json]]]
    upgrade_version: str = ""
    consent: Consent | None = None
    ledger: FaultLedger | None = None
    read_configuration: Callable[[Calibration], Configuration] | None = None
    heal_command: str = "nodeproof heal"
    pods: PodSettings | None = LAB_PODS
