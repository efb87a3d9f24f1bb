"""The options of a run, checked and completed before anything starts, and its number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeproof import terminal
from nodeproof.artifacts.build import BUILD, Version
from nodeproof.artifacts.checkout import Checkout, checkout_of
from nodeproof.artifacts.components import (
    Components,
    obtain,
    obtain_from,
    parse_node_versions,
    tested_version,
)
from nodeproof.capacity import max_labs, max_zones
from nodeproof.existing import inventory
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.marks import harm_refusals
from nodeproof.labs.base.profiles import DOCUMENTED, FAST, profile_named
from nodeproof.labs.base.spec import DEFAULT_SHAPE, Shape
from nodeproof.labs.base.wire import LabStatus
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.starting import NO_TOPOLOGY, Entry, Topology, check_versions, read_topology
from nodeproof.labs.kinds import DEFAULT_KIND, EXISTING, KINDS, kind_named
from nodeproof.labs.kinds.existing.consent import marked_nodes
from nodeproof.labs.kinds.existing.kind import CLIENT, RIGHTS
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.overrides import (
    GATES_OPTION,
    NO_OVERRIDES,
    SET_OPTION,
    SOURCE_OPTION,
    Overrides,
    parse,
    parse_control_planes,
    suffix,
    without_source,
)
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report.plain import counted

ANY = "any"
_MARKED = 2
"""Marked nodes that a run needs."""
_DEFAULT_NODES = 3
"""Default number of nodes of a lab, which suits most scenarios."""


@dataclass(frozen=True)
class Options:
    """The lab, profile and components of a run.

    Args:
        lab: a kind of lab to start, or the name of a running lab.
        nodes, zones: size of the lab; 0 means as many as the scenarios need.
        kind: kind of the lab.
        zone: zone of a running lab that a worker leases, `ANY` for any free one; empty for the whole lab.
        spread: number of nodes in each zone, if the zones differ.
        topology: nodes of the topology file, if there is one.
        overrides: settings of the user.
        source: checkout of Kubernetes to build; empty for none.
        checkout: its state when the run began.
        cluster: inventory of somebody's own cluster; empty for a lab.
        runs_pods: whether pods of scenarios may run.
    """

    lab: str = ""
    profile: str = ""
    kubernetes_version: str = ""
    components: str = BUILD
    claims: tuple[str, ...] = ()
    nodes: int = 0
    zones: int = 0
    kind: str = ""
    zone: str = ""
    spread: tuple[int, ...] = ()
    topology: Topology = NO_TOPOLOGY
    overrides: Overrides = NO_OVERRIDES
    source: str = ""
    checkout: Checkout | None = None
    cluster: str = ""
    runs_pods: bool = True

    @property
    def lab_kind(self) -> Kind:
        """The kind of the lab."""
        return kind_named(self.kind)

    @property
    def starts_lab(self) -> bool:
        """Whether the run starts the lab, and thus ends it."""
        return self.lab in KINDS

    @property
    def profile_name(self) -> str:
        """The profile in the name of the run, which tells runs with other settings apart."""
        return f"{self.profile}{suffix(self.overrides.texts)}"

    @property
    def planned_name(self) -> str:
        """The profile in the names of runs to plan by: without a source, which seldom changes durations."""
        return f"{self.profile}{suffix(without_source(self.overrides.texts))}"

    def obtain(self, report: Callable[[str], None]) -> Components:
        """Return the executables of a lab that the run starts. Raises Problem."""
        if self.checkout:
            return obtain_from(self.checkout, report)
        return obtain(self.components, self.kubernetes_version, report)


def options_of(config: pytest.Config) -> Options:
    """Return the options of a session, checked and completed. Raises Problem as `resolve` does."""
    names = ("lab", "profile", "kubernetes_version", "components", "nodes", "zones", "source", "cluster")
    values = {name: config.getoption(name) for name in names}
    # The checkout may have changed since the run began.
    checkout = getattr(config, "workerinput", {}).get("nodeproof_checkout")
    overrides = replace(
        parse(config.getoption("feature_gates"), config.getoption("set")),
        node_versions=parse_node_versions(config.getoption("node_versions")),
        upgrade_to=config.getoption("upgrade_to"),
        control_planes=parse_control_planes(config.getoption("control_planes")),
    )
    options = Options(
        **values,
        claims=tuple(config.getoption("claim")),
        topology=read_topology(config.getoption("topology")),
        overrides=overrides,
        checkout=Checkout(**checkout) if checkout else None,
    )
    return resolve(options, workers(config))


def dry_run(options: Options, report: Callable[[str], None]) -> Options:
    """Check the host, build the user's checkout, and try the user's settings on the executables of a lab.

    Raises:
        Problem: The host lacks what such a lab needs, the executables cannot be obtained, or one refuses a
            setting.
    """
    if not options.starts_lab:
        return options
    kind, profile = KINDS[options.kind], profile_named(options.profile)
    kind.check_host()
    if not options.overrides.texts:
        return options
    components = options.obtain(report)
    return replace(options, overrides=starting.dry_run(options.overrides, components, kind, profile))


def workers(config: pytest.Config) -> int:
    """Return the number of xdist's workers; 0 without xdist."""
    count = getattr(config, "workerinput", {}).get("workercount")
    return int(
        count or len(config.getoption("tx", None) or ()) or config.getoption("numprocesses", None) or 0
    )


