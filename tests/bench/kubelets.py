"""What a kubelet takes of the processors: until its lab is Ready, and idle."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from tests.bench.figure import Bench, Figure, Json
from tests.bench.floor import bare_floor
from tests.bench.ground import core_shares, kind_of, load_after, processes_of, running_lab, settle

NODES = 24
IDLE_S = 60.0
MOST_MCORES = 4.0


def kubelets(bench: Bench) -> Iterator[Figure]:
    """Both, in `fast`, of each kubelet of a lab of many; what the rest of the lab takes is a note."""
    loads = [settle(bench)]
    bare = _cpu_s(bare_floor(bench, NODES, "fast").processes)
    with running_lab(bench, NODES, "fast") as (lab, _took):
        started = _cpu_s(processes_of(lab))
        loads.append(settle(bench, lab.name))
        began, everything = time.monotonic(), processes_of(lab)
        threading.Event().wait(IDLE_S)
        ended = processes_of(lab)
        took = time.monotonic() - began
        loads.append(load_after(lab.name))
    before, after = _cpu_s(everything), _cpu_s(ended)
    idle = [1000 * (after[pid] - before[pid]) / took for pid in before]
    beside = core_shares({entry["pid"]: entry for entry in everything}, ended, took)
    yield Figure(
        f"processor time of a kubelet until all are Ready, of {NODES}", "s", list(started.values()),
        "a bare kubelet", list(bare.values()), "as measured", None, loads,
    )  # fmt: skip
    yield Figure(
        f"an idle kubelet, of {NODES}", "/1000 of a core", idle, "", (),
        f"<= {MOST_MCORES:g}/1000", statistics.mean(idle) <= MOST_MCORES, loads,
        [f"mean {statistics.mean(idle):.2f}/1000; meanwhile: {beside}"],
    )  # fmt: skip


def _cpu_s(processes: Iterable[Mapping[str, Json]]) -> Mapping[int, float]:
    """What each kubelet has used so far (s)."""
    return {entry["pid"]: entry["cpu_s"] for entry in processes if kind_of(entry) == "hollow-kubelet"}
