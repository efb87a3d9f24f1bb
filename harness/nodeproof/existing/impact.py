"""What a fault on a node of an existing cluster would hit, what refuses it: `nodeproof plan --cluster`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from nodeproof import terminal
from nodeproof.checks.invariants import FOR_EVER, unreachable_toleration_s
from nodeproof.cluster import resources
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import OWN_NAMESPACES, WATCHED
from nodeproof.existing import inspection, marks, remediators
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.inspection import Inspection
from nodeproof.existing.inventory import Inventory, not_available
from nodeproof.existing.remediators import Remediators
from nodeproof.existing.selectors import selects
from nodeproof.faults.machine import PowerOff
from nodeproof.model.cluster import condition_status, is_ready
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report.plain import counted, wrapped

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

    nodes: Mapping[str, Json]
    pods: Sequence[Json] = ()
    budgets: Sequence[Json] = ()
    claims: Mapping[str, Json] = field(default_factory=dict)
    volumes: Mapping[str, Json] = field(default_factory=dict)
    evictions: Mapping[str, str] = field(default_factory=dict)
    machines: Mapping[str, Inspection | str] | None = None
    power: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remediators: Remediators = field(default_factory=Remediators)


@dataclass(frozen=True)
class Impact:
    """What a fault would hit, and why it must not be injected, as text."""

    pods: Sequence[str]
    budgets: Sequence[str]
    volumes: Sequence[str]
    local_volumes: Sequence[str]
    remediators: Sequence[str]
    refusals: Sequence[str]


def forecast(
    inventory: Inventory, name: str, fault: str, state: State, now: datetime, lasts_s: float = 0.0
) -> Impact:
    """Return what a fault on a listed node, which may last so long (s), would hit, and what refuses it."""
    pods = _pods_hit(fault, name, state.pods)
    covered = [(budget, [pod for pod in pods if covers(budget, pod)]) for budget in state.budgets]
    budgets = [(budget, members) for budget, members in covered if members]
    volumes = [volume for pod in pods for volume in _volumes_of(pod, state)]
    return Impact(
        [f"{_full_name(pod)}{_delay(pod, fault)}" for pod in pods],
        [f"{_full_name(budget)} ({_allowance(budget, members)})" for budget, members in budgets],
        [volume for volume, is_local in volumes if not is_local],
        [volume for volume, is_local in volumes if is_local],
        state.remediators.shown(name),
        [
            *filter(None, [not_available([fault])]),
            *marks.harm_refusals(inventory, name, state.nodes, now),
            *_machine_refusals(name, fault, state),
            *_away(name, state.nodes),
            *(_quorum_refusals(name, state.nodes) if fault == PowerOff.name else ()),
            *_bare_refusals(pods),
            *_budget_refusals(pods, budgets, state.evictions),
            *state.remediators.refusals(name, lasts_s),
        ],
    )


def _full_name(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _pods_hit(fault: str, node: str, pods: Sequence[Json]) -> Sequence[Json]:
    """Return the pods of a node that a fault ends, or that are evicted if it lasts; not those that ended."""
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        and _lasts_s(pod, fault) < FOR_EVER
    ]


def _lasts_s(pod: Json, fault: str) -> float:
    """Return how long (s) a pod lasts on a node with the fault."""
    return 0.0 if fault in ENDS_PODS else unreachable_toleration_s(pod)


def _delay(pod: Json, fault: str) -> str:
    seconds = _lasts_s(pod, fault)
    return f" (after {seconds:g} s)" if seconds else ""


def _is_evictable(pod: Json) -> bool:
    """Return whether an eviction ends a pod that runs: not a static one, nor one that is being deleted."""
    metadata = pod["metadata"]
    return _MIRROR not in (metadata.get("annotations") or ()) and "deletionTimestamp" not in metadata


def _machine_refusals(name: str, fault: str, state: State) -> Iterator[str]:
    if state.machines is not None and name in state.nodes:
        yield from inspection.refusals(fault, state.nodes[name], state.machines[name])
    if fault == PowerOff.name:
        yield from state.power.get(name, ())


def _away(name: str, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield the nodes that are not in service: a fault would make them one more."""
    for other, node in nodes.items():
        reasons = {
            "being deleted": "deletionTimestamp" in node["metadata"],
            "not Ready": not is_ready(node),
            "cordoned": node.get("spec", {}).get("unschedulable"),
        }
        reason = next((reason for reason, holds in reasons.items() if holds), "")
        if reason:
            yield f"{'it' if other == name else other} is away already: {reason}"


