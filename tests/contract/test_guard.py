"""The guard lets a fault near a target only when everything says that it is a node of our own lab."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeproof.safety.guard import Record, Refused, Target, check_plan, check_target

ONE_ZONE = {"node-1": "zone-a", "node-2": "zone-a"}
OWNERS = {"node-1": "p-000001 id-1", "node-2": "p-000001 id-2"}
RECORD = Record("p-000001", "uid-1", {"node-1": "id-1", "node-2": "id-2"}, ONE_ZONE, OWNERS)
TARGET = Target("node-1", "uid-1", "p-000001", "id-1", "id-1", "p-000001 id-1")


def plan(record: Record, declared: set[str], lost: set[str], planes: Collection[str] = ()) -> None:
    """Ask the guard for a fault on node-1."""
    check_plan("node-1", record, declared, lost, lambda: planes)


def test_a_node_of_the_lab_inside_the_blast_radius_passes() -> None:
    plan(RECORD, {"node-1"}, set())
    check_target(TARGET, RECORD)


@pytest.mark.parametrize("stranger", ["node-9", ""])
def test_a_node_that_the_record_does_not_know_is_refused(stranger: str) -> None:
    with pytest.raises(Refused, match="no node of lab"):
        check_plan(stranger, RECORD, {stranger}, set(), set)


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
