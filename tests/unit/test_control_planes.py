"""Three control planes: names and waits of their components."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.faults import classes_for
from nodeproof.faults.machine import Freeze, PowerOff
from nodeproof.faults.partition import PeerPartition
from nodeproof.labs.base import control_plane
from nodeproof.labs.base.planes import Planes
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.base.spec import control_planes
from nodeproof.labs.base.stalls import by_role
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import role_of
from tests.fakes import FakeMachine


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("etcd-2", "etcd"),
        ("kube-controller-manager-3", "kube-controller-manager"),
        ("control-plane-1", "control-plane"),
        ("control-plane", "control-plane"),
        ("node-1", "node-1"),
        ("cloud-controller-manager", "cloud-controller-manager"),
    ],
)
def test_replica_belongs_to_its_component(name: str, role: str) -> None:
    assert role_of(name) == role


def test_wait_of_replicas_is_the_longest() -> None:
    waited = {"etcd-1": 0.1, "etcd-2": 0.3, "kube-scheduler": 0.2, "kubelet-node-1": 0.4}
    assert by_role(waited) == {"etcd": 0.3, "kube-scheduler": 0.2, "kubelet-node-1": 0.4}


def test_component_runs_on_the_machine_of_its_number(tmp_path: Path) -> None:
    processes = Processes(tmp_path, EventLog(tmp_path / "events.jsonl"))
    planes = Planes(processes, control_planes(3))
    assert planes.host_of("etcd-2") == "control-plane-2"
    assert {planes.host_of(name) for name in ("load-balancer", "control-plane-2", "etcd-4")} == {""}
    assert Planes(processes, control_planes(1)).host_of("etcd-2") == ""
    assert control_plane.ONLY.name == CONTROL_PLANE


def test_faults_of_a_control_plane_are_those_of_its_machine() -> None:
    machine = FakeMachine(lambda _argv: "", name="control-plane-2")
    assert {*classes_for(machine)} == {PowerOff, Freeze, PeerPartition}
