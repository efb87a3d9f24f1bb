"""Faults of the control plane, and on its side: each with its exact inverse, whoever heals it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts import csi
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.faults import (
    Cloud,
    Fault,
    Freeze,
    Labelled,
    NodeDeleted,
    Outage,
    PowerOff,
    ReadyPatched,
    Refused,
    Settings,
    Taint,
    Volumes,
    fault_from_json,
)
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab, TooFewNodes
from nodeproof.labs.client.service import ServiceMachine
from nodeproof.machines.machine import CONTROL_PLANE, Machine
from nodeproof.model.cluster import LEASE_NAMESPACE, has_taint
from nodeproof.model.history import fence
from nodeproof.model.needs import ATTACHER, CLOUD, COMPONENTS, Needs
from nodeproof.safety.guard import Declared
from nodeproof.safety.guard import Refused as GuardRefused
from nodeproof.safety.injector import HEAL_LIMIT_S, INJECT_LIMIT_S
from nodeproof.scenario import outage
from nodeproof.scenario.stage import Stage
from tests.acceptance.command import nodeproof
from tests.contract.late import assert_no_late_harm
from tests.contract.victim import DIED
from tests.waiting import eventually, told

TOP = Path(__file__).parents[2]
IN_LIMIT_S = 60.0
COMMAND_LIMIT_S = 20.0
MANAGER = "kube-controller-manager"
SHUT_DOWN = "node.cloudprovider.kubernetes.io/shutdown"
FAULTS: Mapping[str, Callable[[Lab, str], Fault]] = {
    "cloud": lambda lab, node: Cloud(_new_id(), {node: "gone"}, {node: _labels(lab, node)}),
    "volumes": lambda _lab, _node: Volumes(_new_id()),
    "settings": lambda _lab, _node: Settings(_new_id(), MANAGER, {"node-eviction-rate": "0.25"}),
    "manager-off": lambda _lab, _node: PowerOff(_new_id(), MANAGER),
    "etcd-frozen": lambda _lab, _node: Freeze(_new_id(), "etcd"),
    "server-off": lambda _lab, _node: PowerOff(_new_id(), "kube-apiserver"),
    "outage": lambda lab, _node: Outage(_new_id(), {e.name: e.data_address for e in lab.fleet.nodes()}),
    "node-deleted": lambda lab, node: NodeDeleted(_new_id(), node, _labels(lab, node)),
    "taint": lambda _lab, node: Taint(_new_id(), node, "nodeproof.dev/test", "x", "NoExecute"),
    "taint-two": lambda lab, node: Taint(
        _new_id(), node, "nodeproof.dev/test", "x", "NoSchedule", also=_another(lab, node)
    ),
    "labelled": lambda _lab, node: Labelled(_new_id(), "nodeproof.dev/test", "x", {node: None}),
    "ready-patched": lambda _lab, node: ReadyPatched(_new_id(), node),
    "refused-status": lambda _lab, node: Refused(_new_id(), node, "status"),
    "refused-lease": lambda _lab, node: Refused(_new_id(), node, "lease"),
}
POINTS = ("before injected", "after injecting", "after healing", "before closed")
"""Where in the protocol a harness dies."""
ALIKE = pytest.mark.night("CI has each fault at one point and each point with one fault")
CRASHES = [
    pytest.param(name, point, marks=[] if name == "settings" or point == "after injecting" else ALIKE)
    for name in FAULTS
    for point in POINTS
]
FOUND_BY_NAME = ("cloud", "volumes", "settings", "outage", "ready-patched", "refused-status", "refused-lease")


def _labels(lab: Lab, node: str) -> Mapping[str, str]:
    labels: Mapping[str, str] = lab.cluster.api.get(node_path(node))["metadata"]["labels"]
    return labels


def _another(lab: Lab, node: str) -> list[str]:
    return [entry.name for entry in lab.fleet.nodes() if entry.name != node][:1]


def _new_id() -> str:
    return uuid.uuid4().hex[:8]


def nothing(*_args: object, **_data: object) -> None:
    """Append nothing."""


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, lab: Lab, node: str) -> Iterator[Fault]:
    """Each of them, healed afterwards."""
    _skip_unless_had(request.param, lab)
    yield from _healed(FAULTS[request.param](lab, node), lab)


@pytest.fixture(params=FOUND_BY_NAME)
def left_behind(request: pytest.FixtureRequest, lab: Lab, node: str) -> Iterator[Fault]:
    """One that nobody knows of but by the name of what it leaves."""
    _skip_unless_had(request.param, lab)
    yield from _healed(FAULTS[request.param](lab, node), lab)


def _skip_unless_had(name: str, lab: Lab) -> None:
    if name != Volumes.name:
        return
    if name not in lab.features:
        pytest.skip(f"a {lab.kind.name} lab has no volumes")
    csi.obtain(print)
    why = Volumes(_new_id()).available(lab.fleet.machine(ATTACHER))
    if "inotify" in why:
        pytest.skip(why)


def _healed(fault: Fault, lab: Lab) -> Iterator[Fault]:
    machine = lab.fleet.machine(fault.node)
    yield fault
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    lab.wait_nodes_ready()


def _machine(lab: Lab, fault: Fault) -> Machine:
    return lab.fleet.machine(fault.node)


@pytest.mark.core
def test_a_fault_of_the_control_plane_is_seen_twice_and_healed_twice(lab: Lab, fault: Fault) -> None:
    machine = _machine(lab, fault)
    assert fault.available(machine) == ""
    assert fault.is_healed(machine)
    assert not told(lambda: fault.is_injected(machine))
    assert fault_from_json(json.loads(json.dumps(dict(fault.to_json())))) == fault

    fault.inject(machine)
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_LIMIT_S)
    assert not told(lambda: fault.is_healed(machine))

    fault.heal(machine)
    fault.heal(machine)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    assert not told(lambda: fault.is_injected(machine))


@pytest.mark.parametrize(("fault", "point"), CRASHES, indirect=["fault"])
def test_a_crash_at_each_side_of_a_step_is_healed(lab: Lab, fault: Fault, point: str, tmp_path: Path) -> None:
    data = json.dumps(dict(fault.to_json()))
    argv: Sequence[str] = [sys.executable, "-m", "tests.contract.victim", lab.name, data, point]
    died = proc.run(argv, timeout_s=IN_LIMIT_S, cwd=TOP, check=False)
    assert died.status == DIED, died

    done = nodeproof("heal", "--lab-name", lab.name, cwd=tmp_path)
    assert done.status == 0, done
    assert fault.is_healed(_machine(lab, fault))
    assert registry.client(lab.name).status()["not_disarmed"] == []
    assert lab.safety.ledger.unfinished() == []


def test_what_nobody_knows_of_is_found_by_the_name_of_what_it_left(lab: Lab, left_behind: Fault) -> None:
    machine = _machine(lab, left_behind)
    left_behind.inject(machine)
    assert eventually(lambda: left_behind.is_injected(machine), INJECT_LIMIT_S)
    assert lab.safety.heal_unfinished() == []
    assert eventually(lambda: left_behind.is_healed(machine), HEAL_LIMIT_S)


def test_no_command_of_an_injection_acts_after_the_healing(lab: Lab, fault: Fault) -> None:
    assert_no_late_harm(lab.safety.injector, _machine(lab, fault), fault)


def test_the_labs_own_switch_heals_the_control_plane(lab: Lab, fault: Fault) -> None:
    machine, client = _machine(lab, fault), registry.client(lab.name)
    fault.inject(machine)
    assert eventually(lambda: fault.is_injected(machine), INJECT_LIMIT_S)
    client.arm(fault.to_json(), 0.1)
    assert eventually(lambda: fault.is_healed(machine), HEAL_LIMIT_S)
    client.arm(fault.to_json(), 0)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (Declared(()), "outside the declared blast radius"),
        (Declared(("node-1",), ()), "outside the declared blast radius"),
    ],
)
def test_what_was_not_declared_is_not_touched(lab: Lab, fault: Fault, declared: Declared, said: str) -> None:
    if set(fault.harms) <= set(declared.nodes):
        pytest.skip("it was declared")
    with pytest.raises(GuardRefused, match=said), lab.safety.injector.inject(fault, declared, nothing):
        pytest.fail("it was refused")


def test_a_cloud_takes_a_lost_node_away_and_is_healed_with_its_node(lab: Lab, node: str) -> None:
    cloud, lost = FAULTS["cloud"](lab, node), ReadyPatched(_new_id(), node)
    machine, plane = _machine(lab, cloud), _machine(lab, lost)

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in lab.cluster.api.get(WATCHED["nodes"])["items"]]

    cloud.inject(machine)
    try:
        assert eventually(lambda: cloud.is_injected(machine), INJECT_LIMIT_S)
        lost.inject(plane)
        assert eventually(lambda: node not in names(), INJECT_LIMIT_S)
        assert not told(lambda: cloud.is_healed(machine))
    finally:
        cloud.heal(machine)
        lost.heal(plane)
    assert eventually(lambda: cloud.is_healed(machine), HEAL_LIMIT_S)
    assert node in names()
    lab.wait_nodes_ready()


def test_a_cloud_that_ends_leaves_no_taint(lab: Lab, node: str) -> None:
    cloud, lost = (
        Cloud(_new_id(), {node: "shut-down"}, {node: _labels(lab, node)}),
        ReadyPatched(_new_id(), node),
    )
    machine, plane = _machine(lab, cloud), _machine(lab, lost)

    def is_tainted() -> bool:
        return has_taint(lab.cluster.api.get(node_path(node)), SHUT_DOWN, "NoSchedule")

    cloud.inject(machine)
    try:
        lost.inject(plane)
        assert eventually(is_tainted, INJECT_LIMIT_S)
    finally:
        cloud.heal(machine)
        lost.heal(plane)
    assert not is_tainted()
    assert eventually(lambda: cloud.is_healed(machine), HEAL_LIMIT_S)


def test_a_cloud_has_answers_that_there_are_and_labels_to_give_back(lab: Lab, node: str) -> None:
    machine, labels = lab.fleet.machine(CLOUD), {node: _labels(lab, node)}
    assert "not lost" in fault_from_json(
        {"fault": "cloud", "id": _new_id(), "answers": {node: "lost"}, "labels": labels}
    ).available(machine)
    assert f"labels of {node}" in Cloud(_new_id(), {node: "gone"}).available(machine)
    with lab.safety.injector.inject(Cloud(_new_id()), Declared((), (CLOUD,)), nothing):
        assert "a cloud already" in Cloud(_new_id()).available(machine)
    assert Cloud(_new_id()).available(machine) == ""


def test_a_node_that_was_given_back_finds_a_csi_driver(lab: Lab, node: str) -> None:
    """Its kubelet would make its CSINode for the Node that is gone, and the garbage collector end that."""
    _skip_unless_had(Volumes.name, lab)
    lost, after = FAULTS["node-deleted"](lab, node), Volumes(_new_id())
    plane, machine = _machine(lab, lost), _machine(lab, after)
    lost.inject(plane)
    lost.heal(plane)
    assert eventually(lambda: lost.is_healed(plane), HEAL_LIMIT_S)
    assert eventually(lambda: after.available(machine) == "", HEAL_LIMIT_S)
    after.inject(machine)
    try:
        assert eventually(lambda: after.is_injected(machine), INJECT_LIMIT_S)
    finally:
        after.heal(machine)
    assert eventually(lambda: after.is_healed(machine), HEAL_LIMIT_S)


def test_an_outage_of_all_needs_its_radius(lab: Lab, node: str) -> None:
    everybody = FAULTS["outage"](lab, node)
    with (
        pytest.raises(GuardRefused, match=r"more than 2 nodes|without an unfaulted"),
        lab.safety.injector.inject(everybody, Declared(everybody.harms), nothing),
    ):
        pytest.fail("it was refused")
    with (
        pytest.raises(GuardRefused, match="without an unfaulted node"),
        lab.safety.injector.inject(everybody, Declared(everybody.harms, radius="zone"), nothing),
    ):
        pytest.fail("it was refused")


def test_an_outage_is_one_instant_for_all(lab: Lab, node: str) -> None:
    everybody = FAULTS["outage"](lab, node)
    with lab.safety.injector.inject(everybody, Declared(everybody.harms, radius="cluster"), nothing):
        assert not any(lab.fleet.machine(name).reached_from_control_plane() for name in everybody.harms)
        assert not any(lab.fleet.machine(name).reaches_control_plane() for name in everybody.harms)
    assert all(lab.fleet.machine(name).reaches_control_plane() for name in everybody.harms)
    lab.wait_nodes_ready()


def test_a_scenario_may_lose_everything_that_it_declared(lab: Lab, tmp_path: Path) -> None:
    everybody = lab.fleet.nodes()
    stage = Stage(lab, tmp_path, Needs(faulted=len(everybody), radius="cluster"), nullcontext)
    lab.clean(Needs(faulted=len(everybody), radius="cluster"))
    with pytest.raises(TooFewNodes):
        lab.clean(Needs(faulted=len(everybody), radius="zone"))
    with stage.record(), stage.inject(outage(*everybody)) as cut:
        pass
    assert stage.find(cut.healed) is not None
    assert fence(stage.history()).passed
    lab.wait_nodes_ready()


def test_what_a_lab_was_given_is_read_from_what_runs(lab: Lab) -> None:
    flag = "terminated-pod-gc-threshold"
    fault = Settings(_new_id(), MANAGER, {flag: "777"})
    lab.prepare()
    for component, flags in lab.kind.flags_set(lab.profile).items():
        assert flags.keys() <= lab.configuration.flags_set[component].keys(), component
    assert flag not in lab.configuration.flags_set[MANAGER]
    with lab.safety.injector.inject(fault, Declared((), (MANAGER,)), nothing):
        lab.prepare()
    assert lab.configuration.flags_set[MANAGER][flag] == "777"
    lab.prepare()
    assert flag not in lab.configuration.flags_set[MANAGER]


def test_a_lab_says_what_its_components_were_started_with(lab: Lab) -> None:
    for name in COMPONENTS:
        machine = lab.fleet.machine(name)
        assert isinstance(machine, ServiceMachine)
        running = machine.run(["cat", f"/proc/{machine.boot_id()}/cmdline"], deadline_s=COMMAND_LIMIT_S)
        assert running.stdout.rstrip("\0").split("\0") == list(machine.command())
    assert lab.fleet.machine(CONTROL_PLANE).is_powered()
    assert lab.cluster.api.get(f"/api/v1/namespaces/{LEASE_NAMESPACE}")
