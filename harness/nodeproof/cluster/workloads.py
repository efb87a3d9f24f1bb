"""What the harness puts into a cluster: a namespace, sentinel objects, pods."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tenacity

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pod, pods
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
"""In every guest; a fake container runtime takes any name."""
OWN_LABELS = "scenario.nodeproof.dev/"
"""Begins the key of each label that a scenario gives a node."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
_NO_NODE, _CORDONED = "there is no such Node", "cordoned"
_NOBODYS_SCHEDULER = "nodeproof-none"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""What kubectl asks for: the columns that it prints."""


@dataclass(frozen=True)
class Pod:
    """A pod that the harness made; `node` is empty while none was chosen."""

    namespace: str
    name: str
    node: str


def prepare(api: Api) -> None:
    """Make the namespace, its service account and the sentinel objects. Raises ApiError."""
    core = "/api/v1/namespaces"
    meta = {"name": SENTINEL, "namespace": NAMESPACE}
    api.ensure(core, {"metadata": {"name": NAMESPACE}})
    api.ensure(f"{core}/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    sentinel_pod = {"metadata": meta, "spec": {**pod_spec({}), "schedulerName": _NOBODYS_SCHEDULER}}
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
    """A static pod of a node's that is yet to be, by the name that its mirror has at the API."""
    return Pod(NAMESPACE, f"static-{uuid.uuid4().hex[:8]}-{node_name}", node_name)


def manifest(of: Pod, requests: Mapping[str, str]) -> str:
    """What a kubelet is to find in a file to run a static pod that does nothing; of this it makes `of`."""
    spec = pod_spec({})
    spec["containers"][0]["resources"] = {"requests": dict(requests)}
    meta = {"name": of.name.removesuffix(f"-{of.node}"), "namespace": of.namespace}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}) + "\n"


def run_pod(api: Api, *, node_name: str, tolerations: Sequence[Json] = (), limit_s: float) -> Pod:
    """Create a pod for one node and wait until it is Running there. Raises Problem, ApiError."""
    made = create_pod(api, node_name, tolerations, by_scheduler=False)
    wait_running(api, made, limit_s)
    return made


def wait_running(api: Api, made: Pod, limit_s: float) -> None:
    """Wait until a pod is Running. Raises Problem, ApiError."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(0.2),
        retry=tenacity.retry_if_result(lambda running: not running),
        retry_error_callback=lambda _state: False,
    )
    if not retry(is_running, api, made):
        raise Problem(
            f"pod {made.name} is not Running after {limit_s:g} s",
            f"node {made.node}",
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
    """Create a pod that can only run on one node, asks for so much of it, and may have so much; `fields` are
    others of its spec. Raises ApiError.
    """
    placed = {"nodeSelector": {HOSTNAME_LABEL: node_name}} if by_scheduler else {"nodeName": node_name}
    spec = {**pod_spec({**placed, **(fields or {})}), "tolerations": list(tolerations)}
    (container,) = spec["containers"]
    container["resources"] = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return start_pod(api, node_name, spec)


def start_pod(api: Api, node_name: str, spec: Json) -> Pod:
    """Create a pod with this specification under a name of its own. Raises ApiError."""
    made = Pod(NAMESPACE, f"probe-{uuid.uuid4().hex[:8]}", node_name)
    api.create(pods(NAMESPACE), {"metadata": {"name": made.name, "namespace": NAMESPACE}, "spec": spec})
    return made


def is_running(api: Api, made: Pod) -> bool:
    """Whether a pod is Running and Ready. Raises ApiError; Problem on one that never will be."""
    found = api.get(pod(made.namespace, made.name))
    if found["status"].get("phase") == "Failed":
        why = " ".join(str(found["status"].get(key, "")) for key in ("reason", "message"))
        raise Problem(
            f"pod {made.name} has failed: {why.strip()}", f"node {made.node}", "see its kubelet's log"
        )
    return found["status"].get("phase") == "Running" and condition_status(found, "Ready") == "True"


def shown_status(api: Api, made: Pod) -> str:
    """The STATUS column that `kubectl get pod` prints; `gone` when there is no such pod. Raises ApiError."""
    try:
        table = api.get(pod(made.namespace, made.name), accept=TABLE)
    except ApiError as error:
        if error.status == 404:
            return "gone"
        raise
    column = [entry["name"] for entry in table["columnDefinitions"]].index("Status")
    return str(table["rows"][0]["cells"][column])


def default_tolerations_s(api: Api) -> Mapping[str, float | None]:
    """What DefaultTolerationSeconds gives a pod, None where it gives nothing.

    Read by a server-side dry run, as the API server has no /configz.
    """
    seen = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    given = {
        entry.get("key"): entry.get("tolerationSeconds") for entry in seen["spec"].get("tolerations", [])
    }
    return {"NotReady": given.get(NOT_READY), "Unreachable": given.get(UNREACHABLE)}


def not_ready(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Those of the named Nodes that are missing, not Ready, tainted or cordoned, and why. Raises ApiError."""
    seen = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    why = {name: _unready(seen.get(name)) for name in names}
    return {name: said for name, said in why.items() if said}


