"""Objects that the harness creates in a cluster: a namespace, sentinels, pods, and witnesses.

Witnesses are pods that record what happens to them on their node's disk, which outlives them and a shutdown.
"""

from __future__ import annotations

import json
import math
import shlex
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nodeproof.checks import moments, witnessed
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
from nodeproof.model.history import parse_time
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import (
    BEAT,
    BEAT_S,
    EXITS,
    FAILED,
    HOOK_BEGAN,
    HOOK_ENDED,
    SIGTERM,
    STARTED,
    WROTE,
)
from nodeproof.model.problem import Problem
from nodeproof.waiting import wait_until

IMAGE = "nodeproof.local/pause:1"
"""An image in every guest; a fake container runtime accepts any name."""
OWN_LABELS = "scenario.nodeproof.dev/"
"""The prefix of the labels that a scenario sets on nodes."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
POD_TIMEOUT_S = 90.0
WITNESS_TIMEOUT_S = 240.0
"""Several real containers may start at once on an emulated machine with one CPU, on a busy host."""
_NO_NODE, _CORDONED = "the Node does not exist", "cordoned"
_NO_SCHEDULER = "nodeproof-none"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""The media type that kubectl requests: the columns that it prints."""


@dataclass(frozen=True)
class Pod:
    """A pod of the harness, with its moments; `node` is empty until one is chosen."""

    namespace: str
    name: str
    node: str

    @property
    def path(self) -> str:
        """The path of its object."""
        return pod_path(self.namespace, self.name)

    @property
    def created(self) -> Moment:
        """Its creation while the watch is running; a pod on a LIST is older than the recording."""
        return moments.pod_created(self.namespace, self.name)

    @property
    def unschedulable(self) -> Moment:
        """A failed attempt to schedule it."""
        return moments.pod_unschedulable(self.namespace, self.name)

    @property
    def bound(self) -> Moment:
        """The setting of its spec.nodeName."""
        return moments.pod_bound(self.namespace, self.name)

    @property
    def deletion(self) -> Moment:
        """The request to delete it (deletionTimestamp set), or its removal."""
        return moments.pod_deletion(self.namespace, self.name)

    @property
    def removal(self) -> Moment:
        """The removal of its object."""
        return moments.pod_removed(self.namespace, self.name)

    @property
    def replacement(self) -> Moment:
        """The creation of a pod of the same name after the removal."""
        return moments.first_after(moments.created("pods", self.name, self.namespace), after=self.removal)

    @property
    def sigterm(self) -> Moment:
        """Its first report of SIGTERM, as a witness."""
        return witnessed.sigterm(self.name)

    @property
    def last_sign(self) -> Moment:
        """The last report of it as a witness, in one boot."""
        return witnessed.last_sign(self.name)

    @property
    def running(self) -> Moment:
        """The change of its phase to Running."""
        return self.became({"status": {"phase": "Running"}})

    @property
    def failed(self) -> Moment:
        """The change of its phase to Failed."""
        return self.became({"status": {"phase": "Failed"}})

    @property
    def unready(self) -> Moment:
        """The change of its condition Ready to False."""
        return self.became({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})

    @property
    def ended_by_shutdown(self) -> Moment:
        """The report of its kubelet that it was ended for the shutdown of its node."""
        message = "Pod was terminated in response to imminent node shutdown."
        return moments.pod_failed(self.namespace, self.name, "Terminated", message)

    def event(self, reason: str, message: str = "") -> Moment:
        """Match an event about it with this reason, whose message starts with this text."""
        return moments.event_reported(reason, "Pod", self.name, message)

    def became(self, pattern: Json) -> Moment:
        """Match the change of its object to one with these fields."""
        return moments.became("pods", self.name, pattern, self.namespace)


