"""Marks of nodes that may be harmed, and whether inventory and cluster agree on a node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodeproof.existing.inventory import Inventory
from nodeproof.model.pattern import Json

ANNOTATION = "nodeproof.dev/may-be-harmed"
_CONTROL_PLANE_KEYS = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
"""Labels and taints of control-plane nodes (kubernetes.io/docs/reference/labels-annotations-taints)."""
NOT_MARKED = "it is not marked"
_UNREADABLE = "its mark cannot be read"


@dataclass(frozen=True)
class Mark:
    """Consent of `owner` to faults on one machine of one cluster, until a time."""

    owner: str
    until: datetime
    machine_id: str
    cluster_uid: str

    def to_text(self) -> str:
        """Return the value of the annotation."""
        fields = {
            "owner": self.owner,
            "until": self.until.isoformat(timespec="seconds"),
            "machineID": self.machine_id,
            "clusterUID": self.cluster_uid,
        }
        return json.dumps(fields)

    @staticmethod
    def from_text(text: str) -> Mark:
        """Read the value of the annotation. Raises ValueError if it is malformed."""
        try:
            fields = json.loads(text)
            owner, machine_id, cluster_uid = (
                str(fields[key]) for key in ("owner", "machineID", "clusterUID")
            )
            until = datetime.fromisoformat(fields["until"])
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not a mark: {error!r}") from error
        if until.tzinfo is None:
            raise ValueError("its time has no zone")
        return Mark(owner, until, machine_id, cluster_uid)


def annotation(node: Json) -> str | None:
    """Return the text of a Node's mark, or None if it is not marked."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    return None if text is None else str(text)


def read_mark(node: Json) -> Mark | str:
    """Return a Node's mark, or why it has none that can be read."""
    text = annotation(node)
    if text is None:
        return NOT_MARKED
    try:
        return Mark.from_text(text)
    except ValueError:
        return _UNREADABLE


def machine_id(node: Json) -> str:
    """Return the machine id that the kubelet reported, or an empty string."""
    return str((node.get("status") or {}).get("nodeInfo", {}).get("machineID", ""))


def is_control_plane(node: Json) -> bool:
    """Return whether a Node has a label or a taint of the control plane."""
    taints = (taint["key"] for taint in node.get("spec", {}).get("taints") or ())
    return not _CONTROL_PLANE_KEYS.isdisjoint([*(node["metadata"].get("labels") or ()), *taints])


def is_same_cluster(inventory: Inventory, cluster_uid: str) -> bool:
    """Return whether the inventory is about the cluster with this UID of namespace kube-system."""
    return inventory.cluster.uid == cluster_uid


def target_refusals(inventory: Inventory, name: str, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield why a node must not be harmed, whatever its mark. `nodes` are the cluster's Nodes by name."""
    listed, node = inventory.nodes.get(name), nodes.get(name)
    if listed is None:
        yield "the inventory does not list it"
    if node is None:
        yield "the cluster has no such Node"
        return
    if listed is not None and not listed.is_control_plane and is_control_plane(node):
        yield "it is a control-plane node, and the inventory has no `control_plane: true` for it"
    if not machine_id(node):
        yield "its Node has no machineID"


def mark_refusals(
    inventory: Inventory, name: str, nodes: Mapping[str, Json], owner: str, now: datetime
) -> Iterator[str]:
    """Yield why `owner` must not mark a node now."""
    yield from target_refusals(inventory, name, nodes)
    mark = read_mark(nodes[name]) if name in nodes else NOT_MARKED
    if isinstance(mark, Mark) and mark.owner != owner and mark.until > now:
        yield f"{mark.owner} has marked it until {mark.until.isoformat(timespec='seconds')}"
    elif mark == _UNREADABLE:
        yield _UNREADABLE


def harm_refusals(
    inventory: Inventory, name: str, nodes: Mapping[str, Json], cluster_uid: str, now: datetime
) -> Iterator[str]:
    """Yield where inventory and cluster disagree on harming a node now."""
    if not is_same_cluster(inventory, cluster_uid):
        yield "the inventory is about another cluster"
    yield from target_refusals(inventory, name, nodes)
    if name not in nodes:
        return
    mark = read_mark(nodes[name])
    if not isinstance(mark, Mark):
        yield mark
        return
    if mark.until <= now:
        yield f"its mark expired at {mark.until.isoformat(timespec='seconds')}"
    if mark.machine_id != machine_id(nodes[name]):
        yield "its mark is about another machine"
    if mark.cluster_uid != cluster_uid:
        yield "its mark is about another cluster"


def expiry_refusals(node: Json, now: datetime, lasts: timedelta) -> Iterator[str]:
    """Yield a reason if the valid mark of a node expires before a fault has ended that begins now."""
    mark = read_mark(node)
    if isinstance(mark, Mark) and now < mark.until < now + lasts:
        expires = mark.until.isoformat(timespec="seconds")
        yield f"its mark expires at {expires}, and the fault may last {lasts.total_seconds():.0f} s"
