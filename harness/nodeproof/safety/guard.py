"""The guard: default deny. A target must be provably a node of our own lab, and within the declared blast
radius.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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


def check_plan(
    node: str,
    record: Record,
    declared: Collection[str],
    already_lost: Collection[str],
    control_planes: Callable[[], Collection[str]],
) -> None:
    """Let a plan pass before anybody speaks to its target, or raise Refused.

    `already_lost` are the nodes that have a fault, or had one that is not proven healed; `control_planes`
    asks the cluster for the nodes that run its control plane.
    """
    if node not in record.machine_ids:
        raise Refused(f"{node} is no node of lab {record.lab}")
    if node not in declared:
        raise Refused(f"{node} is outside the declared blast radius: {', '.join(sorted(declared)) or 'none'}")
    lost = {*already_lost, node}
    if len(lost) > MOST_LOST:
        raise Refused(f"a fault on {node} would take more than {MOST_LOST} nodes of lab {record.lab} away")
    zone = record.zones.get(node, "")
    if all(name in lost for name, place in record.zones.items() if place == zone):
        raise Refused(f"a fault on {node} would leave {zone or record.lab} without an unfaulted node")
    planes = set(control_planes())
    if node in planes and planes <= lost:
        raise Refused(f"{node} is the last control-plane node without a fault")


def check_target(target: Target, record: Record) -> None:
    """Let a target pass that is provably ours, or raise Refused with the first thing that is not as the
    lab's record has it.
    """
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
