"""The guard lets a fault near a target only when everything says that it is a node of our own lab."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeproof.faults import (
    Fault,
    KubeletSettings,
    OtherFile,
    Partition,
    Reset,
    Shutdown,
    Swap,
    UnitDown,
    UnitUp,
)
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import Radius
from nodeproof.safety.guard import Declared, Record, Refused, Target, check_plan, check_target

ONE_ZONE = {"node-1": "zone-a", "node-2": "zone-a"}
OWNERS = {"node-1": "p-000001 id-1", "node-2": "p-000001 id-2"}
RECORD = Record("p-000001", "uid-1", {"node-1": "id-1", "node-2": "id-2"}, ONE_ZONE, OWNERS)
TARGET = Target("node-1", "uid-1", "p-000001", "id-1", "id-1", "p-000001 id-1")


def plan(record: Record, declared: set[str], lost: set[str], planes: Collection[str] = ()) -> None:
    """Ask the guard for a fault on node-1."""
    check_plan("node-1", ("node",), ["node-1"], record, Declared(declared), lost, lambda: planes)


def test_a_node_of_the_lab_inside_the_blast_radius_passes() -> None:
    plan(RECORD, {"node-1"}, set())
    check_target(TARGET, RECORD)


COMPONENTS = ("etcd", "kube-controller-manager")
LARGE = replace(
    RECORD,
    machine_ids={f"node-{number}": f"id-{number}" for number in range(1, 6)},
    zones={f"node-{number}": "zone-a" if number < 4 else "zone-b" for number in range(1, 6)},
    components=COMPONENTS,
)
ZONE_A, EVERYBODY = ("node-1", "node-2", "node-3"), tuple(LARGE.machine_ids)


def group(harms: Collection[str], radius: Radius) -> None:
    """Ask the guard for a fault on the control plane's side that takes these nodes away."""
    check_plan(CONTROL_PLANE, ("control-plane",), harms, LARGE, Declared(harms, (), radius), set(), set)


@pytest.mark.parametrize(
    ("harms", "radius", "said"),
    [
        (ZONE_A[:2], "", ""),
        (ZONE_A, "", "more than 2 nodes"),
        (("node-4", "node-5"), "", "zone-b without an unfaulted node"),
        (ZONE_A, "zone", ""),
        (EVERYBODY, "zone", "p-000001 without an unfaulted node"),
        (EVERYBODY, "cluster", ""),
    ],
)
def test_a_group_is_asked_for_once_and_within_the_declared_radius(
    harms: Collection[str], radius: Radius, said: str
) -> None:
    with pytest.raises(Refused, match=said) if said else contextlib.nullcontext():
        group(harms, radius)


def test_one_of_a_group_that_was_not_declared_refuses_them_all() -> None:
    with pytest.raises(Refused, match="node-2 is outside the declared blast radius: node-1"):
        check_plan(
            CONTROL_PLANE, ("control-plane",), ["node-1", "node-2"], LARGE, Declared(["node-1"]), set(), set
        )


@pytest.mark.parametrize(
    ("place", "declared", "said"),
    [
        ("etcd", ("etcd",), ""),
        ("etcd", ("kube-controller-manager",), "etcd is outside the declared blast radius: kube-controller"),
        ("etcd", (), "no component"),
        ("sshd", ("sshd",), "cannot be injected on a node"),
        (CONTROL_PLANE, (CONTROL_PLANE,), "cannot be injected on a control-plane"),
        ("node-1", ("node-1",), "cannot be injected on a node"),
    ],
)
def test_a_component_is_hit_where_it_was_declared(place: str, declared: Collection[str], said: str) -> None:
    with pytest.raises(Refused, match=said) if said else contextlib.nullcontext():
        check_plan(place, ("component",), [], LARGE, Declared((), declared), set(), set)


