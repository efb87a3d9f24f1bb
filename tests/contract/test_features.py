"""Features that a lab declares are present, and others are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from nodeproof.cluster.workloads import run_pod
from nodeproof.faults.providers import Volumes
from nodeproof.labs.base.spec import NodeSpec, Shape
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import Machine
from nodeproof.model.needs import ATTACHER, FEATURES
from nodeproof.model.problem import Problem
from tests.contract.kinds import FAULTS, Kind

COMMAND_TIMEOUT_S = 20.0
SHAPED = "shaped"


Probe = Callable[[Kind, LabHandle, Machine], bool]


def has_fault(fault: str) -> Probe:
    """Return whether a fault is available; `test_fault.py` injects every available one."""

    def probe(kind: Kind, _lab: LabHandle, machine: Machine) -> bool:
        return fault not in kind.lacks and not FAULTS[fault](machine.name).available(machine)

    return probe


def runs_containers(_kind: Kind, lab: LabHandle, machine: Machine) -> bool:
    """Return whether a Running pod has a process on its node."""
    run_pod(lab.cluster.api, machine.name)
    look = ["sh", "-c", "grep -ls kubepods /proc/[0-9]*/cgroup"]
    containers = machine.run(look, timeout_s=COMMAND_TIMEOUT_S).stdout
    lab.tidy()
    return bool(containers)


def has_numa_machines(_kind: Kind, lab: LabHandle, machine: Machine) -> bool:
    """Return whether a machine with two NUMA nodes joins and has them."""
    fleet, shape = lab.fleet, Shape(cpus=2, numa_nodes=2)
    zone = next(node.zone for node in fleet.nodes() if node.name == machine.name)
    try:
        fleet.join(NodeSpec(SHAPED, fleet.free_slot(), zone, shape=shape))
    except Problem:
        return False
    try:
        online = ["cat", "/sys/devices/system/node/online"]
        return fleet.machine(SHAPED).run(online, timeout_s=COMMAND_TIMEOUT_S).stdout == "0-1\n"
    finally:
        lab.leave(SHAPED)


def has_volumes(_kind: Kind, lab: LabHandle, _machine: Machine) -> bool:
    """Return whether its lab can attach: `test_control_plane.py` injects, `test_volumes.py` attaches one."""
    return "does not know" not in Volumes().available(lab.fleet.machine(ATTACHER))


PROBES: Mapping[str, Probe] = {
    "freeze": has_fault("freeze"),
    "link": has_fault("link-down"),
    "power": has_fault("power-off"),
    "proxy": has_fault("kube-proxy"),
    "real-pods": runs_containers,
    "reset": has_fault("reset"),
    "shapes": has_numa_machines,
    "swap": has_fault("swap"),
    "systemd": has_fault("shutdown"),
    "volumes": has_volumes,
}


@pytest.mark.vm
@pytest.mark.parametrize("feature", FEATURES)
def test_lab_has_exactly_the_features_it_declares(
    lab: LabHandle, kind: Kind, machine: Machine, feature: str
) -> None:
    assert (feature in lab.features) == PROBES[feature](kind, lab, machine)


def test_running_lab_reports_the_features_of_its_kind(lab: LabHandle) -> None:
    assert lab.features == lab.kind.features
