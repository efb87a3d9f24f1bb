"""How many labs this machine has room for: by its memory, and by the processors that it may use."""

from __future__ import annotations

import os
from pathlib import Path

from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.problem import Problem

_MEMORY_INFO = Path("/proc/meminfo")
_CONTROL_PLANE_MIB = 512
"""Measured."""
_WORKER_MIB = 256
"""What a worker takes, that records and judges: measured 135, and a long recording."""


def lab_mib(kind: Kind, nodes: int) -> int:
    """What a lab of so many nodes takes of the machine's memory (MiB)."""
    return _CONTROL_PLANE_MIB + nodes * kind.host.node_mib


def available_mib() -> int:
    """What the machine can give (MiB). Raises Problem."""
    for line in _MEMORY_INFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise Problem("no MemAvailable", str(_MEMORY_INFO), "use Linux 3.14 or newer")


def labs_at_once(kind: Kind, nodes: int) -> tuple[int, str]:
    """How many labs of so many nodes can be tried side by side, at least one, and why so many. Raises
    Problem.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib()
    by_cores = int(cores * kind.limits.labs_per_core)
    by_memory = free_mib // (lab_mib(kind, nodes) + _WORKER_MIB)
    said = (
        f"{kind.limits.labs_per_core:g} {kind.name} labs a core and {cores} cores: {by_cores}; "
        f"{free_mib / 1024:.1f} GiB of memory: {by_memory}"
    )
    return max(1, min(by_cores, by_memory)), said


def zones_at_once(kind: Kind, nodes: int) -> tuple[int, str]:
    """How many zones of so many nodes one lab can be tried with, at least one, and why so many. Raises
    Problem.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib() - lab_mib(kind, 0)
    by_cores = int(cores * kind.limits.zones_per_core)
    by_memory = max(0, free_mib) // (nodes * kind.host.node_mib + _WORKER_MIB)
    by_limit = kind.limits.nodes // nodes
    said = (
        f"{kind.limits.zones_per_core:g} zones of one {kind.name} lab a core and {cores} cores: {by_cores}; "
        f"{free_mib / 1024:.1f} GiB of memory: {by_memory}"
    )
    return max(1, min(by_cores, by_memory, by_limit)), said
