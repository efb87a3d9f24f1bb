"""Paths of objects in the API, and the parts of other users' objects that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.pattern import Json

NAMESPACE = "nodeproof"
"""The namespace of everything that the harness creates in a cluster, except for its sentinel Lease."""
POD_NAMESPACE = "nodeproof-pods"
"""The namespace of scenarios' pods on somebody's own cluster, which a run creates and removes."""
OWN_NAMESPACES = (NAMESPACE, POD_NAMESPACE)
AUDIT_MARK = "nodeproof"
"""A query parameter that identifies our requests in the audit log; the API server ignores it."""
WATCHED = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "leases": f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases",
    "events": "/api/v1/events",
}
"""The recorded resources and the paths of their lists."""
SENTINEL = "nodeproof-sentinel"


def node(name: str) -> str:
    """Return the path of a Node."""
    return f"/api/v1/nodes/{name}"


def pods(namespace: str) -> str:
    """Return the path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of a Pod."""
    return f"{pods(namespace)}/{name}"


@dataclass(frozen=True)
class Resource:
    """A resource that can be recorded.

    It has the path of its list, its group and type as in /openapi/v3, the collection that its sentinel is in,
    and the body of the sentinel, which no controller acts on. Without a body one of the cluster's own objects
    is the sentinel.
    """

    path: str
    group: str
    type: str
    home: str
    body: Json = None

    def sentinel(self, node_name: str) -> str:
        """Return the path of its sentinel; for nodes that of a node without a fault."""
        name = {WATCHED["nodes"]: node_name, _NAMESPACES: NAMESPACE}.get(self.home, SENTINEL)
        return f"{self.home}/{name}"


def _cluster_scoped(group: str, type_: str, plural: str, body: Json) -> Resource:
    """Return a resource that is not namespaced."""
    path = f"/{group}/{plural}"
    return Resource(path, group, type_, path, body)


def _namespaced(group: str, type_: str, plural: str, body: Json) -> Resource:
    return Resource(f"/{group}/{plural}", group, type_, f"/{group}/namespaces/{NAMESPACE}/{plural}", body)


_NAMESPACES = "/api/v1/namespaces"
_CORE, _APPS = "io.k8s.api.core.v1", "io.k8s.api.apps.v1"
_COORDINATION, _LEASE = "apis/coordination.k8s.io/v1", "io.k8s.api.coordination.v1.Lease"
_COMPONENT_LEASES = f"/{_COORDINATION}/namespaces/kube-system/leases"
_LABELS = {"nodeproof.dev/sentinel": "none"}
_NO_PODS = {
    "selector": {"matchLabels": _LABELS},
    "template": {
        "metadata": {"labels": _LABELS},
        "spec": {"nodeSelector": _LABELS, "containers": [{"name": "main", "image": "nodeproof.local/none"}]},
    },
}
"""A spec for which a controller creates no pods: it asks for none, or no node has such a label."""
RESOURCES: Mapping[str, Resource] = {
    "nodes": Resource(WATCHED["nodes"], "api/v1", f"{_CORE}.Node", WATCHED["nodes"]),
    "pods": _namespaced("api/v1", f"{_CORE}.Pod", "pods", None),
    "leases": Resource(WATCHED["leases"], _COORDINATION, _LEASE, WATCHED["leases"]),
    "component-leases": Resource(
        _COMPONENT_LEASES, _COORDINATION, _LEASE, _COMPONENT_LEASES, {"spec": {"leaseDurationSeconds": 1}}
    ),
    "events": _namespaced("api/v1", f"{_CORE}.Event", "events", None),
    "namespaces": Resource(_NAMESPACES, "api/v1", f"{_CORE}.Namespace", _NAMESPACES),
    "services": _namespaced(
        "api/v1", f"{_CORE}.Service", "services", {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    ),
    "configmaps": _namespaced("api/v1", f"{_CORE}.ConfigMap", "configmaps", {"data": {}}),
    "endpointslices": _namespaced(
        "apis/discovery.k8s.io/v1", "io.k8s.api.discovery.v1.EndpointSlice", "endpointslices",
        {"addressType": "IPv4", "endpoints": []},
    ),
    "daemonsets": _namespaced("apis/apps/v1", f"{_APPS}.DaemonSet", "daemonsets", {"spec": _NO_PODS}),
    "deployments": _namespaced(
        "apis/apps/v1", f"{_APPS}.Deployment", "deployments",
        {"spec": {**_NO_PODS, "replicas": 0, "paused": True}},
    ),
    "replicasets": _namespaced(
        "apis/apps/v1", f"{_APPS}.ReplicaSet", "replicasets", {"spec": {**_NO_PODS, "replicas": 0}}
    ),
    "statefulsets": _namespaced(
        "apis/apps/v1", f"{_APPS}.StatefulSet", "statefulsets",
        {"spec": {**_NO_PODS, "replicas": 0, "serviceName": "none"}},
    ),
    "csinodes": _cluster_scoped(
        "apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.CSINode", "csinodes", {"spec": {"drivers": []}}
    ),
    "volumeattachments": _cluster_scoped(
        "apis/storage.k8s.io/v1", "io.k8s.api.storage.v1.VolumeAttachment", "volumeattachments",
        {"spec": {"attacher": "none.nodeproof.dev", "nodeName": SENTINEL,
                  "source": {"persistentVolumeName": SENTINEL}}},
    ),
}  # fmt: skip
"""All resources that can be recorded: those of WATCHED always, others if a scenario asks for them."""


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
_WITHOUT_SECRETS = frozenset(
    {"nodes", "leases", "component-leases", "csinodes", "volumeattachments", "endpointslices"}
)
"""Resources that do not contain secrets."""
_WHOLE = ("apiVersion", "kind", "reason", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime")
_METADATA = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "labels", "ownerReferences"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"),
)


def recorded(resource: str, obj: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what is recorded of an object: all of it if it is the harness's own or belongs to nodes.

    Of other pods and their events, and of other controllers of pods, it is only what claims are about:
    environment, command lines, annotations (the last applied configuration repeats all of these) and messages
    of others do not belong in a report.
    """
    namespace = obj["metadata"]["name"] if resource == "namespaces" else obj["metadata"].get("namespace")
    if namespace in OWN_NAMESPACES or resource in _WITHOUT_SECRETS:
        return obj
    if obj.get("involvedObject", {}).get("kind") == "Node":
        return obj
    if resource not in _PARTS:
        spec = {name: value for name, value in (obj.get("spec") or {}).items() if name != "template"}
        selected = {**_only(obj, (*_WHOLE, "status")), "metadata": _only(obj["metadata"], _METADATA)}
        return {**selected, "spec": spec}
    parts = {name: _only(obj.get(name) or {}, fields) for name, fields in _PARTS[resource].items()}
    return {**_only(obj, _WHOLE), "metadata": _only(obj["metadata"], _METADATA), **parts}


def _only(obj: Mapping[str, Json], names: tuple[str, ...]) -> Mapping[str, Json]:
    return {name: obj[name] for name in names if name in obj}
