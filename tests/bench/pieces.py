"""What scenarios on virtual machines wait for again and again: a node from its snapshot, its kubelet's
restart, a witness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from nodeproof.cluster.witness import IMAGE, Witness
from nodeproof.cluster.workloads import prepare
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.resizing import resize
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.waiting import insist
from tests.bench.boots import posted_boots, wait_booted
from tests.bench.figure import Bench, Figure
from tests.bench.ground import load_after, settle

BOOT_LIMIT_S, COMMAND_LIMIT_S, KUBELET_LIMIT_S = 400.0, 120.0, 120.0
_BARE_CONTAINER = ("ctr", "-n", "k8s.io", "run", "--rm", IMAGE, "nodeproof-bench", "true")


def pieces(bench: Bench, lab: Lab) -> Iterator[Figure]:
    """Each beside what it would take without it, or without Kubernetes."""
    node, nodes = lab.fleet.node_names()[0], len(lab.fleet.node_names())
    machine = lab.fleet.machine(node)
    prepare(lab.cluster.api)
    # The first time the snapshot may have to be taken.
    _joined_s(lab, nodes)
    yield _figure(
        bench, lab, "a node from its snapshot, to Ready and a renewed Lease", lambda: _joined_s(lab, nodes),
        "its boot, to Ready", lambda: _booted_s(lab, node),
    )  # fmt: skip
    yield _figure(
        bench, lab, "a kubelet's restart, until it serves", lambda: _restarted_s(machine),
        "its executable alone: --version", lambda: _took_s(machine, "/usr/local/bin/kubelet", "--version"),
    )  # fmt: skip
    yield _figure(
        bench, lab, "a witness, from the request to Running", lambda: _witness_s(lab, node),
        "its image by ctr, there and gone", lambda: _took_s(machine, *_BARE_CONTAINER),
    )  # fmt: skip


def _figure(
    bench: Bench, lab: Lab, name: str, ours: Callable[[], float], anchor: str, bare: Callable[[], float]
) -> Figure:
    """Both in turn, as often as is asked."""
    loads = [settle(bench, lab.name)]
    took = [(ours(), bare()) for _ in range(bench.repeats)]
    loads.append(load_after(lab.name))
    values, anchors = zip(*took, strict=True)
    return Figure(name, "s", values, anchor, anchors, "as measured", None, loads)


def _joined_s(lab: Lab, nodes: int) -> float:
    began = time.monotonic()
    resize(lab, nodes + 1)
    took_s = time.monotonic() - began
    resize(lab, nodes)
    return took_s


def _booted_s(lab: Lab, node: str) -> float:
    before = {node: posted_boots(lab)[node]}
    client = registry.client(lab.name)
    client.power(node, "off")
    began = time.monotonic()
    client.power(node, "on")
    seen = wait_booted(lab, before, BOOT_LIMIT_S)
    if node not in seen:
        raise RuntimeError(f"{node} is not Ready {BOOT_LIMIT_S:g} s after it got its power back")
    lab.wait_nodes_ready()
    return seen[node] - began


def _restarted_s(machine: Machine) -> float:
    began = time.monotonic()
    _took_s(machine, "systemctl", "restart", "kubelet.service")
    insist(machine.kubelet_configuration, MachineError, limit_s=KUBELET_LIMIT_S)
    return time.monotonic() - began


def _witness_s(lab: Lab, node: str) -> float:
    began = time.monotonic()
    lab.cluster.run_witnesses(node, [Witness()])
    took_s = time.monotonic() - began
    lab.tidy()
    return took_s


def _took_s(machine: Machine, *argv: str) -> float:
    """How long a command takes on a machine. Raises RuntimeError."""
    began = time.monotonic()
    done = machine.run(list(argv), deadline_s=COMMAND_LIMIT_S)
    if done.status != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return time.monotonic() - began
