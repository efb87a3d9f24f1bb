"""Objects that the harness creates in a cluster: a namespace, sentinels, pods."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tenacity

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pods
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.model.cluster import (
    KUBERNETES_TAINTS,
    LEASE_NAMESPACE,
    NOT_READY,
    OUT_OF_SERVICE,
    UNREACHABLE,
    condition,
    condition_status,
    is_ready,
)
from nodeproof.model.problem import Problem

Json = Any
IMAGE = "nodeproof.local/pause:1"
"""An image in every guest; a fake container runtime accepts any name."""
OWN_LABELS = "scenario.nodeproof.dev/"
"""The prefix of the labels that a scenario sets on nodes."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
_NO_NODE, _CORDONED = "the Node does not exist", "cordoned"
_NO_SCHEDULER = "nodeproof-none"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""The media type that kubectl requests: the columns that it prints."""


@dataclass(frozen=True)
class Pod:
    """A pod of the harness; `node` is empty until one is chosen."""

    namespace: str
    name: str
    node: str


def prepare(api: Api) -> None:
    """Create the namespace, its service account and the sentinels. Raises ApiError."""
    core = "/api/v1/namespaces"
    meta = {"name": SENTINEL, "namespace": NAMESPACE}
    api.ensure(core, {"metadata": {"name": NAMESPACE}})
    api.ensure(f"{core}/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    sentinel_pod = {"metadata": meta, "spec": {**pod_spec({}), "schedulerName": _NO_SCHEDULER}}
    api.ensure(pods(NAMESPACE), sentinel_pod)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": SENTINEL, "namespace": LEASE_NAMESPACE},
        "spec": {"holderIdentity": "nodeproof"},
    }
    api.ensure(WATCHED["leases"], lease)
    about = {"kind": "Namespace", "name": NAMESPACE, "namespace": NAMESPACE}
    api.ensure(
        f"{core}/{NAMESPACE}/events", {"metadata": meta, "involvedObject": about, "reason": "Sentinel"}
    )


def mirror_pod(node_name: str) -> Pod:
    """Return a static pod of a node that is to be created, with the name of its mirror in the API."""
    return Pod(NAMESPACE, f"static-{uuid.uuid4().hex[:8]}-{node_name}", node_name)


def manifest(of: Pod, requests: Mapping[str, str]) -> str:
    """Return the manifest from which a kubelet runs the static pod `of`, which does nothing."""
    spec = pod_spec({})
    spec["containers"][0]["resources"] = {"requests": dict(requests)}
    meta = {"name": of.name.removesuffix(f"-{of.node}"), "namespace": of.namespace}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}) + "\n"


def run_pod(api: Api, *, node_name: str, tolerations: Sequence[Json] = (), limit_s: float) -> Pod:
    """Create a pod for one node and wait until it is Running there. Raises Problem, ApiError."""
    pod = create_pod(api, node_name, tolerations, by_scheduler=False)
    wait_running(api, pod, limit_s)
    return pod


def wait_running(api: Api, pod: Pod, limit_s: float) -> None:
    """Wait until a pod is Running. Raises Problem, ApiError."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(0.2),
        retry=tenacity.retry_if_result(lambda running: not running),
        retry_error_callback=lambda _state: False,
    )
    if not retry(is_running, api, pod):
        raise Problem(
            f"pod {pod.name} is not Running after {limit_s:g} s",
            f"node {pod.node}",
            "see the kubelet's log",
        )


def create_pod(
    api: Api,
    node_name: str,
    tolerations: Sequence[Json],
    by_scheduler: bool,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    fields: Mapping[str, Json] | None = None,
) -> Pod:
    """Create a pod that can only run on one node, with these resources. Raises ApiError.

    `fields` are further fields of its spec.
    """
    placed = {"nodeSelector": {HOSTNAME_LABEL: node_name}} if by_scheduler else {"nodeName": node_name}
    spec = {**pod_spec({**placed, **(fields or {})}), "tolerations": list(tolerations)}
    (container,) = spec["containers"]
    container["resources"] = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return start_pod(api, node_name, spec)


def start_pod(api: Api, node_name: str, spec: Json) -> Pod:
    """Create a pod with this spec and a unique name. Raises ApiError."""
    pod = Pod(NAMESPACE, f"probe-{uuid.uuid4().hex[:8]}", node_name)
    api.create(pods(NAMESPACE), {"metadata": {"name": pod.name, "namespace": NAMESPACE}, "spec": spec})
    return pod


def is_running(api: Api, pod: Pod) -> bool:
    """Return whether a pod is Running and Ready. Raises ApiError; Problem if it has failed."""
    document = api.get(pod_path(pod.namespace, pod.name))
    if document["status"].get("phase") == "Failed":
        message = " ".join(str(document["status"].get(key, "")) for key in ("reason", "message"))
        raise Problem(
            f"pod {pod.name} has failed: {message.strip()}", f"node {pod.node}", "see its kubelet's log"
        )
    return document["status"].get("phase") == "Running" and condition_status(document, "Ready") == "True"


def shown_status(api: Api, pod: Pod) -> str:
    """Return the STATUS column of `kubectl get pod`, or `gone` if there is no such pod. Raises ApiError."""
    try:
        table = api.get(pod_path(pod.namespace, pod.name), accept=TABLE)
    except ApiError as error:
        if error.status == 404:
            return "gone"
        raise
    column = [entry["name"] for entry in table["columnDefinitions"]].index("Status")
    return str(table["rows"][0]["cells"][column])


