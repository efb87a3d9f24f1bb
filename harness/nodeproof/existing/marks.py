"""Marks of nodes that may be harmed, whether inventory and cluster agree on a node, and `nodeproof mark`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nodeproof import terminal
from nodeproof.cluster import resources
from nodeproof.cluster.api import ApiError
from nodeproof.existing.connection import ConnectedCluster, connected, local_user
from nodeproof.existing.inventory import Inventory
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report.plain import aligned

ANNOTATION = "nodeproof.dev/may-be-harmed"
_CONTROL_PLANE_KEYS = frozenset({"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"})
"""Labels and taints of control-plane nodes (kubernetes.io/docs/reference/labels-annotations-taints)."""
_NOT_MARKED, _UNREADABLE = "it is not marked", "its mark cannot be read"


@dataclass(frozen=True)
class Mark:
    """Consent of `owner` to faults on one machine of one cluster, until a time."""

    owner: str
    until: datetime
    machine_id: str
    cluster_uid: str

    def to_text(self) -> str:
        """Return the value of the annotation."""
        until = self.until.isoformat(timespec="seconds")
        ids = {"machineID": self.machine_id, "clusterUID": self.cluster_uid}
        return json.dumps({"owner": self.owner, "until": until, **ids})

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


def read_mark(node: Json) -> Mark | str:
    """Return a Node's mark, or why it has none that can be read."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return _NOT_MARKED
    try:
        return Mark.from_text(str(text))
    except ValueError:
        return _UNREADABLE


def machine_id(node: Json) -> str:
    """Return the machine id that the kubelet reported, or an empty string."""
    return str((node.get("status") or {}).get("nodeInfo", {}).get("machineID", ""))


def is_control_plane(node: Json) -> bool:
    """Return whether a Node has a label or a taint of the control plane."""
    taints = (taint["key"] for taint in node.get("spec", {}).get("taints") or ())
    return not _CONTROL_PLANE_KEYS.isdisjoint([*(node["metadata"].get("labels") or ()), *taints])


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
    mark = read_mark(nodes[name]) if name in nodes else _NOT_MARKED
    if isinstance(mark, Mark) and mark.owner != owner and mark.until > now:
        yield f"{mark.owner} has marked it until {mark.until.isoformat(timespec='seconds')}"
    elif mark == _UNREADABLE:
        yield _UNREADABLE


def harm_refusals(inventory: Inventory, name: str, nodes: Mapping[str, Json], now: datetime) -> Iterator[str]:
    """Yield where an inventory and its cluster, which is connected, disagree on harming a node now."""
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
    if mark.cluster_uid != inventory.cluster.uid:
        yield "its mark is about another cluster"


def expiry_refusals(node: Json, now: datetime, lasts: timedelta) -> Iterator[str]:
    """Yield a reason if the valid mark of a node expires before a fault has ended that begins now."""
    mark = read_mark(node)
    if isinstance(mark, Mark) and now < mark.until < now + lasts:
        expires = mark.until.isoformat(timespec="seconds")
        yield f"its mark expires at {expires}, and the fault may last {lasts.total_seconds():.0f} s"


# The commands


_CLIENT, _RIGHTS = "nodeproof-mark", "get on namespaces, and list and patch on nodes"
_DEFAULT = timedelta(hours=8)
_ATTEMPTS = 5
"""Writes of one mark: each fails if the Node has changed since it was read, as by a kubelet's status."""
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def mark(arguments: argparse.Namespace) -> int:
    """Mark nodes, or list the marks, and return the exit code.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the server refuses, or a node must not be
            marked; then no node is.
    """
    if bool(arguments.node) == arguments.list:
        raise Problem("expected either nodes or --list", "mark", "see nodeproof mark --help")
    until = _until(arguments.until, datetime.now(UTC))
    with connected(arguments.cluster, _CLIENT, _RIGHTS) as cluster:
        if arguments.list:
            _print_marks(cluster)
            return 0
        owner = _owner(cluster)
        _check(cluster, arguments.node, cluster.nodes(), owner)
        for name in arguments.node:
            _write(cluster, name, owner, until)
            faults = ", ".join(cluster.inventory.nodes[name].faults)
            terminal.put(f"{name}: may be harmed until {until.isoformat(timespec='seconds')} by {faults}")
    return 0