def _quorum_refusals(name: str, nodes: Mapping[str, Json]) -> Iterator[str]:
    """Yield why the loss of a control-plane node would end the quorum of an etcd on all of them."""
    planes = {other: node for other, node in nodes.items() if marks.is_control_plane(node)}
    lost = [other for other, node in planes.items() if other == name or not is_ready(node)]
    if name in planes and 2 * len(lost) >= len(planes):
        yield f"{len(lost)} of {len(planes)} control-plane nodes would be lost: etcd would have no quorum"


def _bare_refusals(pods: Sequence[Json]) -> Iterator[str]:
    """Yield the pods that no controller replaces; the controller of a static pod is its node."""
    for pod in filter(_is_evictable, pods):
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
            yield f"{_full_name(pod)} is a bare pod: nothing replaces it"


_Covered = tuple[Json, Sequence[Json]]
"""A PodDisruptionBudget and the pods hit that it covers."""


def _budget_refusals(
    pods: Sequence[Json], budgets: Sequence[_Covered], evictions: Mapping[str, str]
) -> Iterator[str]:
    """Yield evictions that the API server refuses, and budgets that it applies to one pod at a time.

    A budget counts the pods that an eviction ends and that are Ready (countHealthyPods in
    pkg/controller/disruption).
    """
    for name in map(_full_name, pods):
        if name in evictions:
            yield f"the API server refuses to evict {name}: {evictions[name]}"
    for budget, members in budgets:
        healthy = [pod for pod in members if _is_evictable(pod) and condition_status(pod, "Ready") == "True"]
        if 0 < _allowed(budget) < len(healthy):
            yield f"the disruption budget {_full_name(budget)} {_allowance(budget, members)}"


def _allowed(budget: Json) -> int:
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def _allowance(budget: Json, members: Sequence[Json]) -> str:
    return f"allows {_allowed(budget)} at once, hit: {len(members)}"


def covers(budget: Json, pod: Json) -> bool:
    """Return whether a PodDisruptionBudget selects a pod; an empty selector selects all of its namespace."""
    selector = budget["spec"].get("selector")
    if selector is None or budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return selects(selector, pod["metadata"].get("labels") or {})


def _volumes_of(pod: Json, state: State) -> Iterator[tuple[str, bool]]:
    """Yield each volume of a pod, and whether it is local: it cannot follow the pod to another node."""
    for volume in pod["spec"].get("volumes") or ():
        claim = _claim_name(pod, volume)
        if claim:
            bound = state.claims.get(claim, {}).get("spec", {}).get("volumeName", "")
            yield claim, _is_local(state.volumes.get(bound))
            continue
        for source in volume.keys() - {"name"} - _COPIES:
            yield f"{_full_name(pod)} {volume['name']} ({source})", source in _LOCAL


def _claim_name(pod: Json, volume: Json) -> str:
    """Return namespace/name of a volume's PersistentVolumeClaim, or an empty string.

    Source of a generic ephemeral volume's: k8s.io/component-helpers/storage/ephemeral.VolumeClaimName.
    """
    metadata = pod["metadata"]
    if "persistentVolumeClaim" in volume:
        return f"{metadata['namespace']}/{volume['persistentVolumeClaim']['claimName']}"
    return f"{metadata['namespace']}/{metadata['name']}-{volume['name']}" if "ephemeral" in volume else ""


def _is_local(volume: Json) -> bool:
    """Return whether a PersistentVolume is of one node; None stands for one that does not exist."""
    spec = volume["spec"] if volume else {}
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    keys = {rule["key"] for term in terms for rule in term.get("matchExpressions") or ()}
    return not {"local", "hostPath"}.isdisjoint(spec) or _HOSTNAME in keys


# The command


_RIGHTS = (
    "get on namespaces, persistentvolumeclaims and persistentvolumes, list on nodes, pods, "
    "poddisruptionbudgets, machinehealthchecks, machines, nodehealthchecks, deployments and daemonsets, "
    "and create on pods/eviction for dry runs"
)
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_NOT_FOUND, _NO_ANSWER = 404, (0, 401)
_NO_RIGHT = "cannot create resource"
"""Part of RBAC's message, which distinguishes it from the refusal of an admission webhook."""
_LONGEST = 100_000
"""Characters of one line of the output, before it is wrapped."""


