"""Controllers that replace, restart or delete a node that is not healthy: they would act on a fault, too.

Sources: cluster-api.sigs.k8s.io, "MachineHealthCheck"; api/machine/v1beta1 of github.com/openshift/api;
api/v1alpha1 of github.com/medik8s/node-healthcheck-operator; karpenter.sh, "Disruption", "Node Auto Repair".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeproof.cluster.api import Api, ApiError
from nodeproof.existing.selectors import selects
from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s

_CHECKS = (
    ("cluster.x-k8s.io", "machinehealthchecks"),
    ("machine.openshift.io", "machinehealthchecks"),
    ("remediation.medik8s.io", "nodehealthchecks"),
)
"""Groups and resources of health checks: those of machines select Machines, those of nodes select Nodes."""
_PAUSED = "cluster.x-k8s.io/paused"
"""Annotation of a MachineHealthCheck that does not act."""
_MACHINE = "cluster.x-k8s.io/machine"
"""Annotation of the Node of a Machine, which may be in another cluster that manages this one."""
_NODE_POOL, _REPAIR_S = "karpenter.sh/nodepool", 300.0
"""Label of Karpenter's Nodes, and the shortest time (s) of its providers' RepairPolicies, which is IBM's."""
_PROGRAMS = ("cluster-autoscaler", "draino", "node-problem-detector", "self-node-remediation")
"""Parts of the names of programs that may act on an unhealthy node, or repair its kubelet."""
_NAMES = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NOT_FOUND = 404


@dataclass(frozen=True)
class Remediator:
    """What acts on a node that has been unhealthy for `after_s` (s)."""

    name: str
    after_s: float


@dataclass(frozen=True)
class Remediators:
    """What acts on each listed node, by its name, and why more of that is not known.

    `possible` are programs that may act on any node, after a time that the API does not show.
    """

    of_nodes: Mapping[str, Sequence[Remediator]] = field(default_factory=dict)
    unread: Sequence[str] = ()
    possible: Sequence[str] = ()

    def shown(self, node: str) -> list[str]:
        """Return what acts on a node, or may act, as text."""
        acting = [f"{entry.name} (after {entry.after_s:g} s)" for entry in self.of_nodes.get(node, ())]
        return [*acting, *(f"perhaps {name}" for name in self.possible)]

    def refusals(self, node: str, lasts_s: float) -> Iterator[str]:
        """Yield why a fault on a node that may last so long (s) would not be left alone."""
        for reason in self.unread:
            yield f"remediators cannot be read: {reason}"
        for entry in self.of_nodes.get(node, ()):
            if entry.after_s <= lasts_s:
                after = f"{entry.name} acts on it after {entry.after_s:g} s"
                yield f"{after}, and the fault may last {lasts_s:.0f} s"


def read(api: Api, nodes: Mapping[str, Json]) -> Remediators:
    """Read what acts on these Nodes; a group that the API server does not have has nothing."""
    of_nodes, unread = {name: list(_karpenter(node)) for name, node in nodes.items()}, []
    for group, resource in _CHECKS:
        try:
            checks = [check for check in _items(api, group, resource) if not _is_paused(check, resource)]
        except ApiError as error:
            unread.append(f"{resource}.{group}: {error}")
            continue
        for name, selectable in _selectable(api, group, resource, nodes).items() if checks else ():
            of_nodes[name] += [
                Remediator(f"{resource}.{group} {_full_name(check)}", after_s)
                for check in checks
                if selectable is None or any(_selects(check, obj) for obj in selectable)
                for after_s in _after_s(_spec(check))
            ]
    return Remediators(of_nodes, unread, [*_managing(nodes), *_programs(api)])


def _items(api: Api, group: str, resource: str) -> Sequence[Json]:
    """Return the objects of a resource, of the first version that has it. Raises ApiError."""
    for version in _answer(api, f"/apis/{group}").get("versions", ()):
        listed = _answer(api, f"/apis/{version['groupVersion']}/{resource}")
        if listed:
            return _objects(listed)
    return ()


