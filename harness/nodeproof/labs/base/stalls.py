"""Measures how late a lab wakes up and how long its processes wait for a processor: slack for verdicts."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nodeproof.labs.base.processes import EventLog, Processes, children_of
from nodeproof.model.needs import COMPONENTS, role_of
from nodeproof.model.slack import LAB
from nodeproof.recording.node_messages import NOTABLE_S, measure_stalls

PERIOD_S = 0.2
"""How often run queues are read: many short waits of a busy thread add up to no more, and a longer one is
reported as a whole once it is over.
"""
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
"""The waits of the API server and etcd are part of the latency of each sentinel."""
AGAIN_S = 2.0
"""The time until a failed measurement is retried, so that the failure shows in each recording."""
_KUBELET, _MACHINE, _MOST_KUBELETS = "kubelet-", "node-", 24
"""How many kubelets of a large lab are measured: a look has a cost per thread."""
_NS = 1e-9
_LINE_BYTES = 200
_LOOKS_PER_LIST = 5
"""How many looks at a process until its new threads are listed."""


def record_stalls(events: EventLog, processes: Processes, ended: threading.Event) -> None:
    """Record notable stalls and run queue waits, in separate threads, until the lab has ended."""
    write = partial(events.write, "stall", by=LAB)
    for measure in (
        # Readers of the recording compare clocks themselves.
        lambda: measure_stalls(partial(events.write, by=LAB), ended, math.inf, lambda: None),
        lambda: _measure_waits(write, processes, ended),
    ):
        threading.Thread(target=_keep_measuring, args=(measure, events, ended), daemon=True).start()


def _keep_measuring(measure: Callable[[], None], events: EventLog, ended: threading.Event) -> None:
    """Run `measure` until the lab has ended; record its failures, as recordings then lack its data."""
    while not ended.is_set():
        try:
            measure()
        except Exception as error:
            events.write("broken", error=f"{type(error).__name__}: {error}", by=LAB)
            ended.wait(AGAIN_S)


def _measure_waits(write: Callable[..., None], processes: Processes, ended: threading.Event) -> None:
    """Record how long processes wait in run queues, which a thread that only sleeps does not show.

    `late_s` is the longest wait of a controller, `waited_s` the waits of everything that a change passes
    through in sequence.
    """
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    waits: dict[int, RunQueueWaits] = {}
    kubelets = _Kubelets()
    last_t = time.monotonic()
    while not ended.wait(PERIOD_S):
        before_t, last_t = last_t, time.monotonic()
        watched = _watched_pids(processes.pids(), processes.external_pids(), kubelets)
        for pid in waits.keys() - {*watched.values()}:
            waits.pop(pid).close()
        waits |= {pid: RunQueueWaits(pid) for pid in {*watched.values()} - waits.keys()}
        waited = by_role({name: waits[pid].since_last_look_s() for name, pid in watched.items()})
        waited_s = sequential_wait_s(waited, last_t - before_t)
        if waited_s > NOTABLE_S:
            late_s = max((waited.get(name, 0.0) for name in CONTROLLERS), default=0.0)
            write(late_s=round(late_s, 4), waited_s=round(waited_s, 4))


def by_role(waited: Mapping[str, float]) -> Mapping[str, float]:
    """Return the longest wait (s) of a component's replicas: a change passes through them in parallel."""
    longest: dict[str, float] = {}
    for name, took_s in waited.items():
        longest[role_of(name)] = max(longest.get(role_of(name), 0.0), took_s)
    return longest


def sequential_wait_s(waited: Mapping[str, float], passed_s: float) -> float:
    """Return how long (s) a change may have waited since the last look, `passed_s` ago.

    It passes through the control plane and then the slowest kubelet or virtual machine. The sum of their
    waits is limited to `passed_s`, unless a single wait began earlier.
    """
    nodes = [took for name, took in waited.items() if name.startswith((_KUBELET, _MACHINE))]
    in_turn = sum(waited.values()) - sum(nodes) + max(nodes, default=0.0)
    return min(in_turn, max(passed_s, *waited.values())) if waited else 0.0


class _Kubelets:
    """Finds kubelets: a component's process enters its node and waits for a child, the kubelet."""

    def __init__(self) -> None:
        self._child: dict[int, int] = {}

    def of(self, running: Mapping[str, int]) -> Mapping[str, int]:
        """Return the process ids of the kubelets, at most of as many as are measured."""
        parents = [name for name in running if name.startswith(_KUBELET)][:_MOST_KUBELETS]
        for parent in self._child.keys() - {running[name] for name in parents}:
            del self._child[parent]
        for parent in {running[name] for name in parents} - self._child.keys():
            if children := children_of(parent):
                self._child[parent] = children[0]
        return {name: self._child[running[name]] for name in parents if running[name] in self._child}


def _watched_pids(
    running: Mapping[str, int], others: Mapping[str, int], kubelets: _Kubelets
) -> Mapping[str, int]:
    """Return the process ids of the control plane, kubelets and virtual machines.

    The waits of a virtual machine delay everything in it.
    """
    planes = {name: pid for name, pid in running.items() if role_of(name) in COMPONENTS}
    machines = {name: pid for name, pid in others.items() if name.startswith(_MACHINE)}
    return {**planes, **machines, **kubelets.of(running)}


class RunQueueWaits:
    """Measures how long a process waited for a processor between two looks.

    The files of its threads stay open: opening them costs more than reading them.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._threads = proc / str(pid) / "task"
        self._files: dict[str, int] = {}
        self._last_waits_s: dict[str, float] = {}
        self._looks = 0

    def since_last_look_s(self) -> float:
        """Return the longest wait (s) of a thread; 0 at the first look.

        A thread that is new since the last look does not count: it may be an old one that could not be read
        before. Source: Documentation/scheduler/sched-stats.rst, second field of schedstat; a kernel without
        it reports no wait.
        """
        if self._looks % _LOOKS_PER_LIST == 0:
            self._open_new()
        self._looks += 1
        before, now = self._last_waits_s, dict(self._waited_s())
        self._last_waits_s = now
        return max((now[thread] - before[thread] for thread in now.keys() & before.keys()), default=0.0)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)

    def _waited_s(self) -> Iterator[tuple[str, float]]:
        """Yield each thread's total wait (s); skip one that ends meanwhile."""
        for thread, file in list(self._files.items()):
            try:
                yield thread, int(os.pread(file, _LINE_BYTES, 0).split()[1]) * _NS
            except (OSError, ValueError, IndexError):
                os.close(self._files.pop(thread))

    def _open_new(self) -> None:
        with contextlib.suppress(OSError):
            for thread in os.scandir(self._threads):
                if thread.name not in self._files:
                    with contextlib.suppress(OSError):
                        self._files[thread.name] = os.open(f"{thread.path}/schedstat", os.O_RDONLY)
