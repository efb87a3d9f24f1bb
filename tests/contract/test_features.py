"""What a lab says that it has is there, and what it does not say is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from nodeproof.faults import Volumes
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.spec import Shape
from nodeproof.machines.machine import Machine
from nodeproof.model.needs import ATTACHER, FEATURES
from nodeproof.model.problem import Problem
from tests.contract.kinds import FAULTS, Kind

COMMAND_LIMIT_S = 20.0
SHAPED = "shaped"


Probe = Callable[[Kind, Lab, Machine], bool]


def is_had(fault: str) -> Probe:
    """Whether a fault can be had: each that can is injected and proven by `test_fault.py`."""

    def probe(kind: Kind, _lab: Lab, machine: Machine) -> bool:
        return fault not in kind.lacks and not FAULTS[fault](machine.name).available(machine)

    return probe


def runs_containers(_kind: Kind, lab: Lab, machine: Machine) -> bool:
    """Whether a Running pod has a process on its node."""
    lab.cluster.run_pod(machine.name)
    look = ["sh", "-c", "grep -ls kubepods /proc/[0-9]*/cgroup"]
    found = machine.run(look, deadline_s=COMMAND_LIMIT_S).stdout
    lab.tidy()
    return bool(found)


def has_shapes(_kind: Kind, lab: Lab, machine: Machine) -> bool:
    """Whether a machine of two NUMA nodes joins, and has them."""
    fleet, shape = lab.fleet, Shape(cpus=2, numa_nodes=2)
    zone = next(each.zone for each in fleet.nodes() if each.name == machine.name)
    try:
        fleet.join(SHAPED, zone, fleet.free_slot(), {}, shape=shape)
    except Problem:
        return False
    try:
        online = ["cat", "/sys/devices/system/node/online"]
        return fleet.machine(SHAPED).run(online, deadline_s=COMMAND_LIMIT_S).stdout == "0-1\n"
    finally:
        lab.leave(SHAPED)


def has_volumes(_kind: Kind, lab: Lab, _machine: Machine) -> bool:
    """Whether its lab knows who attaches: `test_control_plane.py` injects, `test_volumes.py` attaches one."""
    return "does not know" not in Volumes("00000000").available(lab.fleet.machine(ATTACHER))


PROBES: Mapping[str, Probe] = {
    "freeze": is_had("freeze"),
    "link": is_had("link-down"),
    "power": is_had("power-off"),
    "proxy": is_had("kube-proxy"),
    "real-pods": runs_containers,
    "reset": is_had("reset"),
    "shapes": has_shapes,
    "swap": is_had("swap"),
    "systemd": is_had("shutdown"),
    "volumes": has_volumes,
}


@pytest.mark.vm
@pytest.mark.parametrize("feature", FEATURES)
def test_a_lab_has_the_features_that_it_says_and_no_other(
    lab: Lab, kind: Kind, machine: Machine, feature: str
) -> None:
    assert (feature in lab.features) == PROBES[feature](kind, lab, machine)


def test_a_living_lab_says_what_was_expected_of_its_kind(lab: Lab) -> None:
    assert lab.features == lab.kind.features