@pytest.mark.parametrize(
    "made", [UnitDown, Shutdown, Partition, KubeletSettings, Swap, Reset, OtherFile, UnitUp]
)
def test_a_fault_of_nodes_is_done_on_no_component(made: Callable[..., Fault]) -> None:
    """There its commands would run in the lab's outer namespaces, beside the host's service manager."""
    fault = made("12345678", "etcd")
    with pytest.raises(Refused, match=r"cannot be injected on a component \(etcd\), only on a node"):
        check_plan(
            fault.node, fault.places, fault.harms, LARGE, Declared((), COMPONENTS, "cluster"), set(), set
        )


def test_a_component_with_a_fault_is_no_lost_node() -> None:
    check_plan("etcd", ("component",), ["etcd"], LARGE, Declared((), COMPONENTS), {"node-1", "node-2"}, set)
    group(("node-1",), "")
    check_plan("node-2", ("node",), ["node-2"], LARGE, Declared(["node-2"]), {"etcd", "node-1"}, set)


def test_a_component_is_ours_if_its_cluster_is() -> None:
    check_target(Target("etcd", "uid-1"), LARGE)
    with pytest.raises(Refused, match="kube-system UID of etcd"):
        check_target(Target("etcd", "uid-2"), LARGE)


@pytest.mark.parametrize("stranger", ["node-9", ""])
def test_a_node_that_the_record_does_not_know_is_refused(stranger: str) -> None:
    with pytest.raises(Refused, match="not a node of lab"):
        check_plan(stranger, ("node",), [stranger], RECORD, Declared({stranger}), set(), set)


@pytest.mark.parametrize(
    ("change", "said"),
    [
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
def test_one_fact_that_does_not_match_the_record_is_enough_to_refuse(
    change: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        check_target(replace(TARGET, **change), RECORD)


def test_nodes_without_a_hypervisor_are_nobodys_there() -> None:
    without = replace(RECORD, owners={})
    check_target(replace(TARGET, owner=""), without)
    with pytest.raises(Refused, match="owner by the hypervisor"):
        check_target(TARGET, without)


@pytest.mark.parametrize("declared", [set(), {"node-2"}])
def test_a_node_outside_the_declared_blast_radius_is_refused(declared: set[str]) -> None:
    with pytest.raises(Refused, match="outside the declared blast radius"):
        plan(RECORD, declared, set())


def test_the_last_unfaulted_node_is_refused() -> None:
    with pytest.raises(Refused, match="without an unfaulted node"):
        plan(RECORD, {"node-1", "node-2"}, {"node-2"})


def test_a_second_fault_on_a_faulted_node_takes_no_further_one() -> None:
    plan(RECORD, {"node-1"}, {"node-1"})


def test_a_lab_of_one_node_has_none_to_spare() -> None:
    alone = replace(RECORD, machine_ids={"node-1": "id-1"}, zones={"node-1": "zone-a"})
    with pytest.raises(Refused, match="without an unfaulted node"):
        plan(alone, {"node-1"}, set())


def test_the_last_unfaulted_node_of_a_zone_is_refused() -> None:
    apart = replace(RECORD, zones={"node-1": "zone-a", "node-2": "zone-b"})
    with pytest.raises(Refused, match="zone-a without an unfaulted node"):
        plan(apart, {"node-1"}, set())


def test_the_last_control_plane_node_is_refused() -> None:
    everything = {"node-1", "node-2", "node-3"}
    three = replace(
        RECORD,
        machine_ids=dict.fromkeys(everything, "id-1"),
        zones=dict.fromkeys(everything, "zone-a"),
    )
    with pytest.raises(Refused, match="last control-plane node"):
        plan(three, everything, set(), {"node-1"})
    two = {"node-1", "node-2"}
    plan(three, everything, set(), two)
    with pytest.raises(Refused, match="last control-plane node"):
        plan(three, everything, {"node-2"}, two)
    plan(three, everything, {"node-2"}, {"node-2"})


def test_a_third_lost_node_is_refused() -> None:
    names = [f"node-{number}" for number in range(1, 6)]
    many = replace(RECORD, machine_ids=dict.fromkeys(names, "id-1"), zones=dict.fromkeys(names, "zone-a"))
    plan(many, set(names), {"node-2"})
    with pytest.raises(Refused, match="more than 2 nodes"):
        plan(many, set(names), {"node-2", "node-3"})
