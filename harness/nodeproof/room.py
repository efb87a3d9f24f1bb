"""How many labs fit on this machine, by its available memory and usable processors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nodeproof.labs.ground.spec import Shape
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.problem import Problem

_MEMORY_INFO = Path("/proc/meminfo")
_CONTROL_PLANE_MIB = 512
"""Measured."""
_WORKER_MIB = 256
"""Memory of a worker that records and judges: measured 135, plus a long recording."""


def lab_mib(kind: Kind, shapes: Sequence[Shape]) -> int:
    """Return the memory that a lab of these nodes needs (MiB)."""
    return _CONTROL_PLANE_MIB + sum(_node_mib(kind, shape) for shape in shapes)


def _node_mib(kind: Kind, shape: Shape) -> int:
    more_mib = shape.memory_mib - kind.host.machine_mib if shape.memory_mib else 0
    return kind.host.node_mib + more_mib


def available_mib() -> int:
    """Return the machine's available memory (MiB). Raises Problem."""
    for line in _MEMORY_INFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise Problem("no MemAvailable", str(_MEMORY_INFO), "use Linux 3.14 or newer")


def labs_at_once(kind: Kind, shapes: Sequence[Shape]) -> tuple[int, str]:
    """Return how many labs of these nodes may run in parallel (at least 1), and the reason.

    Raises:
        Problem: The available memory is unknown.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib()
    # `labs_per_core` assumes nodes with one CPU each.
    per_core = kind.limits.labs_per_core * len(shapes) / sum(shape.cpus for shape in shapes)
    by_cores = int(cores * per_core)
    by_memory = free_mib // (lab_mib(kind, shapes) + _WORKER_MIB)
    reason = (
        f"{per_core:.2g} {kind.name} labs a core and {cores} cores: {by_cores}; "
        f"{free_mib / 1024:.1f} GiB of memory: {by_memory}"
    )
    return max(1, min(by_cores, by_memory)), reason


def zones_at_once(kind: Kind, nodes: int) -> tuple[int, str]:
    """Return how many zones of this many nodes one lab may have (at least 1), and the reason.

    Raises:
        Problem: The available memory is unknown.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib() - lab_mib(kind, ())
    by_cores = int(cores * kind.limits.zones_per_core)
    by_memory = max(0, free_mib) // (nodes * kind.host.node_mib + _WORKER_MIB)
    by_limit = kind.limits.nodes // nodes
    reason = (
        f"{kind.limits.zones_per_core:g} zones of one {kind.name} lab a core and {cores} cores: {by_cores}; "
        f"{free_mib / 1024:.1f} GiB of memory: {by_memory}"
    )
    return max(1, min(by_cores, by_memory, by_limit)), reason