def default_tolerations_s(api: Api) -> Mapping[str, float | None]:
    """Return the toleration seconds that DefaultTolerationSeconds sets; None if it sets none.

    They are read by a server-side dry run, as the API server has no /configz. Raises ApiError.
    """
    pod = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    tolerations = {
        entry.get("key"): entry.get("tolerationSeconds") for entry in pod["spec"].get("tolerations", [])
    }
    return {"NotReady": tolerations.get(NOT_READY), "Unreachable": tolerations.get(UNREACHABLE)}


def not_ready(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Return which of these Nodes are missing, not Ready, tainted or cordoned, and why. Raises ApiError."""
    nodes = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    reasons = {name: _unready(nodes.get(name)) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def not_fit(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Return those of `not_ready`, and those whose Lease is older than their last status. Raises ApiError.

    A kubelet that was cut off reports its status up to seven seconds before it renews its Lease
    (`maxBackoff`, k8s.io/component-helpers/apimachinery/lease/controller.go).
    """
    renewed = {_name(entry): entry["spec"].get("renewTime") for entry in api.get(WATCHED["leases"])["items"]}
    nodes = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    reasons = {
        name: _unready(nodes.get(name)) or _unrenewed(nodes[name], str(renewed.get(name) or ""))
        for name in names
    }
    return {name: reason for name, reason in reasons.items() if reason}


def withdrawn(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Return which of these Nodes somebody took out of service, and how. Raises ApiError.

    Kubernetes never puts them back by itself.
    """
    nodes = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    reasons = {name: _withdrawn(nodes.get(name)) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def _withdrawn(entry: Json | None) -> str:
    """Return how somebody took a Node out of service, or an empty string."""
    if entry is None:
        return _NO_NODE
    if entry["spec"].get("unschedulable"):
        return _CORDONED
    taints = entry["spec"].get("taints") or ()
    return _tainted(
        [
            taint
            for taint in taints
            if taint["key"] == OUT_OF_SERVICE or not taint["key"].startswith(KUBERNETES_TAINTS)
        ]
    )


def _tainted(taints: Sequence[Json]) -> str:
    """Return a description of taints, or an empty string."""
    return "tainted " + " ".join(f"{taint['key']}:{taint['effect']}" for taint in taints) if taints else ""


def _unready(entry: Json | None) -> str:
    """Return why a Node is not fit to start with, or an empty string."""
    if entry is None:
        return _NO_NODE
    if not is_ready(entry):
        ready = condition(entry, "Ready") or {}
        return f"Ready is {ready.get('status', 'absent')}, {ready.get('message', '')}".rstrip(", ")
    tainted = _tainted(entry["spec"].get("taints") or ())
    return tainted or (_CORDONED if entry["spec"].get("unschedulable") else "")


def _unrenewed(entry: Json, renew_time: str) -> str:
    """Return a reason if no Lease renewal has a later second than the Node's status, by the node's clock."""
    last_status = str((condition(entry, "Ready") or {}).get("lastHeartbeatTime") or "")
    return "" if renew_time > last_status else f"status {last_status}, Lease {renew_time or 'absent'}"


def lost(api: Api, names: Sequence[str]) -> list[str]:
    """Return which of these Nodes have Ready Unknown, or the taint for it. Raises ApiError."""
    return [
        _name(entry)
        for entry in api.get(WATCHED["nodes"])["items"]
        if _name(entry) in names
        if (condition(entry, "Ready") or {}).get("status") == "Unknown"
        or any(taint["key"] == UNREACHABLE for taint in entry["spec"].get("taints") or ())
    ]


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def sweep_pods(api: Api, nodes: Collection[str] | None, is_others: Callable[[str], bool]) -> None:
    """Delete our pods on `nodes` (on any node if None), and pods that are bound to deleted nodes.

    A pod counts as on the node that it may only run on. The sentinel stays, and so do pods on nodes for which
    `is_others` is true: others may have deleted these Nodes. Raises ApiError.
    """
    existing = set(map(_name, api.get(WATCHED["nodes"])["items"]))
    for entry in api.get(pods(NAMESPACE))["items"]:
        spec = entry["spec"]
        place = spec.get("nodeName") or (spec.get("nodeSelector") or {}).get(HOSTNAME_LABEL)
        is_nowhere = place is not None and place not in existing and not is_others(place)
        is_ours = nodes is None or place in nodes or is_nowhere
        if entry["metadata"]["name"] != SENTINEL and is_ours:
            api.delete(pod_path(NAMESPACE, entry["metadata"]["name"]), grace_s=0)


def take_labels_off(api: Api, nodes: Collection[str] | None) -> None:
    """Remove scenarios' own labels from these nodes, or from all if None. Raises ApiError."""
    for entry in api.get(WATCHED["nodes"])["items"]:
        name, labels = _name(entry), entry["metadata"].get("labels") or {}
        if nodes is not None and name not in nodes:
            continue
        own = {key: None for key in labels if key.startswith(OWN_LABELS)}
        if own:
            api.patch(node(name), {"metadata": {"labels": own}})


def pod_spec(placed: Mapping[str, Json]) -> dict[str, Json]:
    """Return a pod's spec with these fields; without containers it does nothing and mounts its volumes."""
    names = [volume["name"] for volume in placed.get("volumes", ())]
    mounts = {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names]} if names else {}
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, **mounts}],
        **placed,
        "automountServiceAccountToken": False,
    }


def tolerates(key: str, seconds: int | None = None) -> Mapping[str, Json]:
    """Return a toleration of a NoExecute taint for some seconds, or for ever."""
    for_s = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **for_s}
