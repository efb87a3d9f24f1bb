"""What the claims of the catalogue expect of undisturbed Nodes and Leases, as data.

A claim about a problem is judged on nodes that have the problem all through the observation.
A node whose kubelet stopped reporting in between is left out of the claims about its kubelet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import pairwise

from nodeproof.checks.observations import shows
from nodeproof.model.cluster import UNREACHABLE, UNSCHEDULABLE, condition, condition_status
from nodeproof.model.judgment import Check, Observation
from nodeproof.model.pattern import PRESENT, Json, matches
from nodeproof.model.quantity import amount

Node = Mapping[str, Json]
States = Sequence[Node]
"""The states of one Node from the start to the end, at least one."""
READY_SHAPE, UNKNOWN_REASON = "conditions.ready-true-shape", "monitoring.unknown-reason"
UNKNOWN_PRESSURES = "conditions.pressure-unknown-when-unreachable"
TAINT_BY_CONDITION, CORDON_TAINT = "taints.noschedule-by-condition", "cordon.taint"
PERSISTENT_STATE_CLAIMS = (READY_SHAPE, UNKNOWN_REASON, UNKNOWN_PRESSURES, TAINT_BY_CONDITION, CORDON_TAINT)
"""Claims about reactions of the cluster, which may be missing for a change right before the end."""
CLUSTER = "cluster"
"""The subject of claims about all nodes together."""
NOT_EMPTY = {"$not": {"$in": [None, ""]}}
RESOURCES = ("cpu", "memory", "pods")
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_REPORTED = ("kernelVersion", "osImage", "operatingSystem", "architecture")
_NEVER_POSTED = "NodeStatusNeverUpdated"
_TAINTS: Mapping[str, Mapping[str, str]] = {
    "Ready": {"False": "node.kubernetes.io/not-ready", "Unknown": UNREACHABLE},
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
}
"""Taint of each status of a condition (nodeConditionToTaintKeyStatusMap in
pkg/controller/nodelifecycle/node_lifecycle_controller.go).
"""


@dataclass(frozen=True)
class Expectation:
    """A claim about a node or the cluster, the observation that decides it, and the expected pattern."""

    claim: str
    subject: str
    what: str
    value: Json
    pattern: Json

    @property
    def observation(self) -> Observation:
        """The observation, under an id of its own."""
        return Observation(f"{self.claim} {self.subject} {self.what}", self.what, self.subject, self.value)

    @property
    def check(self) -> Check:
        """The check that decides the claim."""
        return shows(self.observation, self.pattern)


def is_reporting(states: States) -> bool:
    """Return whether a node's kubelet reported, whether Ready or not, from the start to the end."""
    return all(condition_status(node, "Ready") in ("True", "False") for node in states)


def is_lost(states: States) -> bool:
    """Return whether a kubelet that once reported was silent from the start to the end."""
    return (
        _unchanged_status(states, "Ready") == "Unknown" and _ready(states[-1]).get("reason") != _NEVER_POSTED
    )


def of_node(
    states: States, lease: Json, machine_ids: Counter[str], kubelet: Json = None
) -> Iterator[Expectation]:
    """Yield the expectations of one node.

    Args:
        states: Its states from the start to the end.
        lease: Its Lease at the end, or None.
        machine_ids: How many Nodes report each machine id.
        kubelet: The configuration of its kubelet, or None.
    """
    after = states[-1]
    if is_reporting(states):
        yield from _of_reporting(after, lease, machine_ids)
        if kubelet is not None:
            yield _max_pods(after, kubelet)
    if _unchanged_status(states, "Ready") == "True":
        ready = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        yield _conditions(READY_SHAPE, after, [{"type": "Ready", **ready}])
    if is_lost(states):
        yield from _of_lost(after)
    for type_, by_status in _TAINTS.items():
        if key := by_status.get(_unchanged_status(states, type_)):
            yield from _taint(TAINT_BY_CONDITION, states, key)
    if all(node["spec"].get("unschedulable") for node in states):
        yield from _taint(CORDON_TAINT, states, UNSCHEDULABLE)


def _taint(claim: str, states: States, key: str) -> Iterator[Expectation]:
    """Yield that a Node has a NoSchedule taint, unless the taint was removed during the observation."""
    taint = {"key": key, "effect": "NoSchedule"}
    taints = [node["spec"].get("taints") or [] for node in states]
    if matches([taint], taints[-1]) or not any(matches([taint], seen) for seen in taints):
        name = str(states[-1]["metadata"]["name"])
        yield Expectation(claim, name, "spec.taints", taints[-1], [taint])


