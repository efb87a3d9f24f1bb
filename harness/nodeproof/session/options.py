"""What the user asked for, checked and completed before anything is started."""

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
    """A run's lab, profile and components; `lab` is a kind to start, or the name of a lab that runs,
    `kind` what kind it is.

    `nodes` and `zones` 0 mean as many as the scenarios need. `zone` is the one that a worker leases of a lab
    that runs, `ANY` for whichever is free; without one it takes the whole lab. `entries` is what a topology
    says of each node.
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
        """Whether the run starts the lab and so ends it."""
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
    """Check what was asked for. A lab that runs decides about its profile, version and nodes itself; of its
    zones each worker leases one.

    Raises Problem on an unknown lab, profile or version, on too many nodes or workers, and where the lab is
    something else than what was asked for.
    """
    if entries and (nodes or zones):
        raise Problem("nodes and zones are the topology's", "--topology", "leave --nodes and --zones out")
    lab = lab or DEFAULT_KIND.name
    if profile:
        profile_named(profile)
    if version:
        check_version(version)
    if nodes:
        KINDS.get(lab, DEFAULT_KIND).check_nodes(nodes)
    if lab not in KINDS:
        return _of_running(lab, profile, version, components, claims, workers, entries)
    found = version or (DEFAULT_KUBERNETES_VERSION if components == BUILD else supplied_version(components))
    spread = topology.spread(entries)
    nodes, zones = (len(entries), len(spread)) if entries else (nodes, zones)
    runs = (profile or FAST.name, found, components, claims)
    return Options(lab, *runs, nodes, zones, lab, spread=spread, entries=entries)


def _of_running(
    lab: str,
    profile: str,
    version: str,
    components: str,
    claims: tuple[str, ...],
    workers: int,
    entries: tuple[Entry, ...],
) -> Options:
    """A run on a lab that is up, or on one of its zones. Raises Problem."""
    name, _slash, zone = lab.partition("/")
    if name not in registry.running():
        alive = ", ".join(registry.running()) or "none is up"
        raise Problem(
            f"unknown lab {lab!r}", "--lab", f"choose {', '.join(KINDS)}, or a running lab ({alive})"
        )
    status: Any = registry.client(name).status()
    _refuse_other(name, status, profile, version)
    _refuse_other_nodes(name, status, entries)
    sizes = Counter(node["zone"] for node in status["nodes"])
    zone = zone or (ANY if workers else "")
    _check_zone(name, zone, sizes, workers)
    nodes = sizes[zone] if zone in sizes else min(sizes.values()) if zone else sizes.total()
    runs = (status["profile"], status["kubernetes_version"], components, claims)
    spread = () if zone else tuple(sizes[each] for each in sorted(sizes))
    return Options(name, *runs, nodes, 1 if zone else len(sizes), status["kind"], zone, spread)


def _check_zone(lab: str, zone: str, sizes: Counter[str], workers: int) -> None:
    """Raises Problem where the lab does not have this zone, or not as many as there are workers."""
    if zone and zone not in (ANY, *sizes):
        raise Problem(f"lab {lab} has no zone {zone!r}", "--lab", f"there are: {', '.join(sorted(sizes))}")
    most = 1 if zone in sizes else len(sizes)
    if workers > most:
        raise Problem(
            f"{workers} workers for zones of lab {lab}: {most}", "-n", "each takes a zone: ask for fewer"
        )


def _refuse_other(lab: str, status: Any, profile: str, version: str) -> None:
    """Raises Problem where the lab is something else than what was asked for."""
    asked = (
        ("--profile", profile, status["profile"]),
        ("--kubernetes-version", version, status["kubernetes_version"]),
    )
    for option, wanted, runs in asked:
        if wanted and wanted != runs:
            raise Problem(
                f"{wanted} was asked for, lab {lab} runs {runs}", option, "leave it out, or start another lab"
            )


def _refuse_other_nodes(lab: str, status: Any, entries: tuple[Entry, ...]) -> None:
    """Raises Problem where a topology says other nodes than a lab was started with."""
    if not entries:
        return
    has = [
        Entry(node["name"], node["zone"], Shape(memory_mib=node["memory_mib"], cpus=node["cpus"]))
        for node in status["nodes"]
    ]
    other = sorted({entry.name for entry in {*entries} ^ {*has}})
    if other:
        said = f"lab {lab} was started with another topology: {', '.join(other)}"
        raise Problem(said, "--topology", f"leave it out, or `nodeproof down --lab-name {lab}` first")
