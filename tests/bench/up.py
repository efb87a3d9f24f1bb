"""`nodeproof up`, beside the bare floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from nodeproof.labs.client.lab import Lab
from tests.bench.figure import Bench, Figure
from tests.bench.floor import bare_floor
from tests.bench.ground import processes_of, running_lab, settle


def ready(bench: Bench, nodes: int, profile: str) -> list[Figure]:
    """`nodeproof up` and the bare floor in turn, and where the difference goes."""
    ours: list[float] = []
    floors: list[float] = []
    stages: list[Mapping[str, float]] = []
    floor_stages: list[Mapping[str, float]] = []
    loads = []
    for _ in range(bench.repeats):
        loads.append(settle(bench))
        began = time.monotonic()
        with running_lab(bench, nodes, profile) as (lab, took):
            stages.append(stages_of(lab, began, began + took))
        ours.append(took)
        loads.append(settle(bench))
        floor = bare_floor(bench, nodes, profile)
        floors.append(floor.ready_s)
        floor_stages.append(floor.stages)
        bench.say(f"up {took:.2f} s, bare floor {floor.ready_s:.2f} s")
    ratio = statistics.median(ours) / statistics.median(floors)
    notes = [
        f"{stage}: {_median(stages, stage):.2f} s, bare floor {_median(floor_stages, stage):.2f} s"
        for stage in stages[0]
    ]
    return [
        Figure(
            f"up: control plane and {nodes} nodes Ready ({profile})", "s", ours, "bare floor", floors,
            "ratio <= 1.5", ratio <= 1.5, loads, notes,
        )
    ]  # fmt: skip


def _median(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def stages_of(lab: Lab, began: float, ended: float) -> Mapping[str, float]:
    """How long (s) each part of `up` took, by when processes started."""
    started: dict[str, list[float]] = {}
    for process in processes_of(lab):
        started.setdefault(process["name"], []).append(process["started"])
    etcd, manager = min(started["etcd"]), min(started["kube-controller-manager"])
    kubelets = max(started["hollow-kubelet"])
    return {
        "command to etcd": etcd - began,
        "etcd to API ready": manager - etcd,
        "API ready to last kubelet": kubelets - manager,
        "last kubelet to nodes Ready": ended - kubelets,
    }
