"""Workloads of a scenario: controllers that create pods, and a namespace for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.ask import ask
from nodeproof.cluster.resources import NAMESPACE, pods
from nodeproof.cluster.witness import Witness, fields
from nodeproof.cluster.workloads import HOSTNAME_LABEL, Pod, pod_spec
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

Json = Any
LABEL = "nodeproof.dev/workload"
Kind = Literal["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]


@dataclass(frozen=True)
class Namespace:
    """A namespace that the action `make` creates."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class PriorityClass:
    """A PriorityClass that the action `make` creates."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class Workload:
    """A workload that the action `make` creates."""

    name: str
    make: Action[Observation]
    namespace: str = NAMESPACE

    @property
    def pods(self) -> Mapping[str, Json]:
        """A pattern that its pods match."""
        return {"metadata": {"namespace": self.namespace, "labels": {LABEL: self.name}}}


def own_namespace() -> Namespace:
    """Return a new namespace of the scenario; it is removed with all its objects when the scenario ends."""
    name = _name()
    return Namespace(name, ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))


def priority_class(value: int) -> PriorityClass:
    """Return a new PriorityClass of the scenario; it is removed when the scenario ends."""
    name = _name()
    body = {"metadata": {"name": name}, "value": value}
    return PriorityClass(name, ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body))


def workload(kind: Kind, *, replicas: int = 1, namespace: str = NAMESPACE, **pod: Json) -> Workload:
    """Return a new workload, whose pods do nothing and run on the scenario's nodes.

    It and all that it creates is removed when the scenario ends, otherwise by the next run or `nodeproof
    heal`.

    Args:
        kind: The kind of the workload.
        replicas: The number of pods; a DaemonSet ignores it.
        namespace: The common namespace of all scenarios by default, or one of the scenario's own.
        **pod: Fields of the pods' spec.
    """
    name = _name()
    labels = {LABEL: name}
    spec: dict[str, Json] = {
        "selector": {"matchLabels": labels},
    }
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"

    def make(doing: Doing) -> Observation:
        pod_fields = pod | {"nodeSelector": {**doing.lab.placement, **pod.get("nodeSelector", {})}}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(pod_fields)}
        # A pod that records may run on any node.
        for node in doing.lab.fleet.node_names() if "containers" in pod else ():
            doing.keep_clock(node)
        return ask("POST", path, {**body, "spec": {**spec, "template": template}}).do(doing)

    return Workload(name, Action(f"POST {path}", make), namespace)


def preferring(node: str) -> dict[str, Json]:
    """Return fields for `workload`: its pods prefer this node."""
    here = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": here}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def holding(claim: str) -> dict[str, Json]:
    """Return fields for `workload` and `pending_pod`: the pods use a claim and mount its volume."""
    return {"volumes": [{"name": "held", "persistentVolumeClaim": {"claimName": claim}}]}


def telling(witness: Witness) -> dict[str, Json]:
    """Return fields for `workload`: its pods record what happens to them."""
    return fields(witness)


def pod_of(over: Workload, *, on: str) -> Action[Pod]:
    """Find the pod that a workload has on a node, whatever name its controller gave it."""

    def find(doing: Doing) -> Pod:
        for entry in doing.lab.cluster.api.get(pods(over.namespace))["items"]:
            labels = entry["metadata"].get("labels") or {}
            if labels.get(LABEL) == over.name and entry["spec"].get("nodeName") == on:
                return Pod(over.namespace, str(entry["metadata"]["name"]), on)
        raise Problem(f"{over.name} has no pod on {on}", "scenario", "wait until one runs there")

    return Action(f"find the pod of {over.name} on {on}", find)


def service(over: Workload, *, port: int = 80) -> Action[Observation]:
    """Create a headless Service over a workload's pods, with the workload's name.

    The pods of a StatefulSet are resolved through it.
    """
    spec = {"clusterIP": "None", "selector": {LABEL: over.name}, "ports": [{"port": port}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": over.name}, "spec": spec}
    return ask("POST", f"/api/v1/namespaces/{over.namespace}/services", body)


def disruption_budget(over: Workload, *, min_available: str = "100%") -> Action[Observation]:
    """Create a PodDisruptionBudget over a workload's pods."""
    selector = {"matchLabels": {LABEL: over.name}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": over.name},
        "spec": {"minAvailable": min_available, "selector": selector},
    }
    return ask("POST", f"/apis/policy/v1/namespaces/{over.namespace}/poddisruptionbudgets", body)


def _name() -> str:
    return f"probe-{uuid.uuid4().hex[:8]}"
