"""The guard: default deny. A target must be provably a node of our own lab, and within the declared blast
radius.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Target:
    """What the cluster, the machine and its hypervisor say just before a fault."""

    node: str
    kube_system_uid: str
    lab_label: str
    node_machine_id: str
    machine_id: str
    owner: str
    control_planes: frozenset[str] = frozenset()
    """All nodes of the cluster that run its control plane."""


def check(
    target: Target, record: Record, declared: Collection[str], already_faulted: Collection[str]
) -> None:
    """Let a fault pass, or raise Refused with the first thing that does not match the lab's record."""
    if target.node not in record.machine_ids:
        raise Refused(f"{target.node} is no node of lab {record.lab}")
    faulted = {*already_faulted, target.node}
    if len(faulted) > MOST_LOST:
        raise Refused(
            f"a fault on {target.node} would take more than {MOST_LOST} nodes of lab {record.lab} away"
        )
    zone = record.zones.get(target.node, "")
    if all(name in faulted for name, place in record.zones.items() if place == zone):
        raise Refused(f"a fault on {target.node} would leave {zone or record.lab} without an unfaulted node")
    if target.node in target.control_planes and target.control_planes <= faulted:
        raise Refused(f"{target.node} is the last control-plane node without a fault")
    if target.node not in declared:
        raise Refused(
            f"{target.node} is outside the declared blast radius: {', '.join(sorted(declared)) or 'none'}"
        )
    expected = record.machine_ids[target.node]
    facts = (
        ("kube-system UID", target.kube_system_uid, record.kube_system_uid),
        (f"label {LAB_LABEL}", target.lab_label, record.lab),
        ("machine id of the Node", target.node_machine_id, expected),
        ("machine id of the machine", target.machine_id, expected),
        ("owner by the hypervisor", target.owner, record.owners.get(target.node, "")),
    )
    for what, seen, wanted in facts:
        if seen != wanted:
            raise Refused(f"{what} of {target.node} is {seen!r}, lab {record.lab} recorded {wanted!r}")
