"""What a fault on a node of an existing cluster would hit, and what refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nodeproof.checks.invariants import FOR_EVER, unreachable_toleration_s
from nodeproof.existing import inspection, marks
from nodeproof.existing.inspection import Inspection
from nodeproof.existing.inventory import Inventory
from nodeproof.faults.machine import PowerOff
from nodeproof.model.cluster import condition_status, is_ready
from nodeproof.model.pattern import Json

ENDS_PODS = frozenset({"called-off-shutdown", "link-down", "power-off"})
"""Faults that end all pods of the node, or cut them off, at once.

Any other fault may keep the kubelet from its heartbeats: pods are evicted once their toleration is over.
"""
_MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the API's copy of a static pod (pkg/kubelet/types/pod_update.go)."""
_HOSTNAME = "kubernetes.io/hostname"
_COPIES = frozenset({"configMap", "csi", "downwardAPI", "image", "projected", "secret"})
"""Sources of a pod's volumes that store nothing of the pod's own."""
_LOCAL = frozenset({"emptyDir", "hostPath"})


@dataclass(frozen=True)
class State:
    """Objects of a cluster.

    `pods` are those of the listed nodes; `claims` and `volumes` are what they use: PersistentVolumeClaims by
    namespace/name, PersistentVolumes by name. `evictions` has the API server's message for each pod, by
    namespace/name, that it refuses to evict. `machines` has the facts of each listed node's machine, or why
    they cannot be read; None without SSH. `power` has, by node, why its power cannot be cut and restored.
    """

    cluster_uid: str
    nodes: Mapping[str, Json]
    pods: Sequence[Json] = ()
    budgets: Sequence[Json] = ()
    claims: Mapping[str, Json] = field(default_factory=dict)
    volumes: Mapping[str, Json] = field(default_factory=dict)
    evictions: Mapping[str, str] = field(default_factory=dict)
    machines: Mapping[str, Inspection | str] | None = None
    power: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Impact:
    """What a fault would hit, and why it must not be injected, as text."""

    pods: Sequence[str]
    budgets: Sequence[str]
    volumes: Sequence[str]
    local_volumes: Sequence[str]
    refusals: Sequence[str]


def forecast(inventory: Inventory, name: str, fault: str, state: State, now: datetime) -> Impact:
    """Return what a fault on a listed node would hit, and what refuses it."""
    pods = pods_hit(fault, name, state.pods)
    covered = [(budget, [pod for pod in pods if covers(budget, pod)]) for budget in state.budgets]
    budgets = [(budget, members) for budget, members in covered if members]
    volumes = [volume for pod in pods for volume in _volumes_of(pod, state)]
    return Impact(
        [f"{full_name(pod)}{_delay(pod, fault)}" for pod in pods],
        [f"{full_name(budget)} ({_allowance(budget, members)})" for budget, members in budgets],
        [volume.text for volume in volumes if not volume.is_local],
        [volume.text for volume in volumes if volume.is_local],
        [
            *marks.harm_refusals(inventory, name, state.nodes, state.cluster_uid, now),
            *_machine_refusals(name, fault, state),
            *_away(name, state.nodes),
            *(_quorum_refusals(name, state.nodes) if fault == PowerOff.name else ()),
            *_bare_refusals(pods),
            *_budget_refusals(pods, budgets, state.evictions),
        ],
    )


def _machine_refusals(name: str, fault: str, state: State) -> Iterator[str]:
    if state.machines is not None and name in state.nodes:
        yield from inspection.refusals(fault, state.nodes[name], state.machines[name])
    if fault == PowerOff.name:
        yield from state.power.get(name, ())


def full_name(obj: Json) -> str:
    """Return the namespace and name of an object."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def pods_hit(fault: str, node: str, pods: Sequence[Json]) -> Sequence[Json]:
    """Return the pods of a node that a fault ends, or that are evicted if it lasts; not those that ended."""
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and _lasts_s(pod, fault) < FOR_EVER
    ]


def is_evictable(pod: Json) -> bool:
    """Return whether an eviction ends a pod that runs: not a static one, nor one that is being deleted."""
    metadata = pod["metadata"]
    return _MIRROR not in (metadata.get("annotations") or ()) and "deletionTimestamp" not in metadata


def covers(budget: Json, pod: Json) -> bool:
    """Return whether a PodDisruptionBudget selects a pod; an empty selector selects all of its namespace."""
    selector = budget["spec"].get("selector")
    if selector is None or budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    labels = pod["metadata"].get("labels") or {}
    exact = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return all(labels.get(key) == text for key, text in exact.items()) and all(
        _is_met(expression, labels) for expression in expressions
    )


def _is_met(expression: Json, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet a requirement (apimachinery/pkg/labels/selector.go, Requirement.Matches)."""
    key, values = expression["key"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]


