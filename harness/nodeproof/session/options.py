"""The options of a run, checked and completed before anything starts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from nodeproof.artifacts.components import BUILD, DEFAULT_KUBERNETES_VERSION, check_version, supplied_version
from nodeproof.labs.client import registry, topology
from nodeproof.labs.client.topology import Entry
from nodeproof.labs.ground.profiles import FAST, profile_named
from nodeproof.labs.ground.spec import Shape
from nodeproof.labs.kinds import DEFAULT_KIND, KINDS
from nodeproof.model.problem import Problem

ANY = "any"


@dataclass(frozen=True)
class Options:
    """The lab, profile and components of a run.

    Args:
        lab: a kind of lab to start, or the name of a running lab.
        nodes, zones: size of the lab; 0 means as many as the scenarios need.
        kind: kind of the lab.
        zone: zone of a running lab that a worker leases, `ANY` for any free one; empty for the whole lab.
        spread: number of nodes in each zone, if the zones differ.
        entries: nodes of the topology file, if there is one.
    """

    lab: str
    profile: str
    kubernetes_version: str
    components: str
    claims: tuple[str, ...]
    nodes: int
    zones: int
    kind: str
    zone: str = ""
    spread: tuple[int, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Whether the run starts the lab, and thus ends it."""
        return self.lab in KINDS


def resolve(
    lab: str,
    profile: str,
    version: str,
    components: str,
    claims: tuple[str, ...],
    nodes: int,
    zones: int,
    workers: int = 0,
    entries: tuple[Entry, ...] = (),
) -> Options:
    """Check the options and complete them.

    A running lab determines profile, version and nodes; each worker leases one of its zones.

    Raises:
        Problem: The lab, profile or version is unknown, there are too many nodes or workers, or a running lab
            contradicts the options.
    """
    if entries and (nodes or zones):
        raise Problem(
            "the topology file already sets nodes and zones", "--topology", "leave --nodes and --zones out"
        )
    lab = lab or DEFAULT_KIND.name
    if profile:
        profile_named(profile)
    if version:
        check_version(version)
    if nodes:
        KINDS.get(lab, DEFAULT_KIND).check_nodes(nodes)
    if lab not in KINDS:
        return _resolve_running(lab, profile, version, components, claims, workers, entries)
    kubernetes_version = version or (
        DEFAULT_KUBERNETES_VERSION if components == BUILD else supplied_version(components)
    )
    spread = topology.spread(entries)
    nodes, zones = (len(entries), len(spread)) if entries else (nodes, zones)
    runs = (profile or FAST.name, kubernetes_version, components, claims)
    return Options(lab, *runs, nodes, zones, lab, spread=spread, entries=entries)


def _resolve_running(
    lab: str,
    profile: str,
    version: str,
    components: str,
    claims: tuple[str, ...],
    workers: int,
    entries: tuple[Entry, ...],
) -> Options:
    """Return the options of a run on a running lab or one of its zones. Raises Problem."""
    name, _slash, zone = lab.partition("/")
    if name not in registry.running():
        running = ", ".join(registry.running()) or "none is up"
        raise Problem(
            f"unknown lab {lab!r}", "--lab", f"choose {', '.join(KINDS)}, or a running lab ({running})"
        )
    status: Any = registry.client(name).status()
    _check_settings(name, status, profile, version)
    _check_nodes(name, status, entries)
    sizes = Counter(node["zone"] for node in status["nodes"])
    zone = zone or (ANY if workers else "")
    _check_zone(name, zone, sizes, workers)
    nodes = sizes[zone] if zone in sizes else min(sizes.values()) if zone else sizes.total()
    runs = (status["profile"], status["kubernetes_version"], components, claims)
    spread = () if zone else tuple(sizes[zone_name] for zone_name in sorted(sizes))
    return Options(name, *runs, nodes, 1 if zone else len(sizes), status["kind"], zone, spread)


def _check_zone(lab: str, zone: str, sizes: Counter[str], workers: int) -> None:
    """Check that the lab has this zone, and a zone for each worker. Raises Problem."""
    if zone and zone not in (ANY, *sizes):
        raise Problem(f"lab {lab} has no zone {zone!r}", "--lab", f"choose one of {', '.join(sorted(sizes))}")
    max_workers = 1 if zone in sizes else len(sizes)
    if workers > max_workers:
        raise Problem(
            f"too many workers ({workers}) for lab {lab}", "-n", f"use at most {max_workers}, one per zone"
        )


def _check_settings(lab: str, status: Any, profile: str, version: str) -> None:
    """Check that the lab has the profile and version of the options. Raises Problem."""
    options = (
        ("--profile", profile, status["profile"]),
        ("--kubernetes-version", version, status["kubernetes_version"]),
    )
    for option, expected, actual in options:
        if expected and expected != actual:
            raise Problem(
                f"{expected} was given, lab {lab} runs {actual}", option, "leave it out, or start another lab"
            )


def _check_nodes(lab: str, status: Any, entries: tuple[Entry, ...]) -> None:
    """Check that the lab was started with the nodes of this topology. Raises Problem."""
    if not entries:
        return
    nodes = [
        Entry(node["name"], node["zone"], Shape(memory_mib=node["memory_mib"], cpus=node["cpus"]))
        for node in status["nodes"]
    ]
    different = sorted({entry.name for entry in {*entries} ^ {*nodes}})
    if different:
        message = f"lab {lab} was started with another topology: {', '.join(different)}"
        raise Problem(message, "--topology", f"leave it out, or run `nodeproof down --lab-name {lab}` first")