def resolve(options: Options, workers: int = 0) -> Options:
    """Check the options and complete them.

    A running lab determines profile, version, settings and nodes; each worker leases one of its zones.

    Raises:
        Problem: The lab, profile or version is unknown, there are too many nodes or workers, or a running lab
            contradicts the options.
    """
    if options.topology.entries and (options.nodes or options.zones):
        next_step = "remove --nodes and --zones, or --topology"
        raise Problem("the topology file already sets nodes and zones", "--topology", next_step)
    if options.cluster:
        return _resolve_cluster(options, workers)
    options = replace(
        options,
        lab=options.lab or DEFAULT_KIND.name,
        kubernetes_version=options.topology.control_plane_version(options.kubernetes_version),
    )
    if options.profile:
        profile_named(options.profile)
    if options.kubernetes_version:
        Version.parse(options.kubernetes_version)
    if options.nodes:
        KINDS.get(options.lab, DEFAULT_KIND).check_nodes(options.nodes)
    if not options.starts_lab:
        return _resolve_running(options, workers)
    KINDS[options.lab].check_run()
    checkout = options.checkout or checkout_of(options.source, options.components, options.kubernetes_version)
    version = tested_version(options.components, options.kubernetes_version, checkout)
    overrides = _with_topology(options, version)
    check_versions(KINDS[options.lab], version, overrides)
    return replace(
        options,
        profile=options.profile or FAST.name,
        kubernetes_version=version,
        nodes=len(options.topology.entries) or options.nodes,
        zones=len(options.topology.spread) or options.zones,
        kind=options.lab,
        spread=options.topology.spread,
        overrides=replace(overrides, source=checkout.text if checkout else ""),
        checkout=checkout,
    )