def not_fit(api: Api, names: Sequence[str]) -> dict[str, str]:
    """The same, and those that renewed no Lease since their last status. Raises ApiError.

    A kubelet that was cut off reports its status up to seven seconds before it renews its Lease
    (`maxBackoff`, k8s.io/component-helpers/apimachinery/lease/controller.go).
    """
    renewed = {_name(entry): entry["spec"].get("renewTime") for entry in api.get(WATCHED["leases"])["items"]}
    seen = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    why = {
        name: _unready(seen.get(name)) or _unrenewed(seen[name], str(renewed.get(name) or ""))
        for name in names
    }
    return {name: said for name, said in why.items() if said}


def withdrawn(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Those of the named Nodes that somebody took out of service, and how: Kubernetes does not put them back,
    however long one waits. Raises ApiError.
    """
    seen = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    why = {name: _withdrawn(seen.get(name)) for name in names}
    return {name: reason for name, reason in why.items() if reason}


def _withdrawn(entry: Json | None) -> str:
    """How somebody took a Node out of service, or an empty string."""
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
    """Name taints, if there are any."""
    return "tainted " + " ".join(f"{taint['key']}:{taint['effect']}" for taint in taints) if taints else ""


def _unready(entry: Json | None) -> str:
    """Why a Node is not one to start with, or an empty string."""
    if entry is None:
        return _NO_NODE
    if not is_ready(entry):
        ready = condition(entry, "Ready") or {}
        return f"Ready is {ready.get('status', 'absent')}, {ready.get('message', '')}".rstrip(", ")
    tainted = _tainted(entry["spec"].get("taints") or ())
    return tainted or (_CORDONED if entry["spec"].get("unschedulable") else "")


def _unrenewed(entry: Json, renew_time: str) -> str:
    """Whether no Lease was renewed in a later second than the Node's status; both by the node's clock."""
    last_status = str((condition(entry, "Ready") or {}).get("lastHeartbeatTime") or "")
    return "" if renew_time > last_status else f"status {last_status}, Lease {renew_time or 'absent'}"


def lost(api: Api, names: Sequence[str]) -> list[str]:
    """Those of the named Nodes whose Ready is Unknown, or that carry the taint for it. Raises ApiError."""
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
    """Remove every pod of ours that is, or may only be, on one of these nodes or on none that there is, or
    anywhere; but the sentinel, and what is on `is_others`, nodes whose Nodes others may have deleted. Raises
    ApiError.
    """
    there = set(map(_name, api.get(WATCHED["nodes"])["items"]))
    for entry in api.get(pods(NAMESPACE))["items"]:
        spec = entry["spec"]
        place = spec.get("nodeName") or (spec.get("nodeSelector") or {}).get(HOSTNAME_LABEL)
        is_nowhere = place is not None and place not in there and not is_others(place)
        is_ours = nodes is None or place in nodes or is_nowhere
        if entry["metadata"]["name"] != SENTINEL and is_ours:
            api.delete(pod(NAMESPACE, entry["metadata"]["name"]), grace_s=0)


def take_labels_off(api: Api, nodes: Collection[str] | None) -> None:
    """Take scenarios' own labels off these nodes, or off all. Raises ApiError."""
    for entry in api.get(WATCHED["nodes"])["items"]:
        name, labels = _name(entry), entry["metadata"].get("labels") or {}
        if nodes is not None and name not in nodes:
            continue
        own = {key: None for key in labels if key.startswith(OWN_LABELS)}
        if own:
            api.patch(node(name), {"metadata": {"labels": own}})


def pod_spec(placed: Mapping[str, Json]) -> dict[str, Json]:
    """The specification of a pod: where it is to run, and what it is; one that is told no containers does
    nothing, and mounts its volumes.
    """
    names = [each["name"] for each in placed.get("volumes", ())]
    mounts = {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names]} if names else {}
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, **mounts}],
        **placed,
        "automountServiceAccountToken": False,
    }


def tolerates(key: str, seconds: int | None = None) -> Mapping[str, Json]:
    """A toleration of a NoExecute taint for so many seconds, or for ever."""
    for_s = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **for_s}
