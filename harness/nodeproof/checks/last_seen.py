"""One line on what was seen last of an object."""

from __future__ import annotations

from nodeproof.model.cluster import condition_status
from nodeproof.model.history import History


def of(history: History, resource: str, namespace: str, name: str) -> str:
    """Of any object; what decides most is told of nodes and pods, of others whether they are there."""
    if resource == "nodes":
        return of_node(history, name)
    if resource == "pods":
        return of_pod(history, namespace, name)
    seen = history.versions(resource, namespace, name)
    if not seen:
        return f"{resource} {name}: never seen"
    version = seen[-1].object["metadata"]["resourceVersion"]
    return f"{resource} {name}: {'removed' if seen[-1].deleted else f'resourceVersion {version}'}"


def of_node(history: History, name: str) -> str:
    """A Node's Ready condition, taints and cordon."""
    seen = history.versions("nodes", "", name)
    if not seen:
        return f"node {name}: never seen"
    node = seen[-1].object
    taints = (
        ", ".join(f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()) or "none"
    )
    unschedulable = bool(node["spec"].get("unschedulable"))
    ready = condition_status(node, "Ready")
    return f"node {name}: Ready={ready}, taints {taints}, unschedulable {unschedulable}"


def of_pod(history: History, namespace: str, name: str) -> str:
    """A Pod's phase with its reason, node and deletion."""
    seen = history.versions("pods", namespace, name)
    if not seen:
        return f"pod {name}: never seen"
    pod, deleted = seen[-1].object, seen[-1].deleted
    state = "removed" if deleted else f"phase {pod['status'].get('phase')}"
    if pod["status"].get("reason"):
        state += f" ({pod['status']['reason']}: {pod['status'].get('message')})"
    node, deletion = pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp")
    return f"pod {name}: {state}, node {node}, deletion {deletion}"