def _resolve_cluster(options: Options, workers: int) -> Options:
    """Return the options of a run on somebody's own cluster. Raises Problem."""
    settings = {
        "--lab": options.lab,
        "--profile": options.profile.replace(DOCUMENTED.name, ""),
        "--kubernetes-version": options.kubernetes_version,
        "--components": options.components.replace(BUILD, ""),
        "--source": options.source,
        "--nodes": options.nodes,
        "--zones": options.zones,
        "--topology": options.topology.entries,
        "-n": workers,
    }
    refused = [option for option, value in settings.items() if value]
    refused += ["the options for settings and versions"] if options.overrides != NO_OVERRIDES else []
    if refused:
        what = f"not for somebody's own cluster, which has its own: {', '.join(refused)}"
        raise Problem(what, "--cluster", "leave it out")
    path = Path(options.cluster)
    content = inventory.read(path)
    content.check_run(datetime.now(UTC))
    with connected(path, CLIENT, RIGHTS) as cluster:
        version, nodes = str(cluster.api.get("/version")["gitVersion"]), cluster.nodes()
        marked = marked_nodes(cluster, nodes)
        if len(marked) < _MARKED:
            reasons = "\n".join(_unmarked(cluster, nodes))
            number = counted(len(marked), "marked node")
            what = f"{number} may be harmed, a run needs {_MARKED}: one stays in service"
            raise Problem(what, options.cluster, "mark nodes with `nodeproof mark`", reasons)
    others = inventory.not_available(fault for entry in content.nodes.values() for fault in entry.faults)
    if others:
        terminal.say(f"{path}: {others}")
    return replace(
        options,
        lab=str(path.absolute()),
        profile=DOCUMENTED.name,
        kubernetes_version=version,
        nodes=len(marked),
        zones=1,
        kind=EXISTING.name,
        runs_pods=bool(content.pod_image),
    )


