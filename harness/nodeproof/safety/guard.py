"""The guard: default deny. A target must be provably a node of our own lab, and within the declared blast
radius.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import Radius

LAB_LABEL = "nodeproof.dev/lab"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
MOST_LOST = 2
"""A zone with more than two nodes lost may count as partially disrupted, which changes the eviction rate."""


class Refused(Exception):
    """The guard does not let a fault near its target; nothing was touched."""


@dataclass(frozen=True)
class Record:
    """What a lab wrote down of itself when it was made.

    `owners` is, by node, whose machine its hypervisor says it is; nodes without a hypervisor have none.
    """

    lab: str
    kube_system_uid: str
    machine_ids: Mapping[str, str]
    zones: Mapping[str, str]
    owners: Mapping[str, str]
    components: Collection[str] = ()
    """Of its control plane."""


@dataclass(frozen=True)
class Target:
    """What the cluster, the machine and its hypervisor say just before a fault; of a component of the control
    plane there is only whose cluster it is. Where nobody logs in, nobody asked machine and hypervisor.
    """

    node: str
    kube_system_uid: str
    lab_label: str = ""
    node_machine_id: str = ""
    machine_id: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Declared:
    """What a scenario says that its faults may hit: these nodes, these components of the control plane, and
    as much of the lab at once as `radius` says.
    """

    nodes: Collection[str]
    components: Collection[str] = ()
    radius: Radius = ""


def check_plan(
    place: str,
    can_be_done_on: Collection[str],
    harms: Collection[str],
    record: Record,
    declared: Declared,
    already_lost: Collection[str],
    control_planes: Callable[[], Collection[str]],
) -> None:
    """Let a plan pass before anybody speaks to its targets, or raise Refused.

    `place` is the machine that the fault is done on, `can_be_done_on` what kinds of machine it is for,
    `harms` the nodes that it takes away, `already_lost` the nodes that have a fault, or had one that is not
    proven healed; `control_planes` asks the cluster for the nodes that run its control plane.
    """
    nodes = [name for name in harms if name not in record.components]
    _check_place(place, can_be_done_on, nodes, record, declared)
    for node in nodes:
        if node not in record.machine_ids:
            raise Refused(f"{node} is no node of lab {record.lab}")
        if node not in declared.nodes:
            said = ", ".join(sorted(declared.nodes)) or "none"
            raise Refused(f"{node} is outside the declared blast radius: {said}")
    lost = {*already_lost, *nodes} & set(record.machine_ids)
    named = ", ".join(nodes)
    if declared.radius == "" and len(lost) > MOST_LOST:
        raise Refused(f"a fault on {named} would take more than {MOST_LOST} nodes of lab {record.lab} away")
    _check_left(named, {record.zones.get(node, "") for node in nodes}, lost, record, declared.radius)
    planes = set(control_planes()) if nodes else set()
    if planes & set(nodes) and planes <= lost:
        raise Refused(f"{named} is the last control-plane node without a fault")


def _check_place(
    place: str, can_be_done_on: Collection[str], nodes: Collection[str], record: Record, declared: Declared
) -> None:
    """A fault is done on the one node that it harms, on the control plane to nodes, or on a declared
    component; each on no machine that it is not for.
    """
    kind = (
        "control-plane" if place == CONTROL_PLANE else "component" if place in record.components else "node"
    )
    if kind not in can_be_done_on:
        raise Refused(f"no such fault of a {kind} ({place}): it is for a {' or a '.join(can_be_done_on)}")
    if kind != "component" and nodes:
        return
    if place not in record.components:
        raise Refused(f"{place} is no component of lab {record.lab}")
    if place not in declared.components:
        said = ", ".join(sorted(declared.components)) or "no component"
        raise Refused(f"{place} is outside the declared blast radius: {said}")


def _check_left(
    named: str, zones: Collection[str], lost: Collection[str], record: Record, radius: Radius
) -> None:
    """Somebody is left without a fault in each zone, in one zone, or nowhere, as was declared."""
    if radius == "cluster":
        return
    if not zones:
        return
    if radius == "zone" and all(name in lost for name in record.zones):
        raise Refused(f"a fault on {named} would leave lab {record.lab} without an unfaulted node")
    for zone in sorted(zones) if radius == "" else ():
        if all(name in lost for name, place in record.zones.items() if place == zone):
            raise Refused(f"a fault on {named} would leave {zone or record.lab} without an unfaulted node")


def check_target(target: Target, record: Record) -> None:
    """Let a target pass that is provably ours, or raise Refused with the first thing that is not as the
    lab's record has it.
    """
    cluster = ("kube-system UID", target.kube_system_uid, record.kube_system_uid)
    if target.node not in record.machine_ids:
        _compare(target.node, record, [cluster])
        return
    expected = record.machine_ids[target.node]
    facts: list[tuple[str, str | None, str]] = [
        cluster,
        (f"label {LAB_LABEL}", target.lab_label, record.lab),
        ("machine id of the Node", target.node_machine_id, expected),
        ("machine id of the machine", target.machine_id, expected),
        ("owner by the hypervisor", target.owner, record.owners.get(target.node, "")),
    ]
    _compare(target.node, record, [fact for fact in facts if fact[1] is not None])


def _compare(name: str, record: Record, facts: Iterable[tuple[str, str | None, str]]) -> None:
    for what, seen, wanted in facts:
        if seen != wanted:
            raise Refused(f"{what} of {name} is {seen!r}, lab {record.lab} recorded {wanted!r}")