def _objects(listed: Json) -> Sequence[Json]:
    """Return the objects of a list; an empty one of metadata alone has null instead."""
    return listed["items"] or []


def _answer(api: Api, path: str) -> Json:
    """Return the answer to a GET; empty if there is no such path. Raises ApiError."""
    try:
        return api.get(path)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return {}


def _selectable(
    api: Api, group: str, resource: str, nodes: Mapping[str, Json]
) -> Mapping[str, Sequence[Json] | None]:
    """Return by Node what a health check of it selects; None if that cannot be read, so that all may."""
    if resource == "nodehealthchecks":
        return {name: [node] for name, node in nodes.items()}
    try:
        machines = _items(api, group, "machines")
    except ApiError:
        return dict.fromkeys(nodes)
    owners = [((machine.get("status") or {}).get("nodeRef") or {}).get("name") for machine in machines]
    pairs = list(zip(owners, machines, strict=True))
    return {name: [machine for owner, machine in pairs if owner == name] for name in nodes}


def _selects(check: Json, obj: Json) -> bool:
    """Return whether a health check selects a Machine or Node; an empty selector selects all."""
    spec, metadata = _spec(check), obj["metadata"]
    if check["metadata"].get("namespace") != metadata.get("namespace"):
        return False
    if "clusterName" in spec and spec["clusterName"] != _spec(obj).get("clusterName"):
        return False
    return selects(spec.get("selector") or {}, metadata.get("labels") or {})


def _is_paused(check: Json, resource: str) -> bool:
    """Return whether a health check does not act, by what its own controller reads."""
    if resource == "nodehealthchecks":
        return bool(_spec(check).get("pauseRequests"))
    return _PAUSED in (check["metadata"].get("annotations") or ())


def _spec(obj: Json) -> Json:
    return obj.get("spec") or {}


def _after_s(spec: Json) -> Sequence[float]:
    """Return the shortest time-out (s) of conditions that a fault may cause; empty without one.

    Only Ready cannot become True by a fault. A time-out that cannot be read is 0.
    """
    checks = spec.get("checks") or {}
    of_node, of_machine = (checks.get(f"unhealthy{kind}Conditions") or () for kind in ("Node", "Machine"))
    conditions = [*(spec.get("unhealthyConditions") or ()), *of_node, *of_machine]
    healthy = ("Ready", "True")
    unhealthy = [entry for entry in conditions if (entry.get("type"), entry.get("status")) != healthy]
    return sorted(map(_timeout_s, unhealthy))[:1]


def _timeout_s(condition: Json) -> float:
    keys = ("timeout", "duration", "timeoutSeconds")
    try:
        return duration_s(next((condition[key] for key in keys if key in condition), ""))
    except ValueError:
        return 0.0


def _full_name(obj: Json) -> str:
    metadata = obj["metadata"]
    return "/".join(metadata[key] for key in ("namespace", "name") if key in metadata)


def _karpenter(node: Json) -> Iterator[Remediator]:
    """Yield Karpenter's repair of its nodes; the API does not show whether its feature gate is on."""
    pool = (node["metadata"].get("labels") or {}).get(_NODE_POOL)
    if pool is not None:
        yield Remediator(f"Karpenter's NodePool {pool}, with the feature gate NodeRepair,", _REPAIR_S)


def _managing(nodes: Mapping[str, Json]) -> Iterator[str]:
    if any(_MACHINE in (node["metadata"].get("annotations") or ()) for node in nodes.values()):
        yield "a machinehealthcheck of a cluster that manages this one"


def _programs(api: Api) -> Iterator[str]:
    """Yield programs that have a well-known name, and which names cannot be read."""
    for resource in ("deployments", "daemonsets"):
        try:
            objects = _objects(api.get(f"/apis/apps/v1/{resource}", accept=_NAMES))
        except ApiError as error:
            yield f"others: {resource}: {error}"
            continue
        for name in map(_full_name, objects):
            if any(program in name.rpartition("/")[2] for program in _PROGRAMS):
                yield name
