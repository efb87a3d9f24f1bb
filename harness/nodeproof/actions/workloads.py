"""Workloads of a scenario's own: what controllers make pods of, and a namespace for them."""

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
    """A namespace that is yet to be made: `make` is the action that does."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class PriorityClass:
    """A PriorityClass that is yet to be made: `make` is the action that does."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class Workload:
    """A workload that is yet to be made: `make` is the action that does."""

    name: str
    make: Action[Observation]
    namespace: str = NAMESPACE

    @property
    def pods(self) -> Mapping[str, Json]:
        """What its pods hold, for a moment's pattern."""
        return {"metadata": {"namespace": self.namespace, "labels": {LABEL: self.name}}}


def own_namespace() -> Namespace:
    """A namespace of the scenario's own, which goes with all that is in it when the scenario is over."""
    name = _name()
    return Namespace(name, ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))


def priority_class(value: int) -> PriorityClass:
    """A PriorityClass of the scenario's own, which goes when the scenario is over."""
    name = _name()
    body = {"metadata": {"name": name}, "value": value}
    return PriorityClass(name, ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body))


def workload(kind: Kind, *, replicas: int = 1, namespace: str = NAMESPACE, **pod: Json) -> Workload:
    """A workload under a name of its own, whose pods do nothing; `pod` are fields of their spec. A DaemonSet
    has no replicas. It is in the namespace that all scenarios have, or in one of the scenario's own; its pods
    are on the scenario's nodes.

    What it makes goes with it: when the scenario is over, or by the next run or `nodeproof heal`.
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
        placed = pod | {"nodeSelector": {**doing.lab.placement, **pod.get("nodeSelector", {})}}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(placed)}
        # Whoever tells may do so on any node.
        for node in doing.lab.fleet.node_names() if "containers" in pod else ():
            doing.keep_clock(node)
        return ask("POST", path, {**body, "spec": {**spec, "template": template}}).do(doing)

    return Workload(name, Action(f"POST {path}", make), namespace)


def preferring(node: str) -> dict[str, Json]:
    """Fields of pods that are to be on a node where that can be, for `workload`."""
    here = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": here}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def holding(claim: str) -> dict[str, Json]:
    """Fields of pods that hold a claim, and mount its volume, for `workload` and `pending_pod`."""
    return {"volumes": [{"name": "held", "persistentVolumeClaim": {"claimName": claim}}]}


def telling(witness: Witness) -> dict[str, Json]:
    """Fields of pods that write down what happens to them, for `workload`."""
    return fields(witness)


def pod_of(over: Workload, *, on: str) -> Action[Pod]:
    """The pod that a workload has on a node, under the name that its controller gave it."""

    def find(doing: Doing) -> Pod:
        for entry in doing.lab.cluster.api.get(pods(over.namespace))["items"]:
            labels = entry["metadata"].get("labels") or {}
            if labels.get(LABEL) == over.name and entry["spec"].get("nodeName") == on:
                return Pod(over.namespace, str(entry["metadata"]["name"]), on)
        raise Problem(f"{over.name} has no pod on {on}", "scenario", "wait until one runs there")

    return Action(f"find the pod of {over.name} on {on}", find)


def service(over: Workload, *, port: int = 80) -> Action[Observation]:
    """A headless Service over a workload's pods, by the workload's name: what a StatefulSet's pods are found
    under.
    """
    spec = {"clusterIP": "None", "selector": {LABEL: over.name}, "ports": [{"port": port}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": over.name}, "spec": spec}
    return ask("POST", f"/api/v1/namespaces/{over.namespace}/services", body)


def disruption_budget(over: Workload, *, min_available: str = "100%") -> Action[Observation]:
    """A PodDisruptionBudget over a workload's pods."""
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
