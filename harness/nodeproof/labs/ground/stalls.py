"""How late a lab is woken and how long what is in it waits for a processor: verdicts allow for both."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from nodeproof.labs.ground.processes import EventLog, Processes, children_of
from nodeproof.model.needs import COMPONENTS
from nodeproof.model.slack import LAB
from nodeproof.recording.stalls import NOTABLE_S, measure_stalls

PERIOD_S = 0.2
"""How often run queues are looked at: many short waits of a busy thread come to no more, and one that is
longer is told whole, as it counts once it is over.
"""
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
"""How long the API server and etcd wait is in the latency of each sentinel."""
AGAIN_S = 2.0
"""After how long what failed to measure is tried again: each recording is told."""
_KUBELET, _MACHINE, _MOST_KUBELETS = "kubelet-", "node-", 24
"""Of a large lab's kubelets only so many are looked at: a look has its price, for each thread."""
_NS = 1e-9
_LINE_BYTES = 200
_LOOKS_PER_LIST = 5
"""So many looks at a process until it is asked for new threads."""


def tell_stalls(events: EventLog, processes: Processes, ended: threading.Event) -> None:
    """Write down both until the lab has ended, from threads of their own.

    Only what is notable: a lab may be kept for days.
    """
    write = partial(events.write, "stall", by=LAB)
    for tell in (
        lambda: measure_stalls(partial(events.write, by=LAB), ended, math.inf, _nothing),
        lambda: _measure_waits(write, processes, ended),
    ):
        threading.Thread(target=_keep_telling, args=(tell, events, ended), daemon=True).start()


def _keep_telling(tell: Callable[[], None], events: EventLog, ended: threading.Event) -> None:
    """Measure until the lab has ended; while that fails no recording knows what it would have told."""
    while not ended.is_set():
        try:
            tell()
        except Exception as error:
            events.write("broken", error=f"{type(error).__name__}: {error}", by=LAB)
            ended.wait(AGAIN_S)


def _nothing() -> None:
    """Clocks are compared by whoever reads times by them."""


def _measure_waits(write: Callable[..., None], processes: Processes, ended: threading.Event) -> None:
    """A thread that ticks may be woken in time while a controller is not: it is seen in run queues only.

    `late_s` is the longest of the controllers' waits, `waited_s` those of all that a change goes through one
    after another.
    """
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    waits, kubelets = RunQueueWaits(Path("/proc")), _Kubelets()
    looked_t = time.monotonic()
    while not ended.wait(PERIOD_S):
        before_t, looked_t = looked_t, time.monotonic()
        looked_at = _looked_at(processes.pids(), processes.others(), kubelets)
        waited = {name: waits.since_last_look_s(pid) for name, pid in looked_at.items()}
        waits.forget_all_but(looked_at.values())
        waited_s = one_after_another_s(waited, looked_t - before_t)
        if waited_s > NOTABLE_S:
            late_s = max((waited.get(name, 0.0) for name in CONTROLLERS), default=0.0)
            write(late_s=round(late_s, 4), waited_s=round(waited_s, 4))


def one_after_another_s(waited: Mapping[str, float], passed_s: float) -> float:
    """How long (s) a change may have waited that goes through the control plane, and then through the slowest
    kubelet or virtual machine, since the last look `passed_s` ago: no longer than that, but for a wait that
    began before it.
    """
    nodes = [took for name, took in waited.items() if name.startswith((_KUBELET, _MACHINE))]
    in_turn = sum(waited.values()) - sum(nodes) + max(nodes, default=0.0)
    return min(in_turn, max(passed_s, *waited.values())) if waited else 0.0


class _Kubelets:
    """Finds the kubelets among processes: what is started for one enters its node, and waits for a child that
    is the kubelet.
    """

    def __init__(self) -> None:
        self._child: dict[int, int] = {}

    def of(self, running: Mapping[str, int]) -> Mapping[str, int]:
        """Give the process ids of kubelets, for so many as are looked at."""
        parents = [name for name in running if name.startswith(_KUBELET)][:_MOST_KUBELETS]
        for parent in self._child.keys() - {running[name] for name in parents}:
            del self._child[parent]
        for parent in {running[name] for name in parents} - self._child.keys():
            if children := children_of(parent):
                self._child[parent] = children[0]
        return {name: self._child[running[name]] for name in parents if running[name] in self._child}


def _looked_at(
    running: Mapping[str, int], others: Mapping[str, int], kubelets: _Kubelets
) -> Mapping[str, int]:
    """Give the process ids of the control plane, of kubelets, and of virtual machines, which wait with all
    that is in them.
    """
    planes = {name: running[name] for name in COMPONENTS if name in running}
    machines = {name: pid for name, pid in others.items() if name.startswith(_MACHINE)}
    return {**planes, **machines, **kubelets.of(running)}


class RunQueueWaits:
    """How long processes waited for a processor, from one look at them to the next.

    The files of threads stay open: opening them costs more than reading them.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._files: dict[int, dict[str, int]] = {}
        self._seen_s: dict[int, dict[str, float]] = {}
        self._looks: Counter[int] = Counter()

    def since_last_look_s(self, pid: int) -> float:
        """Give how long (s) that thread waited which waited longest; 0 at the first look at a process.

        A thread that is new since then does not count: it may as well be one that could not be read before.
        Source: Documentation/scheduler/sched-stats.rst, second field of schedstat; a kernel without it tells
        of no wait.
        """
        before, now = self._seen_s.get(pid, {}), dict(self._waited_s(pid))
        self._seen_s[pid] = now
        return max((now[thread] - before[thread] for thread in now.keys() & before.keys()), default=0.0)

    def forget_all_but(self, pids: Iterable[int]) -> None:
        """Forget processes that are gone."""
        for pid in self._seen_s.keys() - set(pids):
            del self._seen_s[pid], self._looks[pid]
            for file in self._files.pop(pid, {}).values():
                os.close(file)

    def _waited_s(self, pid: int) -> Iterator[tuple[str, float]]:
        """Of each thread, since it began; one that ends meanwhile is left out."""
        if self._looks[pid] % _LOOKS_PER_LIST == 0:
            self._open_new(pid)
        self._looks[pid] += 1
        for thread, file in list(self._files[pid].items()):
            try:
                yield thread, int(os.pread(file, _LINE_BYTES, 0).split()[1]) * _NS
            except (OSError, ValueError, IndexError):
                os.close(self._files[pid].pop(thread))

    def _open_new(self, pid: int) -> None:
        files = self._files.setdefault(pid, {})
        with contextlib.suppress(OSError):
            for thread in os.scandir(self._proc / str(pid) / "task"):
                if thread.name not in files:
                    with contextlib.suppress(OSError):
                        files[thread.name] = os.open(f"{thread.path}/schedstat", os.O_RDONLY)
