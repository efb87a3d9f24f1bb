"""Where objects are in the API, and what of other people's objects a recording takes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.model.cluster import LEASE_NAMESPACE

Json = Any
NAMESPACE = "nodeproof"
"""Everything that the harness makes inside a cluster is in here, but for its sentinel Lease."""
WATCHED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "leases": f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases",
    "events": "/api/v1/events",
}
"""The recorded resources and the paths of their lists."""
TYPES = {
    "nodes": ("api/v1", "io.k8s.api.core.v1.Node"),
    "pods": ("api/v1", "io.k8s.api.core.v1.Pod"),
    "leases": ("apis/coordination.k8s.io/v1", "io.k8s.api.coordination.v1.Lease"),
    "events": ("api/v1", "io.k8s.api.core.v1.Event"),
}
"""The group and the type of their objects, as /openapi/v3 calls them."""
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


_PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "pods": {
        "spec": (
            *("nodeName", "tolerations", "priority", "priorityClassName", "schedulerName"),
            *("restartPolicy", "terminationGracePeriodSeconds", "hostNetwork"),
        ),
        "status": ("phase", "reason", "conditions", "startTime", "qosClass"),
    },
    "events": {"involvedObject": ("kind", "namespace", "name", "uid")},
}
_WHOLE = ("apiVersion", "kind", "reason", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime")
_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "labels", "ownerReferences"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"),
)


def recorded(resource: str, obj: Mapping[str, Json]) -> Mapping[str, Json]:
    """What of an object goes into a history: all of what is the harness's own or belongs to nodes.

    Of other pods and their events only what claims are about: somebody's environment, command lines,
    annotations (the last applied configuration repeats all of these) and messages are no business of a
    report.
    """
    if resource not in _PARTS or obj["metadata"].get("namespace") == NAMESPACE:
        return obj
    if obj.get("involvedObject", {}).get("kind") == "Node":
        return obj
    parts = {name: _only(obj.get(name) or {}, kept) for name, kept in _PARTS[resource].items()}
    return {**_only(obj, _WHOLE), "metadata": _only(obj["metadata"], _METADATA), **parts}


def _only(obj: Mapping[str, Json], names: tuple[str, ...]) -> Mapping[str, Json]:
    return {name: obj[name] for name in names if name in obj}
