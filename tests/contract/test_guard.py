"""The guard allows a fault only if every fact identifies the target as a node of our own lab."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeproof.faults import Fault
from nodeproof.faults.machine import Reset, Swap
from nodeproof.faults.partition import Partition
from nodeproof.faults.settings import KubeletSettings, ReplaceFile
from nodeproof.faults.units import Shutdown, UnitDown, UnitUp
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import Radius
from nodeproof.safety.guard import Declared, Record, Refused, Target, check_plan, check_target

ONE_ZONE = {"node-1": "zone-a", "node-2": "zone-a"}
OWNERS = {"node-1": "p-000001 id-1", "node-2": "p-000001 id-2"}
RECORD = Record("p-000001", "uid-1", {"node-1": "id-1", "node-2": "id-2"}, ONE_ZONE, OWNERS)
TARGET = Target("node-1", "uid-1", "p-000001", "id-1", "id-1", "p-000001 id-1")


def expect_refusal(reason: str) -> contextlib.AbstractContextManager[object]:
    """Expect this refusal, or none."""
    return pytest.raises(Refused, match=reason) if reason else contextlib.nullcontext()


COMPONENTS = ("etcd", "kube-controller-manager")
LARGE_LAB = replace(
    RECORD,
    machine_ids={f"node-{number}": f"id-{number}" for number in range(1, 6)},
    zones={f"node-{number}": "zone-a" if number < 4 else "zone-b" for number in range(1, 6)},
    components=COMPONENTS,
)
ZONE_A, ALL_NODES = ("node-1", "node-2", "node-3"), tuple(LARGE_LAB.machine_ids)


def check_group(affected_nodes: Collection[str], radius: Radius) -> None:
    """Plan a control plane fault that affects these nodes."""
    check_plan(
        CONTROL_PLANE,
        ("control-plane",),
        affected_nodes,
        LARGE_LAB,
        Declared(affected_nodes, (), radius),
        set(),
        set,
    )


@pytest.mark.parametrize(
    ("affected_nodes", "radius", "reason"),
    [
        (ZONE_A[:2], "", ""),
        (ZONE_A, "", "more than 2 nodes"),
        (("node-4", "node-5"), "", "zone-b without an unfaulted node"),
        (ZONE_A, "zone", ""),
        (ALL_NODES, "zone", "p-000001 without an unfaulted node"),
        (ALL_NODES, "cluster", ""),
    ],
)
def test_group_is_checked_once_against_the_declared_radius(
    affected_nodes: Collection[str], radius: Radius, reason: str
) -> None:
    with expect_refusal(reason):
        check_group(affected_nodes, radius)


def test_undeclared_member_refuses_the_whole_group() -> None:
    with pytest.raises(Refused, match="node-2 is outside the declared blast radius: node-1"):
        check_plan(
            CONTROL_PLANE,
            ("control-plane",),
            ["node-1", "node-2"],
            LARGE_LAB,
            Declared(["node-1"]),
            set(),
            set,
        )


@pytest.mark.parametrize(
    ("place", "declared", "reason"),
    [
        ("etcd", ("etcd",), ""),
        ("etcd", ("kube-controller-manager",), "etcd is outside the declared blast radius: kube-controller"),
        ("etcd", (), "no component"),
        ("sshd", ("sshd",), "cannot be injected on a node"),
        (CONTROL_PLANE, (CONTROL_PLANE,), "cannot be injected on a control-plane"),
        ("node-1", ("node-1",), "cannot be injected on a node"),
    ],
)
def test_component_may_be_faulted_where_it_was_declared(
    place: str, declared: Collection[str], reason: str
) -> None:
    with expect_refusal(reason):
        check_plan(place, ("component",), [], LARGE_LAB, Declared((), declared), set(), set)


@pytest.mark.parametrize(
    "fault_type", [UnitDown, Shutdown, Partition, KubeletSettings, Swap, Reset, ReplaceFile, UnitUp]
)
def test_node_fault_is_refused_on_a_component(fault_type: type[Fault]) -> None:
    """Its commands would run in the lab's outer namespaces, beside the host's service manager."""
    with pytest.raises(Refused, match=r"cannot be injected on a component \(etcd\), only on a node"):
        check_plan(
            "etcd", fault_type.places, ["etcd"], LARGE_LAB, Declared((), COMPONENTS, "cluster"), set(), set
        )


def test_component_with_a_fault_does_not_count_as_lost_node() -> None:
    check_plan(
        "etcd", ("component",), ["etcd"], LARGE_LAB, Declared((), COMPONENTS), {"node-1", "node-2"}, set
    )
    check_group(("node-1",), "")
    check_plan("node-2", ("node",), ["node-2"], LARGE_LAB, Declared(["node-2"]), {"etcd", "node-1"}, set)


PLANES = ("control-plane-1", "control-plane-2", "control-plane-3")
REPLICAS = {f"{name}-{plane[-1]}": plane for plane in PLANES for name in COMPONENTS}
SEVERAL_CONTROL_PLANES = replace(
    LARGE_LAB,
    components=(*COMPONENTS, *PLANES, *REPLICAS),
    control_planes={**REPLICAS, **{plane: plane for plane in PLANES}},
)


@pytest.mark.parametrize(
    ("place", "lost", "radius", "reason"),
    [
        ("control-plane-1", (), "", ""),
        ("control-plane-1", ("etcd-1",), "", ""),
        ("control-plane-1", ("kube-controller-manager-2",), "", ""),
        ("control-plane-1", ("etcd-2",), "", "without a quorum"),
        ("etcd-3", ("control-plane-2",), "zone", "without a quorum"),
        ("etcd-3", ("control-plane-2",), "cluster", ""),
        ("kube-controller-manager-3", ("control-plane-2",), "", ""),
        ("etcd", (), "", ""),
    ],
)
def test_quorum_of_etcd_is_kept_unless_all_may_be_lost(
    place: str, lost: Collection[str], radius: Radius, reason: str
) -> None:
    declared = Declared((), (*COMPONENTS, CONTROL_PLANE), radius)
    with expect_refusal(reason):
        check_plan(place, ("component", "plane"), [place], SEVERAL_CONTROL_PLANES, declared, lost, set)


@pytest.mark.parametrize("declared", [(), ("etcd",), ("control-plane-2",)])
def test_control_plane_is_faulted_where_it_was_declared(declared: Collection[str]) -> None:
    with pytest.raises(Refused, match="control-plane-1 is outside the declared blast radius"):
        check_plan("control-plane-1", ("plane",), [], SEVERAL_CONTROL_PLANES, Declared((), declared), (), set)
    with pytest.raises(Refused, match=r"cannot be injected on a plane"):
        check_plan(
            "control-plane-1",
            ("component",),
            [],
            SEVERAL_CONTROL_PLANES,
            Declared((), (CONTROL_PLANE,)),
            (),
            set,
        )


def test_component_belongs_to_the_lab_of_its_cluster() -> None:
    check_target(Target("etcd", "uid-1"), LARGE_LAB)
    with pytest.raises(Refused, match="kube-system UID of etcd"):
        check_target(Target("etcd", "uid-2"), LARGE_LAB)


@pytest.mark.parametrize("unknown_node", ["node-9", ""])
def test_node_unknown_to_the_record_is_refused(unknown_node: str) -> None:
    with pytest.raises(Refused, match="not a node of lab"):
        check_plan(unknown_node, ("node",), [unknown_node], RECORD, Declared({unknown_node}), set(), set)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"lab_label": None}, ""),
        ({"lab_label": None, "machine_id": "id-2"}, "machine id of the machine"),
        ({"kube_system_uid": "uid-2"}, "kube-system UID"),
        ({"kube_system_uid": ""}, "kube-system UID"),
        ({"lab_label": "p-000002"}, "label nodeproof.dev/lab"),
        ({"lab_label": ""}, "label nodeproof.dev/lab"),
        ({"node_machine_id": "id-2"}, "machine id of the Node"),
        ({"node_machine_id": ""}, "machine id of the Node"),
        ({"machine_id": "id-2"}, "machine id of the machine"),
        ({"machine_id": ""}, "machine id of the machine"),
        ({"owner": "p-000002 id-1"}, "owner by the hypervisor"),
        ({"owner": "p-000001 id-2"}, "owner by the hypervisor"),
        ({"owner": ""}, "owner by the hypervisor"),
    ],
)
def test_any_fact_that_differs_from_the_record_refuses_the_target(
    change: Mapping[str, Any], reason: str
) -> None:
    """A marked node has no label."""
    with expect_refusal(reason):
        check_target(replace(TARGET, **change), RECORD)


def test_owner_of_a_node_without_hypervisor_must_be_empty() -> None:
    without = replace(RECORD, owners={})
    check_target(replace(TARGET, owner=""), without)
    with pytest.raises(Refused, match="owner by the hypervisor"):
        check_target(TARGET, without)


SINGLE_NODE = replace(RECORD, machine_ids={"node-1": "id-1"}, zones={"node-1": "zone-a"})
TWO_ZONES = replace(RECORD, zones={"node-1": "zone-a", "node-2": "zone-b"})
PAIR = ("node-1", "node-2")


@pytest.mark.parametrize(
    ("record", "declared", "lost", "planes", "reason"),
    [
        (RECORD, PAIR[:1], (), (), ""),
        (RECORD, (), (), (), "outside the declared blast radius"),
        (RECORD, ["node-2"], (), (), "outside the declared blast radius"),
        (RECORD, PAIR, ["node-2"], (), "without an unfaulted node"),
        (RECORD, PAIR[:1], ["node-1"], (), ""),
        (SINGLE_NODE, PAIR[:1], (), (), "without an unfaulted node"),
        (TWO_ZONES, PAIR[:1], (), (), "zone-a without an unfaulted node"),
        (LARGE_LAB, ALL_NODES, ["node-2"], (), ""),
        (LARGE_LAB, ALL_NODES, ["node-2", "node-3"], (), "more than 2 nodes"),
        (LARGE_LAB, ALL_NODES, (), PAIR[:1], "last control-plane node"),
        (LARGE_LAB, ALL_NODES, (), PAIR, ""),
        (LARGE_LAB, ALL_NODES, ["node-2"], PAIR, "last control-plane node"),
        (LARGE_LAB, ALL_NODES, ["node-2"], ["node-2"], ""),
    ],
)
def test_fault_on_a_node_leaves_others_unfaulted(
    record: Record, declared: Collection[str], lost: Collection[str], planes: Collection[str], reason: str
) -> None:
    with expect_refusal(reason):
        check_plan("node-1", ("node",), ["node-1"], record, Declared(declared), lost, lambda: planes)