def _unmarked(cluster: ConnectedCluster, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield a line for each listed node that must not be harmed now."""
    content, now = cluster.inventory, datetime.now(UTC)
    for name in content.nodes:
        reasons = list(harm_refusals(content, name, nodes, now))
        if reasons:
            yield f"{name}: {'; '.join(reasons)}"


def _with_topology(options: Options, control_plane: str) -> Overrides:
    """Return the settings with the versions of the topology's nodes. Raises Problem."""
    versions = options.topology.node_versions(options.overrides.node_versions, control_plane)
    return replace(options.overrides, node_versions=versions)


def _resolve_running(options: Options, workers: int) -> Options:
    """Return the options of a run on a running lab or one of its zones. Raises Problem."""
    name, _slash, zone = options.lab.partition("/")
    if name not in registry.running():
        running = ", ".join(registry.running()) or "none is up"
        choices = f"choose {', '.join(KINDS)}, or a running lab ({running})"
        raise Problem(f"unknown lab {options.lab!r}", "--lab", choices, "\n".join(KINDS.errors))
    status = registry.client(name).status()
    kind_named(status.kind).check_run()
    _check_settings(name, status, options)
    _check_nodes(name, status, options.topology.entries)
    sizes = Counter(node.zone for node in status.nodes)
    zone = zone or (ANY if workers else "")
    _check_zone(name, zone, sizes, workers)
    return replace(
        options,
        lab=name,
        profile=status.profile,
        kubernetes_version=status.kubernetes_version,
        nodes=sizes[zone] if zone in sizes else min(sizes.values()) if zone else sizes.total(),
        zones=1 if zone else len(sizes),
        kind=status.kind,
        zone=zone,
        overrides=status.overrides,
        spread=() if zone else tuple(sizes[zone_name] for zone_name in sorted(sizes)),
    )


def _check_zone(lab: str, zone: str, sizes: Counter[str], workers: int) -> None:
    """Check that the lab has this zone, and a zone for each worker. Raises Problem."""
    if zone and zone not in (ANY, *sizes):
        raise Problem(f"lab {lab} has no zone {zone!r}", "--lab", f"choose one of {', '.join(sorted(sizes))}")
    max_workers = 1 if zone in sizes else len(sizes)
    if workers > max_workers:
        next_step = f"use at most {max_workers}, one per zone"
        raise Problem(f"too many workers ({workers}) for lab {lab}", "-n", next_step)


def _check_settings(lab: str, status: LabStatus, options: Options) -> None:
    """Check that the lab has the profile, version and settings of the options. Raises Problem."""
    if options.source:
        next_step = "leave it out, or start a lab with `nodeproof up`"
        raise Problem(f"lab {lab} has its executables", SOURCE_OPTION, next_step)
    settings = (
        ("--profile", options.profile, status.profile),
        ("--kubernetes-version", options.kubernetes_version, status.kubernetes_version),
        (
            f"{GATES_OPTION}, {SET_OPTION}",
            " ".join(_with_topology(options, status.kubernetes_version).texts),
            " ".join(status.overrides.texts) or "without",
        ),
    )
    for option, expected, actual in settings:
        if expected and expected != actual:
            message = f"{expected} was given, lab {lab} runs {actual}"
            raise Problem(message, option, "leave it out, or start another lab")


def _check_nodes(lab: str, status: LabStatus, entries: tuple[Entry, ...]) -> None:
    """Check that the lab was started with the nodes of this topology. Raises Problem."""
    if not entries:
        return
    # Versions are settings: `_check_settings` compares them.
    expected = {replace(entry, kubelet_version="") for entry in entries}
    for node in status.nodes:
        expected ^= {Entry(node.name, node.zone, Shape(memory_mib=node.memory_mib, cpus=node.cpus))}
    different = sorted({entry.name for entry in expected})
    if different:
        message = f"lab {lab} was started with another topology: {', '.join(different)}"
        raise Problem(message, "--topology", f"leave it out, or run `nodeproof down --lab-name {lab}` first")


def default_workers(config: pytest.Config) -> int:
    """Return the number of workers that this machine supports, and print the reason; 0 on a running lab.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    supported, reason = _supported_workers(config)
    if supported:
        terminal.say(f"{supported} workers ({reason})")
    return supported


def set_default_workers(config: pytest.Config) -> None:
    """Set `-n auto` as the default on kinds of labs that gain from it, but not with `--pdb` or `-s`.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    kind = KINDS.get(config.getoption("lab") or DEFAULT_KIND.name)
    if kind is None or not kind.limits.runs_in_parallel or _has_workers_set(config):
        return
    if (supported := default_workers(config)) > 1:
        config.option.numprocesses = supported


def _has_workers_set(config: pytest.Config) -> bool:
    """Return whether options determine the number of workers, or this is a worker, which starts no others."""
    if hasattr(config, "workerinput"):
        return True
    if config.getoption("numprocesses", 0) is not None or config.getoption("tx", ()):
        return True
    is_interactive = config.getoption("usepdb") or config.getoption("capture") == "no"
    return bool(is_interactive or config.getoption("dist", "no") != "no")


def warn_of_excess_workers(config: pytest.Config) -> None:
    """Warn if more workers are requested than this machine supports: verdicts may be `host-too-loaded`.

    Raises:
        Problem: The available memory is unknown, or the topology is invalid.
    """
    requested, (supported, reason) = config.getoption("numprocesses", None), _supported_workers(config)
    if isinstance(requested, int) and 0 < supported < requested:
        limit = f"but this machine supports {supported} ({reason})"
        terminal.say(f"{requested} workers were requested, {limit}; verdicts may be host-too-loaded")


def _supported_workers(config: pytest.Config) -> tuple[int, str]:
    """Return the number of workers that this machine supports, and the reason; 0 on a running lab.

    A running lab may lack more than zones for its scenarios to run in parallel.
    """
    lab = config.getoption("lab") or DEFAULT_KIND.name
    if lab not in KINDS:
        return 0, ""
    shapes, kind = _node_shapes(config), KINDS[lab]
    if not shapes and kind.limits.zones_per_core:
        return max_zones(kind, _DEFAULT_NODES)
    return max_labs(kind, shapes or [DEFAULT_SHAPE] * _DEFAULT_NODES)


def _node_shapes(config: pytest.Config) -> Sequence[Shape]:
    """Return the nodes of each lab as given by options; empty without options. Raises Problem."""
    if entries := read_topology(config.getoption("topology")).entries:
        return [entry.shape for entry in entries]
    nodes, zones = config.getoption("nodes"), config.getoption("zones")
    return [DEFAULT_SHAPE] * (nodes or (max(_DEFAULT_NODES, 2 * zones) if zones else 0))