def plan(path: Path, *, with_ssh: bool = False) -> int:
    """Print what each fault that an inventory allows would hit, and what refuses it.

    `with_ssh` asks the machines, too.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the server refuses, or a fault is refused.
    """
    with connected(path, "nodeproof-plan", _RIGHTS) as cluster:
        inventory, state = cluster.inventory, read_state(cluster)
        if with_ssh:
            state = _with_machines(state, inventory)
    now, refused = datetime.now(UTC), list[bool]()
    for name, node in inventory.nodes.items():
        terminal.put(name)
        impacts = {fault: forecast(inventory, name, fault, state, now) for fault in node.faults}
        refused += [bool(effect.refusals) for effect in impacts.values()]
        while impacts:
            effect = next(iter(impacts.values()))
            faults = [fault for fault, other in impacts.items() if other == effect]
            terminal.put("\n".join(_lines(faults, effect)))
            impacts = {fault: other for fault, other in impacts.items() if fault not in faults}
    if any(refused):
        what = f"{sum(refused)} of {counted(len(refused), 'allowed fault')} refused"
        raise Problem(what, str(path), "remove the reasons above, or allow fewer faults")
    return 0


def _lines(faults: Sequence[str], effect: Impact) -> Iterator[str]:
    yield f"  {', '.join(faults)}: {'refused' if effect.refusals else 'can be injected'}"
    lists = {
        "pods": effect.pods,
        "disruption budgets": effect.budgets,
        "volumes": effect.volumes,
        "local volumes": effect.local_volumes,
        "remediators": effect.remediators,
    }
    texts = [f"refused: {reason}" for reason in effect.refusals]
    texts += [f"{title}: {', '.join(names) or 'none'}" for title, names in lists.items()]
    for text in texts:
        yield from wrapped(text, _LONGEST)


def read_state(cluster: ConnectedCluster) -> State:
    """Read what faults on the listed nodes would hit; an eviction is a dry run. Raises ApiError.

    Nodeproof's own pods are left out.
    """
    api, listed, nodes = cluster.api, cluster.inventory.nodes, cluster.nodes()
    queries = [{"fieldSelector": f"spec.nodeName={name}"} for name in listed if name in nodes]
    pods = [entry for query in queries for entry in api.get(WATCHED["pods"], query)["items"]]
    pods = [entry for entry in pods if entry["metadata"]["namespace"] not in OWN_NAMESPACES]
    hit = {
        _full_name(entry): entry
        for name, node in listed.items()
        for fault in node.faults
        for entry in _pods_hit(fault, name, pods)
    }
    used = [(entry, volume) for entry in hit.values() for volume in entry["spec"].get("volumes") or ()]
    names = filter(None, {_claim_name(*volume) for volume in used})
    claim_path = "/api/v1/namespaces/{}/persistentvolumeclaims/{}"
    claims = _objects(api, {name: claim_path.format(*name.split("/")) for name in names})
    bound = filter(None, (claim["spec"].get("volumeName") for claim in claims.values()))
    return State(
        nodes,
        pods,
        api.get(_BUDGETS)["items"],
        claims,
        _objects(api, {name: f"/api/v1/persistentvolumes/{name}" for name in bound}),
        dict(_refused_evictions(api, hit)),
        remediators=remediators.read(api, {name: nodes[name] for name in listed if name in nodes}),
    )


def _with_machines(state: State, inventory: Inventory) -> State:
    """Return a state with what the machines and their power drivers answer. Raises Problem."""
    switched = [name for name, node in inventory.nodes.items() if PowerOff.name in node.faults]
    with inspection.ssh_config(inventory) as ssh:
        power = {
            name: list(inspection.power_refusals(inventory, name, state.nodes, ssh)) for name in switched
        }
        return replace(state, machines=inspection.inspect(inventory, ssh), power=power)


def _objects(api: Api, paths: Mapping[str, str]) -> Mapping[str, Json]:
    """Return the objects that exist, by the keys of their paths. Raises ApiError."""
    objects = {}
    for key, path in paths.items():
        try:
            objects[key] = api.get(path)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
    return objects


def _refused_evictions(api: Api, pods: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Yield the pods that the API server refuses to evict, and why, by dry runs. Raises ApiError."""
    for name, entry in pods.items():
        if not _is_evictable(entry):
            continue
        metadata = {key: entry["metadata"][key] for key in ("namespace", "name")}
        # The body says it, too: a proxy that drops the query would make it an eviction.
        options = {"deleteOptions": {"dryRun": ["All"]}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, **options}
        try:
            api.dry_run(f"{resources.pod(**metadata)}/eviction", body)
        except ApiError as error:
            if error.status in _NO_ANSWER or _NO_RIGHT in str(error):
                raise
            if error.status != _NOT_FOUND:
                yield name, str(error)
