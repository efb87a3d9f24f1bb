"""A lab with three control planes survives the loss of one, and every fault of one is healed."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.faults import Fault
from nodeproof.faults.api import DenyElection
from nodeproof.faults.machine import Freeze, PowerOff
from nodeproof.faults.partition import Outage, PeerPartition
from nodeproof.faults.settings import Settings
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.base.spec import API_PORT
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.starting import LabRequest
from nodeproof.labs.client.supervised import leader
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import COMPONENTS
from nodeproof.model.overrides import NO_OVERRIDES, parse_control_planes
from nodeproof.model.problem import Problem
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import HEAL_TIMEOUT_S, INJECT_TIMEOUT_S
from tests.acceptance.command import nodeproof
from tests.waiting import eventually, first_answer

pytestmark = pytest.mark.xdist_group("control planes")
MANAGER = "kube-controller-manager"
PLANES = ("control-plane-1", "control-plane-2", "control-plane-3")
LEADS_TIMEOUT_S = 30.0
WRITES_TIMEOUT_S = 60.0
DIAL_TIMEOUT_S = 5.0
WHOLE_CONTROL_PLANE = Declared((), (CONTROL_PLANE,))
THREE_CONTROL_PLANES = replace(NO_OVERRIDES, control_planes=3)


@pytest.fixture(scope="module")
def lab(components: Components) -> Iterator[LabHandle]:
    """Start one lab with three control planes; its last test may have ended it."""
    request = LabRequest(
        starting.new_name(), 1, 1, FAST.name, False, PROCESS.name, overrides=THREE_CONTROL_PLANES
    )
    lab = starting.up(request, components, print)
    lab.prepare()
    yield lab
    if lab.dir.exists():
        lab.down()


def discard(*_args: object, **_data: object) -> None:
    """Append nothing."""


def _leader(lab: LabHandle) -> str:
    """Return the control plane whose controller manager leads, once the API answers."""
    return eventually(lambda: leader(lab.cluster.api, MANAGER), LEADS_TIMEOUT_S)


def _is_led_by(lab: LabHandle, planes: Sequence[str]) -> bool:
    return eventually(lambda: _leader(lab) in planes, LEADS_TIMEOUT_S)


def _writes(lab: LabHandle) -> bool:
    """Return whether the API acknowledges a write, in the end."""

    def write() -> bool:
        try:
            labels = {"written": uuid.uuid4().hex}
            lab.cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": labels}})
        except ApiError:
            return False
        return True

    return eventually(write, WRITES_TIMEOUT_S)


def test_each_control_plane_has_every_component(lab: LabHandle) -> None:
    for plane in PLANES:
        number = plane.rpartition("-")[2]
        assert lab.fleet.machine(plane).serves_kubelet()
        assert all(lab.fleet.machine(f"{name}-{number}").answers_on_control() for name in COMPONENTS)
    assert _is_led_by(lab, PLANES)
    assert lab.configuration["G"] > 0


def test_component_fault_hits_all_replicas(lab: LabHandle) -> None:
    fault = Settings(MANAGER, {"node-eviction-rate": "0.25"})
    machine = lab.fleet.machine(MANAGER)
    with lab.safety.injector.inject(fault, Declared((), (MANAGER,)), discard):
        assert len(machine.boot_id().split()) == len(PLANES)
        lines = fault.command_lines(machine)
        assert all("--node-eviction-rate=0.25" in line for line in lines)
    assert not any("--node-eviction-rate=0.25" in line for line in fault.command_lines(machine))
    assert _is_led_by(lab, PLANES)


@pytest.mark.parametrize("loss", [PowerOff, Freeze])
def test_cluster_survives_the_loss_of_its_leader(lab: LabHandle, loss: type[PowerOff | Freeze]) -> None:
    assert _is_led_by(lab, PLANES)
    lost = _leader(lab)
    fault, machine = loss(lost), lab.fleet.machine(lost)
    assert not first_answer(lambda: fault.is_injected(machine))
    with lab.safety.injector.inject(fault, WHOLE_CONTROL_PLANE, discard):
        assert _is_led_by(lab, [plane for plane in PLANES if plane != lost])
        assert _writes(lab)
    # A thawed leader that lost its Lease exits, and starts again.
    assert eventually(machine.serves_kubelet, HEAL_TIMEOUT_S)
    assert lab.life.has_control_plane()


def test_partition_from_the_peers_is_healed_by_its_switch(lab: LabHandle) -> None:
    addresses = lab.fleet.control_planes()
    fault = PeerPartition(PLANES[1], {name: addresses[name] for name in (PLANES[0], PLANES[2])})
    machine = lab.fleet.machine(fault.node)
    assert fault.available(machine) == ""
    assert fault.is_healed(machine)
    assert Fault.from_json(json.loads(json.dumps(dict(fault.to_json())))) == fault
    try:
        for _ in range(2):
            fault.inject(machine)
        assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)
        # Without its peers its API server has no quorum, but the balancer reaches it.
        lab.fleet.dial(addresses[fault.node], API_PORT, DIAL_TIMEOUT_S).close()
        lab.safety.switches.arm(fault.to_json(), 0.1)
        assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    finally:
        fault.heal(machine)
        lab.safety.switches.arm(fault.to_json(), 0)
    assert eventually(machine.serves_kubelet, HEAL_TIMEOUT_S)


def test_denied_election_is_healed_without_its_ledger_entry(lab: LabHandle) -> None:
    fault, machine = DenyElection(MANAGER), lab.fleet.machine(CONTROL_PLANE)
    for _ in range(2):
        fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)
    assert lab.safety.heal_unfinished() == []
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)


def test_heal_command_heals_a_control_plane(lab: LabHandle, tmp_path: Path) -> None:
    off = PowerOff(PLANES[2])
    cut = PeerPartition(PLANES[0], {PLANES[1]: lab.fleet.control_planes()[PLANES[1]]})
    lab.safety.ledger.write("injecting", off.to_json())
    for fault in (off, cut):
        fault.inject(lab.fleet.machine(fault.node))
        assert eventually(lambda: fault.is_injected(lab.fleet.machine(fault.node)), INJECT_TIMEOUT_S)  # noqa: B023
    process = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    assert process.status == 0, process
    for fault in (off, cut):
        assert eventually(lambda: fault.is_healed(lab.fleet.machine(fault.node)), HEAL_TIMEOUT_S)  # noqa: B023


def test_nodes_are_cut_off_from_every_control_plane(lab: LabHandle) -> None:
    nodes = {entry.name: entry.data_address for entry in lab.fleet.nodes()}
    fault = Outage(nodes)
    with lab.safety.injector.inject(fault, Declared(tuple(nodes), radius="cluster"), discard):
        assert not any(lab.fleet.machine(name).serves_kubelet() for name in nodes)
    lab.wait_nodes_ready()


def test_guard_keeps_the_quorum(lab: LabHandle) -> None:
    with lab.safety.injector.inject(PowerOff("etcd-1"), Declared((), ("etcd",)), discard):
        with (
            pytest.raises(Refused, match="without a quorum"),
            lab.safety.injector.inject(PowerOff(PLANES[1]), WHOLE_CONTROL_PLANE, discard),
        ):
            pytest.fail("the fault was not refused")
        assert _writes(lab)
    with (
        pytest.raises(Refused, match="outside the declared blast radius"),
        lab.safety.injector.inject(PowerOff(PLANES[1]), Declared((), ("etcd",)), discard),
    ):
        pytest.fail("the fault was not refused")


def test_down_leaves_nothing(lab: LabHandle) -> None:
    lab.down()
    assert not lab.dir.exists()
    # With sudo, that ends right after the supervisor.
    assert eventually(lambda: not processes_of(lab), HEAL_TIMEOUT_S)


def processes_of(lab: LabHandle) -> list[Path]:
    """Return the command lines that name a lab."""
    paths = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if lab.name.encode() in path.read_bytes():
                paths.append(path)
    return paths


@pytest.mark.parametrize("count", [0, 2, 4])
def test_other_numbers_of_control_planes_are_refused(count: int) -> None:
    with pytest.raises(Problem, match=f"{count} control planes requested"):
        parse_control_planes(count)


def test_kind_without_several_control_planes_refuses_them() -> None:
    with pytest.raises(Problem, match="a libvirt lab has one control plane"):
        starting.check_versions(LIBVIRT, "v1.37.2", THREE_CONTROL_PLANES)