@dataclass(frozen=True)
class PodSettings:
    """Where the pods of scenarios are, and the image that they run.

    Restricted pods run as on somebody's own cluster: they meet the Pod Security Standard `restricted`, and
    any image with a shell will do.
    """

    namespace: str = NAMESPACE
    image: str = IMAGE
    is_restricted: bool = False

    def apply_to(self, spec: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the spec of a pod with these settings."""
        if not self.is_restricted:
            return spec
        container = {
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": _script(_IDLE),
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        security = {"runAsNonRoot": True, "runAsUser": _NOBODY, "seccompProfile": {"type": "RuntimeDefault"}}
        containers = [{**own, **container} for own in spec["containers"]]
        return {**spec, "containers": containers, "securityContext": security}


LAB_PODS = PodSettings()
_IDLE = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
_NOBODY = 65534


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


def unique(name: str) -> str:
    """Return a name that no other object has: this one and random digits."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def mirror_pod(node_name: str) -> Pod:
    """Return a static pod of a node that is to be created, with the name of its mirror in the API."""
    return Pod(NAMESPACE, f"{unique('static')}-{node_name}", node_name)


def manifest(of: Pod, requests: Mapping[str, str]) -> str:
    """Return the manifest from which a kubelet runs the static pod `of`, which does nothing."""
    spec = pod_spec({})
    spec["containers"][0]["resources"] = {"requests": dict(requests)}
    meta = {"name": of.name.removesuffix(f"-{of.node}"), "namespace": of.namespace}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}) + "\n"


def run_pod(
    api: Api,
    node_name: str,
    tolerations: Sequence[Json] = (),
    timeout_s: float = POD_TIMEOUT_S,
    settings: PodSettings = LAB_PODS,
) -> Pod:
    """Create a pod for one node and wait until it is Running there. Raises Problem, ApiError."""
    spec = pod_spec({"nodeName": node_name, "tolerations": list(tolerations)})
    pod = start_pod(api, node_name, spec, settings)
    wait_running(api, pod, timeout_s)
    return pod


def wait_running(api: Api, pod: Pod, timeout_s: float) -> None:
    """Wait until a pod is Running. Raises Problem, ApiError."""
    if not wait_until(lambda: is_running(api, pod), timeout_s, 0.2):
        reason = f"pod {pod.name} is not Running after {timeout_s:g} s"
        raise Problem(reason, f"node {pod.node}", "see the kubelet's log")


def start_pod(api: Api, node_name: str, spec: Json, settings: PodSettings = LAB_PODS) -> Pod:
    """Create a pod for one node, with this spec and a unique name. Raises ApiError."""
    pod = Pod(settings.namespace, f"probe-{uuid.uuid4().hex[:8]}", node_name)
    metadata = {"name": pod.name, "namespace": pod.namespace}
    api.create(pods(pod.namespace), {"metadata": metadata, "spec": settings.apply_to(spec)})
    return pod


def is_running(api: Api, pod: Pod) -> bool:
    """Return whether a pod is Running and Ready. Raises ApiError; Problem if it has failed."""
    document = api.get(pod_path(pod.namespace, pod.name))
    if document["status"].get("phase") == "Failed":
        reason = " ".join(str(document["status"].get(key, "")) for key in ("reason", "message")).strip()
        raise Problem(f"pod {pod.name} has failed: {reason}", f"node {pod.node}", "see its kubelet's log")
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
    return _reasons(api, names, _unready)


