"""Faults of the control plane: each has an exact inverse, and any process can heal it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts import csi
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import Fault
from nodeproof.faults.api import DeleteNode, DenyUpdates, PatchReady, SetLabel, Taint
from nodeproof.faults.machine import Freeze, PowerOff
from nodeproof.faults.partition import Outage
from nodeproof.faults.providers import Cloud, Volumes
from nodeproof.faults.settings import Settings
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle, TooFewNodes
from nodeproof.labs.client.supervised import ServiceMachine
from nodeproof.machines.machine import CONTROL_PLANE, Machine
from nodeproof.model.cluster import LEASE_NAMESPACE, has_taint
from nodeproof.model.history import fence
from nodeproof.model.needs import ATTACHER, CLOUD, COMPONENTS, Needs
from nodeproof.safety.guard import Declared
from nodeproof.safety.guard import Refused as GuardRefused
from nodeproof.safety.injector import HEAL_TIMEOUT_S, INJECT_TIMEOUT_S
from nodeproof.scenario import outage
from nodeproof.scenario.lab import Lab
from nodeproof.testing import check_idempotence
from tests.acceptance.command import nodeproof
from tests.contract.late_machine import assert_late_commands_have_no_effect
from tests.contract.victim import DIED
from tests.waiting import eventually, first_answer

TOP = Path(__file__).parents[2]
INJECTED_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 20.0
MANAGER = "kube-controller-manager"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
FAULTS: Mapping[str, Callable[[LabHandle, str], Fault]] = {
    "cloud": lambda lab, node: Cloud({node: "gone"}, {node: _labels(lab, node)}),
    "volumes": lambda _lab, _node: Volumes(),
    "settings": lambda _lab, _node: Settings(MANAGER, {"node-eviction-rate": "0.25"}),
    "manager-off": lambda _lab, _node: PowerOff(MANAGER),
    "etcd-frozen": lambda _lab, _node: Freeze("etcd"),
    "server-off": lambda _lab, _node: PowerOff("kube-apiserver"),
    "outage": lambda lab, _node: Outage({e.name: e.data_address for e in lab.fleet.nodes()}),
    "node-deleted": lambda lab, node: DeleteNode(node, _labels(lab, node)),
    "taint": lambda _lab, node: Taint(node, "nodeproof.dev/test", "NoExecute"),
    "taint-two": lambda lab, node: Taint(
        node, "nodeproof.dev/test", "NoSchedule", also=_other_node(lab, node)
    ),
    "labelled": lambda _lab, node: SetLabel("nodeproof.dev/test", "x", {node: None}),
    "ready-patched": lambda _lab, node: PatchReady(node),
    "refused-status": lambda _lab, node: DenyUpdates(node, "status"),
    "refused-lease": lambda _lab, node: DenyUpdates(node, "lease"),
    "refused-csinode": lambda _lab, node: DenyUpdates(node, "csinode"),
}
POINTS = ("before injected", "after injecting", "after healing", "before closed")
"""The step of the protocol at which a harness dies."""
SAME_PROTOCOL = pytest.mark.night("CI has each fault at one point and each point with one fault")
CRASHES = [
    pytest.param(name, point, marks=[] if name == "settings" or point == "after injecting" else SAME_PROTOCOL)
    for name in FAULTS
    for point in POINTS
]
FOUND_BY_NAME = (
    "cloud",
    "volumes",
    "settings",
    "outage",
    "ready-patched",
    "refused-status",
    "refused-lease",
    "refused-csinode",
)


def _labels(lab: LabHandle, node: str) -> Mapping[str, str]:
    labels: Mapping[str, str] = lab.cluster.api.get(node_path(node))["metadata"]["labels"]
    return labels


def _other_node(lab: LabHandle, node: str) -> list[str]:
    return [entry.name for entry in lab.fleet.nodes() if entry.name != node][:1]


def discard(*_args: object, **_data: object) -> None:
    """Append nothing."""


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, lab: LabHandle, node: str) -> Iterator[Fault]:
    """Return each fault in turn, healed afterwards."""
    _skip_if_unsupported(request.param, lab)
    yield from _healed(FAULTS[request.param](lab, node), lab)


@pytest.fixture(params=FOUND_BY_NAME)
def leftover_fault(request: pytest.FixtureRequest, lab: LabHandle, node: str) -> Iterator[Fault]:
    """Inject a fault that is known only by the name of its leftovers."""
    _skip_if_unsupported(request.param, lab)
    yield from _healed(FAULTS[request.param](lab, node), lab)


def _skip_if_unsupported(name: str, lab: LabHandle) -> None:
    if name != Volumes.name:
        return
    if name not in lab.features:
        pytest.skip(f"a {lab.kind.name} lab has no volumes")
    csi.obtain(print)
    reason = Volumes().available(lab.fleet.machine(ATTACHER))
    if "inotify" in reason:
        pytest.skip(reason)


def _healed(fault: Fault, lab: LabHandle) -> Iterator[Fault]:
    machine = lab.fleet.machine(fault.node)
    yield fault
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    lab.wait_nodes_ready()


def _machine(lab: LabHandle, fault: Fault) -> Machine:
    return lab.fleet.machine(fault.node)


@pytest.mark.core
def test_control_plane_fault_is_idempotent(lab: LabHandle, fault: Fault) -> None:
    machine = _machine(lab, fault)
    assert fault.available(machine) == ""
    assert fault.is_healed(machine)
    assert not first_answer(lambda: fault.is_injected(machine))
    assert Fault.from_json(json.loads(json.dumps(dict(fault.to_json())))) == fault

    check_idempotence(fault, machine)


@pytest.mark.parametrize(("fault", "point"), CRASHES, indirect=["fault"])
def test_crash_on_either_side_of_a_step_is_healed(
    lab: LabHandle, fault: Fault, point: str, tmp_path: Path
) -> None:
    data = json.dumps(dict(fault.to_json()))
    argv: Sequence[str] = [sys.executable, "-m", "tests.contract.victim", lab.name, data, point]
    died = proc.run(argv, timeout_s=INJECTED_TIMEOUT_S, cwd=TOP, check=False)
    assert died.status == DIED, died

    process = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    assert process.status == 0, process
    assert fault.is_healed(_machine(lab, fault))
    assert registry.client(lab.name).status().not_disarmed == []
    assert lab.safety.ledger.unfinished() == []


def test_unknown_fault_is_recognised_by_the_name_of_its_leftovers(
    lab: LabHandle, leftover_fault: Fault
) -> None:
    machine = _machine(lab, leftover_fault)
    leftover_fault.inject(machine)
    assert eventually(lambda: leftover_fault.is_injected(machine), INJECT_TIMEOUT_S)
    assert lab.safety.heal_unfinished() == []
    assert eventually(lambda: leftover_fault.is_healed(machine), HEAL_TIMEOUT_S)


def test_no_command_of_an_injection_acts_after_the_healing(lab: LabHandle, fault: Fault) -> None:
    assert_late_commands_have_no_effect(lab.safety.injector, _machine(lab, fault), fault)


def test_deadman_switch_heals_the_control_plane(lab: LabHandle, fault: Fault) -> None:
    machine, client = _machine(lab, fault), registry.client(lab.name)
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_TIMEOUT_S)
    client.arm(fault.to_json(), 0.1)
    assert eventually(lambda: fault.is_healed(machine), HEAL_TIMEOUT_S)
    client.arm(fault.to_json(), 0)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (Declared(()), "outside the declared blast radius"),
        (Declared(("node-1",), ()), "outside the declared blast radius"),
    ],
)
def test_undeclared_target_is_not_touched(
    lab: LabHandle, fault: Fault, declared: Declared, reason: str
) -> None:
    if set(fault.affected_nodes) <= set(declared.nodes):
        pytest.skip("it was declared")
    with pytest.raises(GuardRefused, match=reason), lab.safety.injector.inject(fault, declared, discard):
        pytest.fail("the fault was not refused")


def test_cloud_deletes_a_lost_node_and_healing_restores_it(lab: LabHandle, node: str) -> None:
    cloud, lost = FAULTS["cloud"](lab, node), PatchReady(node)
    machine, plane = _machine(lab, cloud), _machine(lab, lost)

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in lab.cluster.api.get(WATCHED["nodes"])["items"]]

    cloud.inject(machine)
    try:
        assert eventually(lambda: cloud.is_injected(machine), INJECT_TIMEOUT_S)
        lost.inject(plane)
        assert eventually(lambda: node not in names(), INJECT_TIMEOUT_S)
        assert not first_answer(lambda: cloud.is_healed(machine))
    finally:
        cloud.heal(machine)
        lost.heal(plane)
    assert eventually(lambda: cloud.is_healed(machine), HEAL_TIMEOUT_S)
    assert node in names()
    lab.wait_nodes_ready()


def test_ended_cloud_leaves_no_taint(lab: LabHandle, node: str) -> None:
    cloud, lost = (
        Cloud({node: "shut-down"}, {node: _labels(lab, node)}),
        PatchReady(node),
    )
    machine, plane = _machine(lab, cloud), _machine(lab, lost)

    def is_tainted() -> bool:
        return has_taint(lab.cluster.api.get(node_path(node)), SHUTDOWN_TAINT, "NoSchedule")

    cloud.inject(machine)
    try:
        lost.inject(plane)
        assert eventually(is_tainted, INJECT_TIMEOUT_S)
    finally:
        cloud.heal(machine)
        lost.heal(plane)
    assert not is_tainted()
    assert eventually(lambda: cloud.is_healed(machine), HEAL_TIMEOUT_S)


def test_cloud_keeps_a_foreign_shutdown_taint(lab: LabHandle, node: str) -> None:
    cloud = Cloud({node: "exists"}, {node: _labels(lab, node)})
    lost = PatchReady(node)
    machine, plane = _machine(lab, cloud), _machine(lab, lost)
    taint = ["kubectl", "taint", "node", node, f"{SHUTDOWN_TAINT}:NoSchedule"]
    # The controller removes the taint from a Node that is Ready.
    lost.inject(plane)
    try:
        assert machine.run(taint, timeout_s=INJECT_TIMEOUT_S).status == 0
        cloud.inject(machine)
        assert eventually(lambda: cloud.is_injected(machine), INJECT_TIMEOUT_S)
        cloud.heal(machine)
        assert eventually(lambda: cloud.is_healed(machine), HEAL_TIMEOUT_S)
        assert has_taint(lab.cluster.api.get(node_path(node)), SHUTDOWN_TAINT, "NoSchedule")
    finally:
        cloud.heal(machine)
        assert machine.run([*taint[:-1], f"{taint[-1]}-"], timeout_s=INJECT_TIMEOUT_S).status == 0
        lost.heal(plane)
    lab.wait_nodes_ready()


def test_cloud_requires_valid_answers_and_labels_to_restore(lab: LabHandle, node: str) -> None:
    machine, labels = lab.fleet.machine(CLOUD), {node: _labels(lab, node)}
    assert "not lost" in Fault.from_json(
        {"fault": "cloud", "id": "0123abcd", "answers": {node: "lost"}, "labels": labels}
    ).available(machine)
    assert f"labels of {node}" in Cloud({node: "gone"}, {}).available(machine)
    with lab.safety.injector.inject(Cloud({}, {}), Declared((), (CLOUD,)), discard):
        assert "a cloud already" in Cloud({}, {}).available(machine)
    assert Cloud({}, {}).available(machine) == ""


def test_restored_node_gets_a_csi_driver(lab: LabHandle, node: str) -> None:
    """Without it the kubelet would create a CSINode owned by the deleted Node, for the garbage collector."""
    _skip_if_unsupported(Volumes.name, lab)
    lost, after = FAULTS["node-deleted"](lab, node), Volumes()
    plane, machine = _machine(lab, lost), _machine(lab, after)
    lost.inject(plane)
    lost.heal(plane)
    assert eventually(lambda: lost.is_healed(plane), HEAL_TIMEOUT_S)
    assert eventually(lambda: after.available(machine) == "", HEAL_TIMEOUT_S)
    after.inject(machine)
    try:
        assert eventually(lambda: after.is_injected(machine), INJECT_TIMEOUT_S)
    finally:
        after.heal(machine)
    assert eventually(lambda: after.is_healed(machine), HEAL_TIMEOUT_S)


def test_outage_of_all_components_needs_its_radius(lab: LabHandle, node: str) -> None:
    outage_fault = FAULTS["outage"](lab, node)
    with (
        pytest.raises(GuardRefused, match=r"more than 2 nodes|without an unfaulted"),
        lab.safety.injector.inject(outage_fault, Declared(outage_fault.affected_nodes), discard),
    ):
        pytest.fail("the fault was not refused")
    with (
        pytest.raises(GuardRefused, match="without an unfaulted node"),
        lab.safety.injector.inject(
            outage_fault, Declared(outage_fault.affected_nodes, radius="zone"), discard
        ),
    ):
        pytest.fail("the fault was not refused")


def test_outage_is_simultaneous_for_all_components(lab: LabHandle, node: str) -> None:
    outage_fault = FAULTS["outage"](lab, node)
    with lab.safety.injector.inject(
        outage_fault, Declared(outage_fault.affected_nodes, radius="cluster"), discard
    ):
        assert not any(
            lab.fleet.machine(name).reached_from_control_plane() for name in outage_fault.affected_nodes
        )
        assert not any(
            lab.fleet.machine(name).reaches_control_plane() for name in outage_fault.affected_nodes
        )
    assert all(lab.fleet.machine(name).reaches_control_plane() for name in outage_fault.affected_nodes)
    lab.wait_nodes_ready()


def test_scenario_may_lose_everything_it_declared(lab: LabHandle, tmp_path: Path) -> None:
    all_nodes = lab.fleet.nodes()
    stage = Lab(lab, tmp_path, Needs(faulted=len(all_nodes), radius="cluster"), nullcontext)
    lab.clean(Needs(faulted=len(all_nodes), radius="cluster"))
    with pytest.raises(TooFewNodes):
        lab.clean(Needs(faulted=len(all_nodes), radius="zone"))
    with stage.record(), stage.inject(outage(*all_nodes)) as cut:
        pass
    assert stage.find(cut.healed_at) is not None
    assert fence(stage.history()).passed
    lab.wait_nodes_ready()


def test_configuration_of_a_lab_is_read_from_its_processes(lab: LabHandle) -> None:
    flag = "terminated-pod-gc-threshold"
    fault = Settings(MANAGER, {flag: "777"})
    lab.prepare()
    for component, flags in lab.kind.flags_set(lab.profile).items():
        assert flags.keys() <= lab.configuration.flags_set[component].keys(), component
    assert flag not in lab.configuration.flags_set[MANAGER]
    with lab.safety.injector.inject(fault, Declared((), (MANAGER,)), discard):
        lab.prepare()
    assert lab.configuration.flags_set[MANAGER][flag] == "777"
    lab.prepare()
    assert flag not in lab.configuration.flags_set[MANAGER]


def test_lab_reports_the_arguments_of_its_components(lab: LabHandle) -> None:
    for name in COMPONENTS:
        machine = lab.fleet.machine(name)
        assert isinstance(machine, ServiceMachine)
        running = machine.run(["cat", f"/proc/{machine.boot_id()}/cmdline"], timeout_s=COMMAND_TIMEOUT_S)
        assert running.stdout.rstrip("\0").split("\0") == list(machine.command())
    assert lab.fleet.machine(CONTROL_PLANE).is_powered()
    assert lab.cluster.api.get(f"/api/v1/namespaces/{LEASE_NAMESPACE}")
