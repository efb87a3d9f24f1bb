"""The interface of a kind of lab: one object with everything that differs; no code checks a kind's name."""

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
"""Runs a command beside a lab's hypervisor and returns its output."""
OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: `ok`, `missing` with its fix, or a `note` that stops no lab."""

    state: str
    what: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"  {self.state:<8} {self.what}"
        return f"{line}; {self.mend}" if self.mend else line


@dataclass(frozen=True)
class Trial:
    """A script that root tries in its own namespaces, which shows whether the kernel allows it."""

    what: str
    script: str
    mend: str


@dataclass(frozen=True)
class Image:
    """An image that nodes boot and that has to be built.

    `tools` are the programs that build it, `space_gib` is its size in the cache, and `is_kept` returns
    whether it is built already.
    """

    tools: Sequence[str]
    space_gib: float
    is_kept: Callable[[Components], bool]


@dataclass(frozen=True)
class HostNeeds:
    """What a lab needs of its host, besides its control plane and the programs that every lab runs.

    Memory, space and inotify instances are per node; the defaults were measured with hollow nodes.
    `machine_mib` is the part of a node's memory that its virtual machine gets, unless its shape differs.
    `doctor` checks a kind with `is_looked_at` False only if it is named.
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
    """The limits of a kind of lab.

    `nodes` is the maximum number of nodes, `ready_s` the timeout until the lab serves, `node_mib` each node's
    share of the lab's memory. `labs_per_core` and `zones_per_core` are how many labs, or zones of one lab, a
    core supports in parallel without making verdicts unproven; 0 if zones are not shared. A scenario that
    needs more than `common_nodes` gets a lab of its own size, or one resized for it. Runs without a number of
    slots use as many as the host supports with `side_by_side`, else one.
    """

    nodes: int = 100
    ready_s: float = 180.0
    node_mib: int = 64
    labs_per_core: float = 1.5
    zones_per_core: float = 2.0
    common_nodes: int = MOST_IN_A_ZONE
    side_by_side: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of lab.

    `features` are what scenarios may require (`nodeproof.model.needs`), `host` is what `nodeproof doctor`
    checks, `kubelet` returns the settings of its kubelets before the profile's. The lab's init calls
    `make_nodes`. `storage` serves volumes to its nodes, if it can (the feature `volumes`). `boots` provides
    what nodes boot, before the lab starts; `started` yields messages for the user about the start; `owner`
    asks the hypervisor for the owner of a node. `is_hollow` means that its kubelets are hollow, `has_shapes`
    that each node has its own memory and processors, `has_host_clock` that its nodes share the clock of the
    harness's kernel. `made_of` lists how its nodes differ from a normal installation.
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
        """Check that a lab of this kind may have `count` nodes. Raises Problem."""
        if not 1 <= count <= self.limits.nodes:
            limits = f"a {self.name} lab has 1 to {self.limits.nodes}"
            raise Problem(f"{count} nodes requested", "--nodes", limits)

    def runs_tested_kubelet(self, components: Components) -> bool:
        """Return whether its kubelets are built from the Kubernetes version under test."""
        return components.hollow_from_tree or not self.is_hollow

    def flags_set(self, profile: Profile) -> Mapping[str, Mapping[str, str]]:
        """Return the settings per component that differ from upstream's defaults, for display.

        Claims about defaults do not use these: they read command lines and the kubelet's configuration file.
        """
        kubelet = {**self.kubelet(), **profile.kubelet}
        return {
            **FIXED,
            "kube-apiserver": {**FIXED["kube-apiserver"], **profile.api_server},
            "kube-controller-manager": {**FIXED["kube-controller-manager"], **profile.controller_manager},
            "kubelet": {name: str(value) for name, value in kubelet.items()},
        }

    def settings(self, profile: Profile) -> list[str]:
        """Return every setting that differs from upstream's default, one line each, for display."""
        flags_of_components = [
            f"{component} {name}={value}"
            for component, flags in self.flags_set(profile).items()
            for name, value in flags.items()
        ]
        environment = [f"kubelet environment {name}={value}" for name, value in profile.kubelet_env.items()]
        return [*flags_of_components, *environment, *self.made_of, "etcd data in memory"]