def unmark(arguments: argparse.Namespace) -> int:
    """Remove the marks of nodes, whoever set them, and return the exit code.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the server refuses, or there is no such Node.
    """
    with connected(arguments.cluster, _CLIENT, _RIGHTS) as cluster:
        nodes = cluster.nodes()
        for name in [name for name in arguments.node if name in nodes]:
            is_marked = read_mark(nodes[name]) != _NOT_MARKED
            if is_marked:
                cluster.api.patch(resources.node(name), {"metadata": {"annotations": {ANNOTATION: None}}})
            terminal.put(f"{name}: {'the mark is removed' if is_marked else 'not marked'}")
        absent = [name for name in arguments.node if name not in nodes]
        if absent:
            step = "`nodeproof mark --list` lists the marked nodes"
            raise Problem(f"the cluster has no Node {', '.join(absent)}", "unmark", step)
    return 0


def _until(text: str, now: datetime) -> datetime:
    """Return the time at which a mark expires; a time without a zone is local. Raises Problem."""
    if not text:
        return now + _DEFAULT
    try:
        until = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        step = "write it as 2030-01-31T18:00 or with a zone"
        raise Problem(f"{text} is no time", "--until", step) from None
    if until <= now:
        raise Problem(f"{text} is in the past", "--until", "name a later time")
    return until


def _owner(cluster: ConnectedCluster) -> str:
    """Return the user's name at the API server, which administrators may share, and on this machine."""
    try:
        name = cluster.api.create(_REVIEWS, {"kind": "SelfSubjectReview"})["status"]["userInfo"]["username"]
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        name = cluster.access.user
    return f"{name} ({local_user()})"


def _check(cluster: ConnectedCluster, names: list[str], nodes: Mapping[str, Json], owner: str) -> None:
    """Check that all nodes may be marked. Raises Problem with one line for each reason."""
    now, step = datetime.now(UTC), "correct the inventory, or remove another's mark with `nodeproof unmark"
    problems = [
        Problem(
            f"{name} is not marked: {reason}",
            str(cluster.inventory.path),
            f"{step} {name}` if its owner agrees",
        )
        for name in names
        for reason in mark_refusals(cluster.inventory, name, nodes, owner, now)
    ]
    if problems:
        first, *others = problems
        raise Problem(first.what, first.where, first.next_step, "\n".join(problem.line for problem in others))


def _write(cluster: ConnectedCluster, name: str, owner: str, until: datetime) -> None:
    """Write a mark, unless the Node changes between a check and the write. Raises Problem, ApiError."""
    for _ in range(_ATTEMPTS):
        nodes = cluster.nodes()
        _check(cluster, [name], nodes, owner)
        metadata = nodes[name]["metadata"]
        content = Mark(owner, until, machine_id(nodes[name]), cluster.inventory.cluster.uid)
        identity = {key: metadata[key] for key in ("resourceVersion", "uid")}
        body = {"metadata": {**identity, "annotations": {ANNOTATION: content.to_text()}}}
        try:
            cluster.api.patch(resources.node(name), body)
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return
    raise Problem(f"{name} changes at each attempt to mark it", cluster.access.context, "try again")


def _print_marks(cluster: ConnectedCluster) -> None:
    inventory, nodes, now = cluster.inventory, cluster.nodes(), datetime.now(UTC)
    rows = [("node", "owner", "until", "state")]
    for name, node in nodes.items():
        mark = read_mark(node)
        if mark == _NOT_MARKED:
            continue
        owner = until = "?"
        if isinstance(mark, Mark):
            owner, until = mark.owner, mark.until.isoformat(timespec="seconds")
        reasons = "; ".join(harm_refusals(inventory, name, nodes, now))
        rows.append(
            (name, owner, until, reasons or f"may be harmed by {', '.join(inventory.nodes[name].faults)}")
        )
    for line in aligned(rows) if len(rows) > 1 else ["no node is marked"]:
        terminal.put(line)
