"""Topology files: the machines of a lab, with their names, zones, memory and processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import catalogue
from nodeproof.labs.ground.spec import AS_ALL, Shape, check_node_name
from nodeproof.model.catalogue import plain
from nodeproof.model.problem import Problem

Json = Any
_LEAST_MIB, _MOST_MIB = 768, 65536
_MOST_CPUS = 64
_SHOWN = 80
_KEYS = frozenset({"name", "zone", "memory_mib", "cpus"})


@dataclass(frozen=True)
class Entry:
    """One machine of a topology."""

    name: str
    zone: str
    shape: Shape = AS_ALL


def read(path: Path) -> tuple[Entry, ...]:
    """Return the machines of a topology file, in the order of their addresses. Raises Problem."""
    try:
        topology = plain(catalogue.read(path), str(path))
    except OSError as error:
        raise Problem(f"cannot read the topology: {error}", str(path), "see infra/topology") from error
    except Problem as problem:
        raise Problem(
            f"cannot read the topology: {problem.what}", problem.where, "see infra/topology"
        ) from problem
    nodes = topology.get("nodes") if isinstance(topology, dict) and set(topology) == {"nodes"} else None
    if not isinstance(nodes, list) or not nodes:
        raise Problem(
            "a topology must be a list of `nodes` and nothing else", str(path), "see infra/topology"
        )
    entries = tuple(_entry(node, f"{path}, node {number}") for number, node in enumerate(nodes, 1))
    for name, count in Counter(entry.name for entry in entries).items():
        if count > 1:
            raise Problem(f"{count} nodes are called {name}", str(path), "give each node a different name")
    return entries


def spread(entries: Sequence[Entry]) -> tuple[int, ...]:
    """Return the number of nodes in each zone, in the order of the zones' names."""
    counts = Counter(entry.zone for entry in entries)
    return tuple(counts[zone] for zone in sorted(counts))


def _entry(entry: Json, where: str) -> Entry:
    if not isinstance(entry, dict) or not {"name", "zone"} <= set(entry) <= _KEYS:
        raise Problem(
            f"{repr(entry)[:_SHOWN]} is not a node",
            where,
            f"it needs name and zone, and allows only {sorted(_KEYS)}",
        )
    for key in ("name", "zone"):
        check_node_name(str(entry[key]))
    shape = Shape(
        memory_mib=_number(entry, "memory_mib", AS_ALL.memory_mib, (_LEAST_MIB, _MOST_MIB), where),
        cpus=_number(entry, "cpus", AS_ALL.cpus, (1, _MOST_CPUS), where),
    )
    return Entry(str(entry["name"]), str(entry["zone"]), shape)


def _number(entry: Mapping[str, Json], key: str, without: int, limits: tuple[int, int], where: str) -> int:
    value, (least, most) = entry.get(key, without), limits
    if key in entry and (type(value) is not int or not least <= value <= most):
        raise Problem(f"{key} is {repr(value)[:_SHOWN]}", where, f"use a whole number from {least} to {most}")
    return int(value)
