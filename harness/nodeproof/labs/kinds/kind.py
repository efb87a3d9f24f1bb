"""What a kind of lab is: one object that says all that differs between kinds; nobody asks for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeproof.artifacts.components import Components
from nodeproof.labs.ground.nodes import Ground, Nodes
from nodeproof.labs.ground.profiles import FIXED, FIXED_KUBELET, Profile
from nodeproof.labs.ground.storage import Serves
from nodeproof.model.needs import MOST_IN_A_ZONE
from nodeproof.model.problem import Problem
from nodeproof.remedy import BASE, Remedy

Json = Any
Report = Callable[[str], None]
Run = Callable[[Sequence[str]], str]
"""Runs a command where a lab's hypervisor is; gives its output."""
OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `ok`, a `note` that stops no lab, or `missing` with what mends it."""

    state: str
    what: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"  {self.state:<8} {self.what}"
        return f"{line}; {self.mend}" if self.mend else line


@dataclass(frozen=True)
class Trial:
    """Something done in namespaces of its own, which go with it: whether the kernel lets root do it."""

    what: str
    script: str
    mend: str


@dataclass(frozen=True)
class Image:
    """What nodes boot, where that has to be built: with which programs, in how much space of the cache (GiB),
    and whether it is there already.
    """

    tools: Sequence[str]
    space_gib: float
    is_kept: Callable[[Components], bool]


@dataclass(frozen=True)
class HostNeeds:
    """What a lab needs of its host beyond its control plane, and beyond the programs that every lab runs.

    Memory, space and inotify instances are for each node; the defaults are a hollow node's, as measured. Of
    that memory, a node that is a machine gives `machine_mib` to it, if its shape does not say otherwise. One
    that is not `is_looked_at` is looked for only when its kind is named.
    """

    node_mib: int = 40
    machine_mib: int = 0
    node_gib: float = 0.0
    node_inotify: int = 4
    tools: Sequence[str] = ()
    trials: Sequence[Trial] = ()
    checks: Sequence[Callable[[], str]] = ()
    notes: Callable[[], Iterator[Finding]] = lambda: iter(())
    image: Image | None = None
    remedy: Remedy = BASE
    is_looked_at: bool = True


@dataclass(frozen=True)
class Limits:
    """How many nodes a lab has at most, how long until it serves (s), of its own memory, what each node gets,
    and how many labs, or zones of one lab, side by side a core bears without making verdicts unproven; none
    where zones are not shared. A scenario that needs more than `common_nodes` has a lab of its own size, or
    one that is made as large for it. Runs that are not told how many slots have as many as that where they
    are `side_by_side`, else one.
    """

    nodes: int = 100
    ready_s: float = 180.0
    node_mib: int = 64
    labs_per_core: float = 1.5
    zones_per_core: float = 1.5
    common_nodes: int = MOST_IN_A_ZONE
    side_by_side: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of lab.

    `features` are what scenarios may ask of it (`nodeproof.model.needs`), `host` is what `nodeproof doctor`
    looks for, `kubelet` how its kubelets are set before the profile. `make_nodes` is for the lab's init.
    `storage` says how volumes get to its nodes, where they can (the feature `volumes`).
    `boots` obtains, before it starts, what nodes boot; `started` says what a user should know of how that
    went; `owner` asks the hypervisor whose machine a node is. `is_hollow` says that its kubelets are hollow
    ones, `has_shapes` that each node has memory and processors of its own, `has_host_clock` that its nodes
    tell the time by the kernel that the harness runs on, `made_of` what its nodes differ in from what
    somebody installs.
    """

    name: str
    make_nodes: Callable[[Ground], Nodes]
    features: frozenset[str] = frozenset()
    limits: Limits = Limits()
    host: HostNeeds = HostNeeds()
    kubelet: Callable[[], Mapping[str, Json]] = lambda: FIXED_KUBELET
    is_hollow: bool = False
    has_shapes: bool = False
    has_host_clock: bool = False
    made_of: Sequence[str] = ()
    storage: Serves | None = None
    boots: Callable[[Components, Report], Mapping[str, str]] = lambda _components, _report: {}
    started: Callable[[Mapping[str, Json], Sequence[Mapping[str, Json]]], Iterator[str]] = field(
        default=lambda _status, _events: iter(())
    )
    owner: Callable[[Run, str], str] = lambda _run, _node: ""

    def check_nodes(self, count: int) -> None:
        """Refuse more nodes than such a lab may have. Raises Problem."""
        if not 1 <= count <= self.limits.nodes:
            said = f"a {self.name} lab has 1 to {self.limits.nodes}"
            raise Problem(f"{count} nodes asked for", "--nodes", said)

    def runs_tested_kubelet(self, components: Components) -> bool:
        """Whether the code of its kubelets is that of the Kubernetes under test."""
        return components.hollow_from_tree or not self.is_hollow

    def flags_set(self, profile: Profile) -> Mapping[str, Mapping[str, str]]:
        """Per component, what a lab sets and upstream does not, for people. What a default claim may not look
        at is read from command lines and from a kubelet's file.
        """
        kubelet = {**self.kubelet(), **profile.kubelet}
        return {
            **FIXED,
            "kube-apiserver": {**FIXED["kube-apiserver"], **profile.api_server},
            "kube-controller-manager": {**FIXED["kube-controller-manager"], **profile.controller_manager},
            "kubelet": {name: str(value) for name, value in kubelet.items()},
        }

    def settings(self, profile: Profile) -> list[str]:
        """Every setting that differs from upstream's default, for people."""
        shown = [
            f"{component} {name}={value}"
            for component, flags in self.flags_set(profile).items()
            for name, value in flags.items()
        ]
        environment = [f"kubelet environment {name}={value}" for name, value in profile.kubelet_env.items()]
        return [*shown, *environment, *self.made_of, "etcd data in memory"]
