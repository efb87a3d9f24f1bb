"""The load of this machine, and the processes that cause it."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import psutil

_PROC = Path("/proc")
_SOME = re.compile(r"some avg10=(\d+(?:\.\d+)?)")
_LEAST_SHARE = 0.05
"""Share of a processor below which a process is not worth naming."""


def pressure(proc: Path = _PROC) -> float:
    """Return the share of the last 10 s in which something waited for a processor, from 0 to 1.

    Without pressure stall information, count the runnable processes beyond the number of processors instead.
    Source: Documentation/accounting/psi.rst; proc_loadavg(5).
    """
    with contextlib.suppress(OSError):
        match = _SOME.match((proc / "pressure" / "cpu").read_text())
        if match:
            return min(1.0, float(match[1]) / 100)
    cores = len(os.sched_getaffinity(0))
    waiting = float((proc / "loadavg").read_text().split()[0]) / cores - 1
    return min(1.0, max(0.0, waiting))


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
