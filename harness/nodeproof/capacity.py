"""What this machine can bear: how many labs fit on it, and its present load."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from nodeproof.labs.base.spec import Shape
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.problem import Problem

_MEMORY_INFO, _CPU_PRESSURE = Path("/proc/meminfo"), Path("/proc/pressure/cpu")
_WORKER_MIB = 256
"""Memory of a worker that records and judges: measured 135, plus a long recording."""
_SOME_PRESSURE = re.compile(r"some avg10=(\d+(?:\.\d+)?)")
_LEAST_SHARE = 0.05
"""Share of a processor below which a process is not worth naming."""


def lab_mib(kind: Kind, shapes: Sequence[Shape]) -> int:
    """Return the memory that a lab of these nodes needs (MiB)."""
    more_mib = sum(shape.memory_mib - kind.host.machine_mib for shape in shapes if shape.memory_mib)
    return kind.host.control_plane_mib + kind.host.node_mib * len(shapes) + more_mib


def available_mib() -> int:
    """Return the machine's available memory (MiB). Raises Problem."""
    for line in _MEMORY_INFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    raise Problem("no MemAvailable", str(_MEMORY_INFO), "use Linux 3.14 or newer")


def max_labs(kind: Kind, shapes: Sequence[Shape]) -> tuple[int, str]:
    """Return how many labs of these nodes may run in parallel (at least 1), and the reason.

    Raises:
        Problem: The available memory is unknown.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib()
    # `labs_per_core` assumes nodes with one CPU each.
    per_core = kind.limits.labs_per_core * len(shapes) / sum(shape.cpus for shape in shapes)
    by_cores = int(cores * per_core)
    by_memory = free_mib // (lab_mib(kind, shapes) + _WORKER_MIB)
    what = f"{per_core:.2g} {kind.name} labs"
    return max(1, min(by_cores, by_memory)), _reason(what, cores, by_cores, free_mib, by_memory)


def max_zones(kind: Kind, nodes: int) -> tuple[int, str]:
    """Return how many zones of this many nodes one lab may have (at least 1), and the reason.

    Raises:
        Problem: The available memory is unknown.
    """
    cores, free_mib = len(os.sched_getaffinity(0)), available_mib() - lab_mib(kind, ())
    by_cores = int(cores * kind.limits.zones_per_core)
    by_memory = max(0, free_mib) // (nodes * kind.host.node_mib + _WORKER_MIB)
    by_limit = kind.limits.nodes // nodes
    what = f"{kind.limits.zones_per_core:g} zones of one {kind.name} lab"
    return max(1, min(by_cores, by_memory, by_limit)), _reason(what, cores, by_cores, free_mib, by_memory)


def _reason(what: str, cores: int, by_cores: int, free_mib: int, by_memory: int) -> str:
    memory = f"{free_mib / 1024:.1f} GiB of memory: {by_memory}"
    return f"{what} a core and {cores} cores: {by_cores}; {memory}"


def pressure() -> float:
    """Return the share of the last 10 s in which something waited for a processor, from 0 to 1.

    Without pressure stall information, count the runnable processes beyond the number of processors instead.
    Source: Documentation/accounting/psi.rst; getloadavg(3).
    """
    with contextlib.suppress(OSError):
        if match := _SOME_PRESSURE.match(_CPU_PRESSURE.read_text()):
            return min(1.0, float(match[1]) / 100)
    return min(1.0, max(0.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)) - 1))


def busy_share(sample_s: float) -> float:
    """Sample the machine for `sample_s`; return the share of its processors in use, from 0 to 1.

    Processes with a positive nice value give way and do not count.
    """
    percent = psutil.cpu_times_percent(interval=sample_s)
    idle = percent.idle + percent.nice + getattr(percent, "iowait", 0.0)
    return min(1.0, max(0.0, 1 - idle / 100))


def busiest(count: int, sample_s: float, run_pid: int) -> list[str]:
    """Sample all processes for `sample_s`; return the busiest ones that do not belong to the run.

    Returns:
        Lines such as `make (pid 812): 97 % of a processor`, busiest first.
    """
    run = psutil.Process(run_pid)
    own = {process.pid for process in (run, *run.parents(), *run.children(recursive=True))}
    others = [process for process in psutil.process_iter(["name"]) if process.pid not in own]
    for process in others:
        _share(process)
    psutil.cpu_percent(interval=sample_s)
    shares = sorted(((_share(process), process) for process in others), key=lambda pair: -pair[0])
    return [
        f"{process.info['name']} (pid {process.pid}): {share * 100:.0f} % of a processor"
        for share, process in shares[:count]
        if share > _LEAST_SHARE
    ]


def _share(process: psutil.Process) -> float:
    """Return the share of a processor that a process used since the last call; 0 at the first call."""
    with contextlib.suppress(psutil.Error):
        return float(process.cpu_percent(interval=None)) / 100
    return 0.0