def _of_reporting(node: Node, lease: Json, machine_ids: Counter[str]) -> Iterator[Expectation]:
    """Yield what is expected of a node whose kubelet reports."""
    name, status = str(node["metadata"]["name"]), node["status"]
    own_lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
    held = lease and {"metadata": {"name": lease["metadata"]["name"]}, "spec": lease["spec"]}
    yield Expectation("heartbeat.lease-per-node", name, "Lease", held, own_lease)
    types = [{"type": type_, "status": {"$in": ["True", "False"]}} for type_ in ("Ready", *PRESSURES)]
    yield _conditions("conditions.types-present", node, types)
    yield Expectation("conditions.node-phase", name, "status.phase", status.get("phase"), {"$present": False})
    amounts = {kind: status.get(kind) for kind in ("capacity", "allocatable")}
    yield Expectation(
        "capacity.fields",
        name,
        "resources",
        amounts,
        {kind: dict.fromkeys(RESOURCES, PRESENT) for kind in amounts},
    )
    info = status.get("nodeInfo") or {}
    expected_info = {**dict.fromkeys(_REPORTED, NOT_EMPTY), "containerRuntimeVersion": {"$contains": "://"}}
    machine = {field: info.get(field) for field in expected_info}
    yield Expectation("info.kernel-os-runtime", name, "status.nodeInfo", machine, expected_info)
    what, version = "status.nodeInfo.kubeProxyVersion", info.get("kubeProxyVersion")
    yield Expectation("info.kube-proxy-version", name, what, version, {"$in": ["", None]})
    ids = {field: info.get(field) for field in ("machineID", "systemUUID", "bootID")}
    shared = {**ids, "nodes with this machineID": machine_ids[str(info.get("machineID"))]}
    own = {**dict.fromkeys(ids, NOT_EMPTY), "nodes with this machineID": 1}
    yield Expectation("info.machine-ids", name, "ids", shared, own)


def _max_pods(node: Node, kubelet: Mapping[str, Json]) -> Expectation:
    """Return the number of pods that a kubelet reports (MachineInfo in pkg/kubelet/nodestatus/setters.go)."""
    capacity = node["status"].get("capacity") or {}
    most, per_core = int(kubelet.get("maxPods") or 0), int(kubelet.get("podsPerCore") or 0)
    expected = min(most, per_core * int(amount(capacity.get("cpu", "0")))) if per_core else most
    name, what = str(node["metadata"]["name"]), "status.capacity.pods"
    return Expectation("capacity.max-pods", name, what, capacity.get("pods"), str(expected))


def _of_lost(node: Node) -> Iterator[Expectation]:
    """Yield what the node controller writes about a node whose kubelet is silent."""
    unknown = {"status": "Unknown", "reason": "NodeStatusUnknown"}
    message = {"message": "Kubelet stopped posting node status."}
    yield _conditions(UNKNOWN_REASON, node, [{"type": "Ready", **unknown, **message}])
    pressures = [{"type": type_, **unknown} for type_ in PRESSURES]
    yield _conditions(UNKNOWN_PRESSURES, node, pressures)


def _conditions(claim: str, node: Node, pattern: Json) -> Expectation:
    types = {part["type"] for part in pattern}
    conditions = [entry for entry in node["status"].get("conditions") or () if entry["type"] in types]
    return Expectation(claim, str(node["metadata"]["name"]), "status.conditions", conditions, pattern)


def _unchanged_status(states: States, type_: str) -> str:
    """Return the status of a condition that made no transition in between, else an empty string."""
    transitions = {
        tuple(str(entry.get(field, "")) for field in ("status", "lastTransitionTime"))
        for entry in (condition(node, type_) or {} for node in states)
    }
    return transitions.pop()[0] if len(transitions) == 1 else ""


def _ready(node: Node) -> Mapping[str, Json]:
    return condition(node, "Ready") or {}


def of_cluster(nodes: Sequence[Node]) -> Iterator[Expectation]:
    """Yield the expectations of all nodes together."""
    ranges = [ip_network(cidr) for node in nodes for cidr in node["spec"].get("podCIDRs") or ()]
    if len(ranges) > 1:
        # Of sorted ranges, one that overlaps any later one overlaps the next.
        ranges.sort(key=lambda range_: (range_.version, int(range_.network_address)))
        overlapping = sum(one.overlaps(other) for one, other in pairwise(ranges))
        value = {"ranges": len(ranges), "overlapping": overlapping}
        yield Expectation("cidr.unique", CLUSTER, "podCIDRs", value, {"overlapping": 0})


def count_machine_ids(nodes: Iterable[Node]) -> Counter[str]:
    """Count the Nodes that report each machine id."""
    return Counter(str(node["status"].get("nodeInfo", {}).get("machineID")) for node in nodes)
