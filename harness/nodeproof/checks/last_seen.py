"""One-line summaries of the last recorded state of an object."""

from __future__ import annotations

from nodeproof.model.cluster import condition_status
from nodeproof.model.history import History


def of(history: History, resource: str, namespace: str, name: str) -> str:
    """Summarize an object: details of nodes and pods, the resourceVersion of others."""
    if resource == "nodes":
        return of_node(history, name)
    if resource == "pods":
        return of_pod(history, namespace, name)
    versions = history.versions(resource, namespace, name)
    if not versions:
        return f"{resource} {name}: never seen"
    version = versions[-1].object["metadata"]["resourceVersion"]
    return f"{resource} {name}: {'removed' if versions[-1].deleted else f'resourceVersion {version}'}"


def of_node(history: History, name: str) -> str:
    """Summarize a Node: its Ready condition, taints and cordon."""
    versions = history.versions("nodes", "", name)
    if not versions:
        return f"node {name}: never seen"
    node = versions[-1].object
    taints = (
        ", ".join(f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()) or "none"
    )
    unschedulable = bool(node["spec"].get("unschedulable"))
    ready = condition_status(node, "Ready")
    return f"node {name}: Ready={ready}, taints {taints}, unschedulable {unschedulable}"


def of_pod(history: History, namespace: str, name: str) -> str:
    """Summarize a Pod: its phase and reason, node and deletion."""
    versions = history.versions("pods", namespace, name)
    if not versions:
        return f"pod {name}: never seen"
    pod, deleted = versions[-1].object, versions[-1].deleted
    state = "removed" if deleted else f"phase {pod['status'].get('phase')}"
    if pod["status"].get("reason"):
        state += f" ({pod['status']['reason']}: {pod['status'].get('message')})"
    node, deletion = pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp")
    return f"pod {name}: {state}, node {node}, deletion {deletion}"
