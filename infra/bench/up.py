"""`nodeproof up` with process nodes, and its stages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from infra.bench.figure import Bench, Figure
from infra.bench.host import load_after, measure_inside, running_lab, settle
from nodeproof.labs.client.handle import LabHandle

NODES, PROFILE = 8, "fast"


def ready(bench: Bench) -> list[Figure]:
    """Measure the time from the command to Ready nodes."""
    ours: list[float] = []
    stages: list[Mapping[str, float]] = []
    loads = []
    for _ in range(bench.repeats):
        loads.append(settle(bench))
        began = time.monotonic()
        with running_lab(bench, NODES, PROFILE) as (lab, took):
            stages.append(_stages(lab, began, began + took))
        ours.append(took)
    notes = [f"{stage}: {statistics.median(row[stage] for row in stages):.2f} s" for stage in stages[0]]
    name = f"up: control plane and {NODES} nodes Ready ({PROFILE})"
    return [Figure(name, "s", ours, target="as measured", loads=[*loads, load_after("")], notes=notes)]


def _stages(lab: LabHandle, began: float, ended: float) -> Mapping[str, float]:
    """Return how long (s) each part of `up` took, by when processes started."""
    started: dict[str, list[float]] = {}
    for name, t in measure_inside(lab, "process_starts", timeout_s=60):
        started.setdefault(name, []).append(t)
    etcd, manager = min(started["etcd"]), min(started["kube-controller-manager"])
    kubelets = max(started["hollow-kubelet"])
    return {
        "command to etcd": etcd - began,
        "etcd to API ready": manager - etcd,
        "API ready to last kubelet": kubelets - manager,
        "last kubelet to nodes Ready": ended - kubelets,
    }
