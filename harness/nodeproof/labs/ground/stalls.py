"""How late a lab is woken and how long its controllers wait for a processor: slack allows for both."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nodeproof.labs.ground.processes import EventLog
from nodeproof.model.slack import LAB
from nodeproof.recording.stalls import NOTABLE_S, measure_stalls

PERIOD_S = 0.2
"""How often run queues are looked at: many short waits of a busy thread come to no more, and one that is
longer is told whole, as it counts once it is over.
"""
_NS = 1e-9
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
"""How long the API server and etcd wait is in the latency of each sentinel."""
Pids = Callable[[], Mapping[str, int]]


def tell_stalls(events: EventLog, pids: Pids, ended: threading.Event) -> None:
    """Write down both until the lab has ended, from threads of their own; `pids` are of its components.

    Only what is notable: a lab may be kept for days.
    """
    write = partial(events.write, "stall", by=LAB)
    for tell in (
        lambda: measure_stalls(partial(events.write, by=LAB), ended, math.inf),
        lambda: _measure_waits(write, pids, ended),
    ):
        threading.Thread(target=tell, daemon=True).start()


def _measure_waits(write: Callable[..., None], pids: Pids, ended: threading.Event) -> None:
    """A thread that ticks may be woken in time while a controller is not: it is seen in run queues only."""
    waits = RunQueueWaits(Path("/proc"))
    while not ended.wait(PERIOD_S):
        controllers = [pid for name, pid in pids().items() if name in CONTROLLERS]
        late_s = max(map(waits.since_last_look_s, controllers), default=0.0)
        if late_s > NOTABLE_S:
            write(late_s=round(late_s, 4))


class RunQueueWaits:
    """How long processes waited for a processor, from one look at them to the next."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._seen_s: dict[int, dict[str, float]] = {}

    def since_last_look_s(self, pid: int) -> float:
        """How long (s) that thread waited which waited longest; 0 at the first look at a process.

        Source: Documentation/scheduler/sched-stats.rst, second field of schedstat; a kernel without it tells
        of no wait.
        """
        before, now = self._seen_s.get(pid), dict(self._waited_s(pid))
        self._seen_s[pid] = now
        if before is None:
            return 0.0
        return max((waited - before.get(thread, 0.0) for thread, waited in now.items()), default=0.0)

    def _waited_s(self, pid: int) -> Iterator[tuple[str, float]]:
        """Of each thread, since it began; one that ends meanwhile is left out."""
        with contextlib.suppress(OSError):
            for thread in os.scandir(self._proc / str(pid) / "task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    yield thread.name, int(_read(f"{thread.path}/schedstat").split()[1]) * _NS


def _read(path: str) -> bytes:
    """A small file: five times a second for each thread, without the price of a buffer."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 200)
    finally:
        os.close(descriptor)
