"""The commands `nodeproof mark` and `nodeproof unmark`: from their options to annotations and output."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from nodeproof import terminal
from nodeproof.cluster import resources
from nodeproof.cluster.api import ApiError
from nodeproof.existing import marks
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.marks import ANNOTATION, NOT_MARKED, Mark
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report.plain import aligned

_CLIENT = "nodeproof-mark"
_RIGHTS = "get on namespaces, and list and patch on nodes"
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
        owner, nodes = _owner(cluster), cluster.nodes()
        _check(cluster, arguments.node, nodes, owner)
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
        for name in arguments.node:
            if name in nodes and marks.annotation(nodes[name]) is not None:
                cluster.api.patch(resources.node(name), {"metadata": {"annotations": {ANNOTATION: None}}})
                terminal.put(f"{name}: the mark is removed")
            elif name in nodes:
                terminal.put(f"{name}: not marked")
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
        raise Problem(
            f"{text} is no time", "--until", "write it as 2030-01-31T18:00 or with a zone"
        ) from None
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
    try:
        local = getpass.getuser()
    except (KeyError, OSError):
        local = str(os.getuid())
    return f"{name} ({local}@{socket.gethostname()})"


def _check(cluster: ConnectedCluster, names: list[str], nodes: Mapping[str, Json], owner: str) -> None:
    """Check that all nodes may be marked. Raises Problem with one line for each reason."""
    now = datetime.now(UTC)
    problems = [
        Problem(f"{name} is not marked: {reason}", str(cluster.inventory.path), _next_step(name))
        for name in names
        for reason in marks.mark_refusals(cluster.inventory, name, nodes, owner, now)
    ]
    if problems:
        first, *others = problems
        raise Problem(first.what, first.where, first.next_step, "\n".join(problem.line for problem in others))


def _next_step(name: str) -> str:
    return (
        f"correct the inventory, or remove another's mark with `nodeproof unmark {name}` if its owner agrees"
    )


def _write(cluster: ConnectedCluster, name: str, owner: str, until: datetime) -> None:
    """Write a mark, unless the Node changes between a check and the write. Raises Problem, ApiError."""
    for _ in range(_ATTEMPTS):
        nodes = cluster.nodes()
        _check(cluster, [name], nodes, owner)
        metadata = nodes[name]["metadata"]
        content = Mark(owner, until, marks.machine_id(nodes[name]), cluster.inventory.cluster.uid)
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
    nodes, now, uid = cluster.nodes(), datetime.now(UTC), cluster.inventory.cluster.uid
    rows = [("node", "owner", "until", "state")]
    for name, node in nodes.items():
        mark = marks.read_mark(node)
        if mark == NOT_MARKED:
            continue
        owner = until = "?"
        if isinstance(mark, Mark):
            owner, until = mark.owner, mark.until.isoformat(timespec="seconds")
        reasons = list(marks.harm_refusals(cluster.inventory, name, nodes, uid, now))
        allowed = f"may be harmed by {', '.join(cluster.inventory.nodes[name].faults)}" if not reasons else ""
        rows.append((name, owner, until, allowed or "; ".join(reasons)))
    for line in aligned(rows) if len(rows) > 1 else ["no node is marked"]:
        terminal.put(line)
