"""Which machines a lab is made of, where a file says so: names, zones, memory, processors."""

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
    """One machine to be."""

    name: str
    zone: str
    shape: Shape = AS_ALL


def read(path: Path) -> tuple[Entry, ...]:
    """The machines of a topology file, in its order, which is that of their addresses. Raises Problem."""
    try:
        told = plain(catalogue.read(path), str(path))
    except OSError as error:
        raise Problem(f"no topology: {error}", str(path), "see infra/topology") from error
    except Problem as problem:
        raise Problem(f"no topology: {problem.what}", problem.where, "see infra/topology") from problem
    nodes = told.get("nodes") if isinstance(told, dict) and set(told) == {"nodes"} else None
    if not isinstance(nodes, list) or not nodes:
        raise Problem("a topology is a list of `nodes` and nothing else", str(path), "see infra/topology")
    entries = tuple(_entry(told, f"{path}, node {number}") for number, told in enumerate(nodes, 1))
    for name, count in Counter(entry.name for entry in entries).items():
        if count > 1:
            raise Problem(f"{count} nodes are called {name}", str(path), "give each a name of its own")
    return entries


def spread(entries: Sequence[Entry]) -> tuple[int, ...]:
    """How many nodes are in each zone, in the order of the zones' names."""
    counts = Counter(entry.zone for entry in entries)
    return tuple(counts[zone] for zone in sorted(counts))


def _entry(entry: Json, where: str) -> Entry:
    if not isinstance(entry, dict) or not {"name", "zone"} <= set(entry) <= _KEYS:
        raise Problem(
            f"{repr(entry)[:_SHOWN]} is no node",
            where,
            f"it has name and zone, and of {sorted(_KEYS)} no other",
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
        raise Problem(f"{key} is {repr(value)[:_SHOWN]}", where, f"say a whole number from {least} to {most}")
    return int(value)
