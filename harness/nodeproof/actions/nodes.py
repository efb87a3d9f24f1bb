"""Nodes created by hand: API objects without a kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.ask import ask
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import OWN_LABELS
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

Json = Any
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


def make_node(name: str, labels: Mapping[str, str] | None = None) -> Action[Observation]:
    """Create a Node without a kubelet; it is removed when the scenario ends."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}}
    return ask("POST", "/api/v1/nodes", body)


def labels_of(key: str, value: str) -> Mapping[str, str]:
    """Return the label that `label_node` sets, for a nodeSelector or a pattern."""
    return {f"{OWN_LABELS}{key}": value}


def label_node(name: str, key: str, value: str) -> Action[None]:
    """Set a label of the scenario's own on a node, or change it; it is removed when the scenario ends."""
    body = {"metadata": {"labels": labels_of(key, value)}}

    def do(doing: Doing) -> None:
        doing.lab.cluster.api.patch(node_path(name), body)

    return Action(f"label {name} with {key}={value}", do)


def say_condition(name: str, type_: str, status: str) -> Action[Observation]:
    """Set a condition of a node, as its kubelet or another reporter would; a kubelet sets its own again."""
    conditions = [{"type": type_, "status": status, "reason": "Said", "message": "by nodeproof"}]
    return ask("PATCH", f"{node_path(name)}/status", {"status": {"conditions": conditions}})


def keep_alive(name: str) -> Action[None]:
    """Report a Node without a kubelet as Ready, and renew its Lease every R until the recording ends.

    The action raises Problem if there is no recording.
    """

    def do(doing: Doing) -> None:
        recording, api = doing.recording, doing.lab.cluster.api
        if recording is None:
            raise Problem("nothing is being recorded", "keep_alive", "use `with lab.record():` around it")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        ask("POST", _LEASES, {**body, "spec": spec}).do(doing)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **_times()}
        api.patch(f"{node_path(name)}/status", {"status": {"conditions": [ready]}})

        def renew() -> None:
            api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})

        recording.repeat(doing.lab.configuration["R"], renew)

    return Action(f"keep {name} alive", do)


def _times() -> Mapping[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"lastHeartbeatTime": now, "lastTransitionTime": now}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
