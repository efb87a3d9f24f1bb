"""The guard: default deny. A target must be a node of our own lab and within the declared blast radius."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.needs import Radius, role_of

LAB_LABEL = "nodeproof.dev/lab"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
_WITH_MEMBER = ("etcd", CONTROL_PLANE)
"""Machines whose loss is that of a member of etcd."""
MAX_LOST = 2
"""A zone with more than two lost nodes may count as partially disrupted, which changes the eviction rate."""


class Refused(Exception):
    """The guard rejects a fault; nothing was changed."""


class NotPermitted(Refused):
    """The owner of the nodes does not permit a fault now; nothing was changed."""


@dataclass(frozen=True)
class Record:
    """Facts about a lab, stored when it was created.

    `owners` maps each node to the owner of its machine at the hypervisor; nodes without a hypervisor have
    none.
    """

    lab: str
    kube_system_uid: str
    machine_ids: Mapping[str, str]
    zones: Mapping[str, str]
    owners: Mapping[str, str]
    components: Collection[str] = ()
    """The components of its control plane."""
    control_planes: Mapping[str, str] = field(default_factory=dict)
    """Of several control planes: that of each replica of a component, and each by its own name."""


@dataclass(frozen=True)
class Target:
    """Facts about a target just before a fault, from the cluster, the machine and its hypervisor.

    For a component of the control plane only the cluster is known. If there is no SSH access, machine and
    hypervisor were not queried. The label is None if nodes have a mark of their owner instead.
    """

    node: str
    kube_system_uid: str
    lab_label: str | None = ""
    node_machine_id: str = ""
    machine_id: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Declared:
    """Limits that a scenario declares for its faults: nodes, components and `radius`.

    `lasts_s` is how long the scenario is expected to last (s).
    """

    nodes: Collection[str]
    components: Collection[str] = ()
    radius: Radius = ""
    lasts_s: float = 0.0


def check_plan(
    place: str,
    allowed_places: Collection[str],
    affected_nodes: Collection[str],
    record: Record,
    declared: Declared,
    already_lost: Collection[str],
    control_planes: Callable[[], Collection[str]],
) -> None:
    """Accept a plan before its targets are contacted, or raise Refused.

    Args:
        place: The machine that the fault is injected on.
        allowed_places: The kinds of machine that the fault is for.
        affected_nodes: The nodes that it takes down.
        record: Stored facts about the lab.
        declared: The scenario's limits.
        already_lost: The nodes that have a fault, or had one that is not proven healed.
        control_planes: Reads the nodes that run the control plane from the cluster.

    Raises:
        Refused: The plan exceeds the limits.
    """
    nodes = [name for name in affected_nodes if name not in record.components]
    _check_place(place, allowed_places, affected_nodes, record, declared)
    _check_quorum(place, already_lost, record, declared.radius)
    for node in nodes:
        if node not in record.machine_ids:
            raise Refused(f"{node} is not a node of lab {record.lab}")
        if node not in declared.nodes:
            declared_names = ", ".join(sorted(declared.nodes)) or "none"
            raise Refused(f"{node} is outside the declared blast radius: {declared_names}")
    lost = {*already_lost, *nodes} & set(record.machine_ids)
    named = ", ".join(nodes)
    if declared.radius == "" and len(lost) > MAX_LOST:
        raise Refused(f"a fault on {named} would take down more than {MAX_LOST} nodes of lab {record.lab}")
    _check_unfaulted(named, {record.zones.get(node, "") for node in nodes}, lost, record, declared.radius)
    planes = set(control_planes()) if nodes else set()
    if planes & set(nodes) and planes <= lost:
        raise Refused(f"{named} is the last control-plane node without a fault")


def _check_place(
    place: str,
    allowed_places: Collection[str],
    affected: Collection[str],
    record: Record,
    declared: Declared,
) -> None:
    """Require a kind of machine that the fault supports, and declared components if it affects any."""
    kind = _kind_of(place, record)
    if kind not in allowed_places:
        choices = " or a ".join(allowed_places)
        raise Refused(f"the fault cannot be injected on a {kind} ({place}), only on a {choices}")
    components = [name for name in affected if name in record.components]
    has_nodes = len(components) < len(affected)
    if kind in ("component", "plane") or not has_nodes:
        _check_components(components if kind == "control-plane" and components else [place], record, declared)


def _check_components(names: Collection[str], record: Record, declared: Declared) -> None:
    """Require declared components of this lab; a declared component includes its replicas."""
    for name in names:
        if name not in record.components:
            raise Refused(f"{name} is not a component of lab {record.lab}")
        if not {name, role_of(name)} & {*declared.components}:
            declared_names = ", ".join(sorted(declared.components)) or "no component"
            raise Refused(f"{name} is outside the declared blast radius: {declared_names}")


def _kind_of(place: str, record: Record) -> str:
    if place == CONTROL_PLANE:
        return "control-plane"
    if place in record.control_planes.values():
        return "plane"
    return "component" if place in record.components else "node"


def _check_quorum(place: str, already_lost: Collection[str], record: Record, radius: Radius) -> None:
    """Require a majority of unfaulted members of etcd, except with radius `cluster`."""
    planes = {*record.control_planes.values()}
    lost = {
        record.control_planes[name]
        for name in (place, *already_lost)
        if name in record.control_planes and role_of(name) in _WITH_MEMBER
    }
    if radius != "cluster" and record.control_planes.get(place) in lost and 2 * len(lost) >= len(planes):
        raise Refused(f"a fault on {place} would leave etcd of lab {record.lab} without a quorum")


def _check_unfaulted(
    named: str, zones: Collection[str], lost: Collection[str], record: Record, radius: Radius
) -> None:
    """Require an unfaulted node: by default in each zone, with radius `zone` in one of them."""
    if radius == "cluster" or not zones:
        return
    if radius == "zone" and all(name in lost for name in record.zones):
        raise Refused(f"a fault on {named} would leave lab {record.lab} without an unfaulted node")
    for zone in sorted(zones) if radius == "" else ():
        if all(name in lost for name, place in record.zones.items() if place == zone):
            raise Refused(f"a fault on {named} would leave {zone or record.lab} without an unfaulted node")


def check_target(target: Target, record: Record) -> None:
    """Accept a target that is proven to be ours, or raise Refused with the first fact that differs."""
    facts: list[tuple[str, str | None, str]] = [
        ("kube-system UID", target.kube_system_uid, record.kube_system_uid)
    ]
    if target.node in record.machine_ids:
        machine_id = record.machine_ids[target.node]
        facts += [
            (f"label {LAB_LABEL}", target.lab_label, record.lab),
            ("machine id of the Node", target.node_machine_id, machine_id),
            ("machine id of the machine", target.machine_id, machine_id),
            ("owner by the hypervisor", target.owner, record.owners.get(target.node, "")),
        ]
    for what, actual, expected in facts:
        if actual is not None and actual != expected:
            raise Refused(f"{what} of {target.node} is {actual!r}, lab {record.lab} recorded {expected!r}")