def _lasts_s(pod: Json, fault: str) -> float:
    """Return how long (s) a pod lasts on a node with the fault."""
    return 0.0 if fault in ENDS_PODS else unreachable_toleration_s(pod)


def _delay(pod: Json, fault: str) -> str:
    seconds = _lasts_s(pod, fault)
    return f" (after {seconds:g} s)" if seconds else ""


def _away(name: str, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield the nodes that are not in service: a fault would make them one more."""
    for other, node in nodes.items():
        state = _absence(node)
        if state:
            yield f"{'it' if other == name else other} is away already: {state}"


def _quorum_refusals(name: str, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield why the loss of a control-plane node would end the quorum of an etcd on all of them."""
    planes = {other: node for other, node in nodes.items() if marks.is_control_plane(node)}
    lost = [other for other, node in planes.items() if other == name or not is_ready(node)]
    if name in planes and 2 * len(lost) >= len(planes):
        yield f"{len(lost)} of {len(planes)} control-plane nodes would be lost: etcd would have no quorum"


def _absence(node: Json) -> str:
    """Return why a node is not in service, or an empty string."""
    if "deletionTimestamp" in node["metadata"]:
        return "being deleted"
    if not is_ready(node):
        return "not Ready"
    return "cordoned" if node.get("spec", {}).get("unschedulable") else ""


def _bare_refusals(pods: Sequence[Json]) -> Iterator[str]:
    """Yield the pods that no controller replaces; the controller of a static pod is its node."""
    for pod in filter(is_evictable, pods):
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
            yield f"{full_name(pod)} is a bare pod: nothing replaces it"


_Covered = tuple[Json, Sequence[Json]]
"""A PodDisruptionBudget and the pods hit that it covers."""


def _budget_refusals(
    pods: Sequence[Json], budgets: Sequence[_Covered], evictions: Mapping[str, str]
) -> Iterator[str]:
    """Yield evictions that the API server refuses, and budgets that it applies to one pod at a time."""
    for pod in pods:
        if full_name(pod) in evictions:
            yield f"the API server refuses to evict {full_name(pod)}: {evictions[full_name(pod)]}"
    for budget, members in budgets:
        if 0 < _allowed(budget) < len(_healthy(members)):
            yield f"the disruption budget {full_name(budget)} {_allowance(budget, members)}"


def _allowed(budget: Json) -> int:
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def _healthy(pods: Sequence[Json]) -> Sequence[Json]:
    """Return the pods that count as available to a budget (pkg/controller/disruption, countHealthyPods)."""
    return [pod for pod in pods if is_evictable(pod) and condition_status(pod, "Ready") == "True"]


def _allowance(budget: Json, members: Sequence[Json]) -> str:
    return f"allows {_allowed(budget)} at once, hit: {len(members)}"


@dataclass(frozen=True)
class _Volume:
    """A volume of a pod; a local one cannot follow the pod to another node."""

    text: str
    is_local: bool


def claim_names(pod: Json) -> Iterator[str]:
    """Yield namespace/name of the PersistentVolumeClaims of a pod."""
    for volume in pod["spec"].get("volumes") or ():
        name = _claim_name(pod, volume)
        if name:
            yield name


def _claim_name(pod: Json, volume: Json) -> str:
    """Return namespace/name of a volume's PersistentVolumeClaim, or an empty string.

    Source of a generic ephemeral volume's: k8s.io/component-helpers/storage/ephemeral.VolumeClaimName.
    """
    metadata = pod["metadata"]
    if "persistentVolumeClaim" in volume:
        return f"{metadata['namespace']}/{volume['persistentVolumeClaim']['claimName']}"
    return f"{metadata['namespace']}/{metadata['name']}-{volume['name']}" if "ephemeral" in volume else ""


def _volumes_of(pod: Json, state: State) -> Iterator[_Volume]:
    for volume in pod["spec"].get("volumes") or ():
        claim = _claim_name(pod, volume)
        if claim:
            bound = state.claims.get(claim, {}).get("spec", {}).get("volumeName", "")
            yield _Volume(claim, _is_local(state.volumes.get(bound)))
            continue
        for source in volume.keys() - {"name"} - _COPIES:
            yield _Volume(f"{full_name(pod)} {volume['name']} ({source})", source in _LOCAL)


def _is_local(volume: Json) -> bool:
    """Return whether a PersistentVolume is of one node; None stands for one that does not exist."""
    spec = volume["spec"] if volume else {}
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    keys = {rule["key"] for term in terms for rule in term.get("matchExpressions") or ()}
    return not {"local", "hostPath"}.isdisjoint(spec) or _HOSTNAME in keys
