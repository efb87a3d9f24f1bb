"""Where objects are in the API."""

from __future__ import annotations

from harness.model.cluster import LEASE_NAMESPACE

NAMESPACE = "nodeproof"
"""Everything that the harness makes inside a cluster is in here, but for its sentinel Lease."""
WATCHED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "leases": f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases",
    "events": "/api/v1/events",
}
"""The recorded resources and the paths of their lists."""
SENTINEL = "nodeproof-sentinel"


def node(name: str) -> str:
    """Path of a Node."""
    return f"/api/v1/nodes/{name}"


def pods(namespace: str) -> str:
    """Path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """Path of a Pod."""
    return f"{pods(namespace)}/{name}"


def sentinel(resource: str, node_name: str) -> str:
    """Path of the sentinel object of a watched resource; for nodes an unfaulted one of the cluster's own."""
    paths = {
        "nodes": node(node_name),
        "pods": pod(NAMESPACE, SENTINEL),
        "leases": f"{WATCHED['leases']}/{SENTINEL}",
        "events": f"/api/v1/namespaces/{NAMESPACE}/events/{SENTINEL}",
    }
    return paths[resource]