def unfit_nodes(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Return those of `not_ready`, and those whose kubelet does not renew its Lease yet. Raises ApiError.

    A kubelet that was cut off renews its Lease up to seven seconds after the cut ends
    (`maxBackoff`, k8s.io/component-helpers/apimachinery/lease/controller.go), and may report its status
    before. A Node that stayed Ready meanwhile reports no status: there the Lease must not have expired, by
    the API server's clock, as those of the nodes may differ.
    """
    listed, now_s = api.get_dated(WATCHED["leases"])
    leases = {_name(entry): entry for entry in listed["items"]}

    def unfit(entry: Json | None) -> str:
        lease = leases.get(_name(entry) if entry else "", {"metadata": {}, "spec": {}})
        return _unready(entry) or _unrenewed(entry, lease["spec"]) or _expired(lease, now_s)

    return _reasons(api, names, unfit)


def out_of_service_nodes(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Return which of these Nodes an administrator took out of service, and how. Raises ApiError.

    Kubernetes never puts them back by itself.
    """
    return _reasons(api, names, _withdrawn)


def _reasons(api: Api, names: Sequence[str], why: Callable[[Json | None], str]) -> dict[str, str]:
    """Return which of these Nodes, None if missing, `why` has a reason for. Raises ApiError."""
    nodes = {_name(entry): entry for entry in api.get(WATCHED["nodes"])["items"]}
    return {name: reason for name in names if (reason := why(nodes.get(name)))}


def _withdrawn(entry: Json | None) -> str:
    """Return how an administrator took a Node out of service, or an empty string."""
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


def _unrenewed(entry: Json, lease: Json) -> str:
    """Return a reason if no Lease renewal has a later second than the Node's status, by the node's clock."""
    last_status = str((condition(entry, "Ready") or {}).get("lastHeartbeatTime") or "")
    renewed = str(lease.get("renewTime") or "")
    return "" if renewed > last_status else f"status {last_status}, Lease {renewed or 'absent'}"


def _expired(lease: Json, now_s: float) -> str:
    """Return a reason if a Lease has expired at a time (s), by the API server's clock alone."""
    renewals = (
        parse_time(entry["time"])
        for entry in lease["metadata"].get("managedFields") or ()
        if entry.get("time") and "f:renewTime" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    )
    age_s = now_s - max(renewals, default=now_s)
    duration_s = lease["spec"].get("leaseDurationSeconds") or math.inf
    return f"Lease renewed {age_s:.0f} s ago" if age_s > duration_s else ""


def kubelet_versions(api: Api, names: Sequence[str]) -> Mapping[str, str]:
    """Return the version that each Node's kubelet reports. Raises ApiError."""
    return {
        _name(entry): str(entry["status"]["nodeInfo"]["kubeletVersion"])
        for entry in api.get(WATCHED["nodes"])["items"]
        if _name(entry) in names
    }


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


def sweep_pods(api: Api, nodes: Collection[str] | None, is_in_other_zone: Callable[[str], bool]) -> None:
    """Delete our pods on `nodes` (on any node if None), and pods that are bound to deleted nodes.

    A pod counts as on the node that it may only run on. The sentinel stays, and so do pods on nodes for which
    `is_in_other_zone` is true: others may have deleted these Nodes. Raises ApiError.
    """
    existing = set(map(_name, api.get(WATCHED["nodes"])["items"]))
    for entry in api.get(pods(NAMESPACE))["items"]:
        spec = entry["spec"]
        place = spec.get("nodeName") or (spec.get("nodeSelector") or {}).get(HOSTNAME_LABEL)
        is_nowhere = place is not None and place not in existing and not is_in_other_zone(place)
        is_ours = nodes is None or place in nodes or is_nowhere
        if entry["metadata"]["name"] != SENTINEL and is_ours:
            api.delete(pod_path(NAMESPACE, entry["metadata"]["name"]), grace_s=0)


def remove_labels(api: Api, nodes: Collection[str] | None) -> None:
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


WITNESS_IMAGE = "nodeproof.local/busybox:1"
WITNESS_FOLDER = "/var/lib/nodeproof/witness"
"""The folder on a node for what its pods wrote: a file for each pod and boot."""
HELD, WRITTEN = "/held", "written"
"""Mount path of the volume of a witness's PVC, and the name of the file with its numbers."""
WRITE_PERIOD_S = 1

# Only builtins of the shell: under emulation a process for each beat would use up the node's CPU. The first
# process of a container only gets signals that it handles, so it is deaf if its trap continues.
_PRINT = (
    f"read -r boot </proc/sys/kernel/random/boot_id; "
    f'say() {{ read -r up _ </proc/uptime; echo "$up $1" >>{WITNESS_FOLDER}/$NAME.$boot; }}'
)
# Each number is synced before it is reported; a failed write is reported, too.
_WRITE = f"""
(n=$(wc -l <{{file}} 2>/dev/null || echo 0); while :; do
    n=$((n + 1))
    if echo "$n $NODE" | dd of={{file}} oflag=append conv=notrunc,fsync 2>/dev/null
    then say "{WROTE} $n"; else say "{FAILED} $n"; fi
    sleep {WRITE_PERIOD_S}
done) &
"""
_HOLDS_AFTER_S = 5
"""Delay until the pod was seen Running, before it may be killed for its memory (s)."""
_LIVE = f"mkfifo /tmp/never; exec 3<>/tmp/never; while :; do say {BEAT}; read -r -t {BEAT_S} _ <&3; done"


@dataclass(frozen=True)
class Witness:
    """A pod that records what happens to it.

    Attributes:
        grace_s: Its grace period (s).
        pre_stop_s: How long its preStop hook takes (s); 0 is no hook.
        ignores_sigterm: Whether it survives SIGTERM.
        priority_class: Its priority class.
        toleration_s: Its toleration of nodes that are not ready or unreachable (s).
        resources: Its resources.
        host_network: Whether it uses its node's network, with which a slow machine starts it sooner.
        memory_mib: How much memory a second process of it allocates a few seconds later and keeps (MiB).
        pvc: The PVC of a volume to which a second process of it writes numbers, one a second, each with
            its node and synced before the next.
        namespace: Its namespace.
        second: The resources of a second container, which does nothing; None is no second container.
    """

    grace_s: int = 1
    pre_stop_s: int = 0
    ignores_sigterm: bool = False
    priority_class: str = ""
    toleration_s: int | None = None
    resources: Mapping[str, Json] = field(default_factory=dict)
    host_network: bool = False
    memory_mib: int = 0
    pvc: str = ""
    namespace: str = NAMESPACE
    second: Mapping[str, Json] | None = None


def unresponsive(priority_class: str = "", grace_s: int = 300) -> Witness:
    """Return a witness that ignores SIGTERM, and that nothing but a shutdown ends for five minutes."""
    return Witness(
        grace_s, ignores_sigterm=True, priority_class=priority_class, toleration_s=300, host_network=True
    )


def file_of(pod: str, boot_id: str) -> str:
    """Return the path on a node of the file that a pod wrote in one boot."""
    return f"{WITNESS_FOLDER}/{pod}.{boot_id}"


def witness_fields(witness: Witness) -> dict[str, Json]:
    """Return fields of a pod's spec, as for `workload`: the pod records what happens to it, on any node."""
    spec: dict[str, Json] = {
        "terminationGracePeriodSeconds": witness.grace_s,
        "volumes": [{"name": "disk", "hostPath": {"path": WITNESS_FOLDER, "type": "DirectoryOrCreate"}}],
        "containers": [_witness_container(witness)],
    }
    if witness.second is not None:
        (idle,) = pod_spec({})["containers"]
        spec["containers"].append({**idle, "name": "second", "resources": dict(witness.second)})
    if witness.pvc:
        spec["volumes"].append({"name": "held", "persistentVolumeClaim": {"claimName": witness.pvc}})
    if witness.priority_class:
        spec["priorityClassName"] = witness.priority_class
    if witness.host_network:
        spec["hostNetwork"] = True
    if witness.toleration_s is not None:
        spec["tolerations"] = [tolerates(key, witness.toleration_s) for key in (NOT_READY, UNREACHABLE)]
    return spec


def _witness_container(witness: Witness) -> dict[str, Json]:
    on_sigterm = f"say {SIGTERM}" if witness.ignores_sigterm else f"say {SIGTERM}; say {EXITS}; exit 0"
    begins = f"{_PRINT}; trap {shlex.quote(on_sigterm)} TERM; say {STARTED}; "
    background = _hold(witness.memory_mib) + (_WRITE.format(file=f"{HELD}/{WRITTEN}") if witness.pvc else "")
    container: dict[str, Json] = {
        "name": "main",
        "image": WITNESS_IMAGE,
        "command": _script(f"{begins}{background}{_LIVE}"),
        "env": [_downward("NAME", "metadata.name"), _downward("NODE", "spec.nodeName")],
        "volumeMounts": [{"name": "disk", "mountPath": WITNESS_FOLDER}],
        "resources": dict(witness.resources),
    }
    if witness.pvc:
        container["volumeMounts"].append({"name": "held", "mountPath": HELD})
    if witness.pre_stop_s:
        hook = f"{_PRINT}; say '{HOOK_BEGAN}'; sleep {witness.pre_stop_s}; say '{HOOK_ENDED}'"
        container["lifecycle"] = {"preStop": {"exec": {"command": _script(hook)}}}
    return container


def _downward(name: str, field_path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field_path}}}


def _hold(mib: int) -> str:
    """Return a command that keeps memory allocated: it copies one block into a pipe without a reader.

    Zeroes would not do: Linux does not write them when it splits a huge page (6.12, mm/huge_memory.c).
    """
    if not mib:
        return ""
    copy = f"dd if=/dev/urandom of=/tmp/held bs={mib}M count=1"
    return f"mkfifo /tmp/held; exec 4<>/tmp/held; (sleep {_HOLDS_AFTER_S}; exec {copy}) & "


def _script(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]
