"""Where objects are in the API, and what of other people's objects a recording takes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeproof.model.cluster import LEASE_NAMESPACE

Json = Any
NAMESPACE = "nodeproof"
AUDIT_MARK = "nodeproof"
"""The query of requests that an audit line has to be told by; the API server reads no such parameter."""
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


@dataclass(frozen=True)
class Resource:
    """What can be recorded: the path of its list, group and type as /openapi/v3 calls them, the collection
    that its sentinel is in, and the sentinel's body, which nobody acts on. One of the cluster's own objects
    is the sentinel where there is no body.
    """

    path: str
    group: str
    type: str
    home: str
    body: Json = None

    def sentinel(self, node_name: str) -> str:
        """Path of its sentinel; for nodes an unfaulted one of the cluster's own."""
        name = {WATCHED["nodes"]: node_name, _NAMESPACES: NAMESPACE}.get(self.home, SENTINEL)
        return f"{self.home}/{name}"


def _everywhere(group: str, type_: str, plural: str, body: Json) -> Resource:
    """A resource whose objects are in no namespace."""
    path = f"/{group}/{plural}"
    return Resource(path, group, type_, path, body)


def _in_namespaces(group: str, type_: str, plural: str, body: Json) -> Resource:
    return Resource(f"/{group}/{plural}", group, type_, f"/{group}/namespaces/{NAMESPACE}/{plural}", body)


_NAMESPACES = "/api/v1/namespaces"
_CORE, _APPS = "io.k8s.api.core.v1", "io.k8s.api.apps.v1"
_LABELS = {"nodeproof.dev/sentinel": "none"}
_NOBODYS = {
    "selector": {"matchLabels": _LABELS},
    "template": {
        "metadata": {"labels": _LABELS},
        "spec": {"nodeSelector": _LABELS, "containers": [{"name": "main", "image": "nodeproof.local/none"}]},
    },
}
"""What a controller makes no pods of: none are asked for, or no node has such a label."""
RESOURCES: Mapping[str, Resource] = {
    "nodes": Resource(WATCHED["nodes"], "api/v1", f"{_CORE}.Node", WATCHED["nodes"]),
    "pods": _in_namespaces("api/v1", f"{_CORE}.Pod", "pods", None),
    "leases": Resource(
        WATCHED["leases"],
        "apis/coordination.k8s.io/v1",
        "io.k8s.api.coordination.v1.Lease",
        WATCHED["leases"],
    ),
    "events": _in_namespaces("api/v1", f"{_CORE}.Event", "events", None),
    "namespaces": Resource(_NAMESPACES, "api/v1", f"{_CORE}.Namespace", _NAMESPACES),
    "services": _in_namespaces(
        "api/v1", f"{_CORE}.Service", "services", {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    ),
    "endpointslices": _in_namespaces(
        "apis/discovery.k8s.io/v1", "io.k8s.api.discovery.v1.EndpointSlice", "endpointslices",
        {"addressType": "IPv4", "endpoints": []},
    ),
    "daemonsets": _in_namespaces("apis/apps/v1", f"{_APPS}.DaemonSet", "daemonsets", {"spec": _NOBODYS}),
    "deployments": _in_namespaces(
        "apis/apps/v1", f"{_APPS}.Deployment", "deployments",
        {"spec": {**_NOBODYS, "replicas": 0, "paused": True}},
    ),
    "replicasets": _in_namespaces(
        "apis/apps/v1", f"{_APPS}.ReplicaSet", "replicasets", {"spec": {**_NOBODYS, "replicas": 0}}
    ),
    "statefulsets": _in_namespaces(
        "apis/apps/v1", f"{_APPS}.StatefulSet", "statefulsets",
        {"spec": {**_NOBODYS, "replicas": 0, "serviceName": "none"}},
    ),
    "csinodes": _everywhere(
        "apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.CSINode", "csinodes", {"spec": {"drivers": []}}
    ),
    "volumeattachments": _everywhere(
        "apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.VolumeAttachment", "volumeattachments",
        {"spec": {"attacher": "none.nodeproof.dev", "nodeName": SENTINEL,
                  "source": {"persistentVolumeName": SENTINEL}}},
    ),
}  # fmt: skip
"""All that a recording can take in: those of WATCHED always, others where a scenario asks for them."""


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
_WITHOUT_SECRETS = frozenset({"nodes", "leases", "csinodes", "volumeattachments", "endpointslices"})
"""Nobody keeps secrets in these."""
_WHOLE = ("apiVersion", "kind", "reason", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime")
_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "labels", "ownerReferences"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"),
)


def recorded(resource: str, obj: Mapping[str, Json]) -> Mapping[str, Json]:
    """What of an object goes into a history: all of what is the harness's own or belongs to nodes.

    Of other pods and their events, and of other controllers of pods, only what claims are about: somebody's
    environment, command lines, annotations (the last applied configuration repeats all of these) and messages
    are no business of a report.
    """
    ours = obj["metadata"]["name"] if resource == "namespaces" else obj["metadata"].get("namespace")
    if ours == NAMESPACE or resource in _WITHOUT_SECRETS:
        return obj
    if obj.get("involvedObject", {}).get("kind") == "Node":
        return obj
    if resource not in _PARTS:
        spec = {name: value for name, value in (obj.get("spec") or {}).items() if name != "template"}
        kept = {**_only(obj, (*_WHOLE, "status")), "metadata": _only(obj["metadata"], _METADATA)}
        return {**kept, "spec": spec}
    parts = {name: _only(obj.get(name) or {}, kept) for name, kept in _PARTS[resource].items()}
    return {**_only(obj, _WHOLE), "metadata": _only(obj["metadata"], _METADATA), **parts}


def _only(obj: Mapping[str, Json], names: tuple[str, ...]) -> Mapping[str, Json]:
    return {name: obj[name] for name in names if name in obj}
