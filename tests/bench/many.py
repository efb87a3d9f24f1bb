"""Many nodes: Ready, memory, what waiting costs, tear-down."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from nodeproof.labs.client import registry
from tests.bench.figure import MIB, Bench, Figure, Json
from tests.bench.floor import bare_floor
from tests.bench.ground import kind_of, load_after, processes_of, running_lab, settle
from tests.bench.up import stages_of
from tests.bench.waiting import waiting_cpu


def many(bench: Bench, nodes: int, profile: str) -> list[Figure]:
    """Many nodes in a profile: Ready, memory, what waiting costs, tear-down."""
    loads = [settle(bench)]
    floor = bare_floor(bench, nodes, profile)
    loads.append(settle(bench))
    began = time.monotonic()
    with running_lab(bench, nodes, profile) as (lab, took):
        stages = stages_of(lab, began, began + took)
        bench.say(f"{nodes} nodes: up {took:.1f} s, bare floor {floor.ready_s:.1f} s")
        memory = _memory(processes_of(lab), floor.processes, nodes, load_after(lab.name))
        waiting = waiting_cpu(bench, lab, nodes)
        gone = time.monotonic()
        registry.down(lab.name)
        down = time.monotonic() - gone
    notes = [
        f"{stage}: {value:.2f} s, bare floor {floor.stages[stage]:.2f} s" for stage, value in stages.items()
    ]
    return [
        Figure(
            f"up: control plane and {nodes} nodes Ready ({profile})", "s", [took], "bare floor",
            [floor.ready_s], "as measured", None, loads, notes,
        ),
        *memory,
        Figure(
            f"tear-down of {nodes} nodes", "s", [down], "the floor's PID namespace", [floor.end_s],
            "as measured", None, [load_after("")],
        ),
        *waiting,
    ]  # fmt: skip


def _memory(
    ours: Sequence[Mapping[str, Json]], floor: Sequence[Mapping[str, Json]], nodes: int, now: str
) -> list[Figure]:
    """Memory of a node: its kubelet, its sshd, and the two wrappers that entered the namespaces."""
    parts = ("hollow-kubelet", "sshd", "unshare", "nsenter")

    def per_node(processes: Sequence[Mapping[str, Json]], kind: str, names: Sequence[str]) -> float:
        return sum(float(entry[kind]) for entry in processes if kind_of(entry) in names) / nodes / MIB

    notes = [
        ", ".join(f"{part} {per_node(ours, kind, [part]):.1f}" for part in parts) + f" MiB {kind.upper()}"
        for kind in ("pss", "rss", "private")
    ]
    control = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    notes.append(
        "control plane: "
        + ", ".join(f"{part} {per_node(ours, 'rss', [part]) * nodes:.0f}" for part in control)
        + " MiB RSS"
    )
    return [
        Figure(
            f"memory of a node, {kind.upper()}, of {nodes}", "MiB", [per_node(ours, kind, parts)],
            "a bare kubelet", [per_node(floor, kind, parts)], "as measured", None, [now],
            notes if kind == "pss" else (),
        )
        for kind in ("pss", "rss")
    ]  # fmt: skip
