"""Workloads of a scenario's own: what controllers make pods of."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nodeproof.actions.action import Action
from nodeproof.actions.ask import ask
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.cluster.workloads import pod_spec
from nodeproof.model.observation import Observation

Json = Any
LABEL = "nodeproof.dev/workload"
Kind = Literal["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]


@dataclass(frozen=True)
class Workload:
    """A workload that is yet to be made: `make` is the action that does."""

    name: str
    make: Action[Observation]

    @property
    def pods(self) -> Mapping[str, Json]:
        """What its pods hold, for a moment's pattern."""
        return {"metadata": {"namespace": NAMESPACE, "labels": {LABEL: self.name}}}


def workload(kind: Kind, *, replicas: int = 1, **pod: Json) -> Workload:
    """A workload under a name of its own, whose pods do nothing; `pod` are fields of their spec. A DaemonSet
    has no replicas.

    What it makes goes with it: when the scenario is over, or by the next run or `nodeproof heal`.
    """
    name = f"probe-{uuid.uuid4().hex[:8]}"
    labels = {LABEL: name}
    spec: dict[str, Json] = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec(pod)},
    }
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return Workload(name, ask("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind.lower()}s", body))


def disruption_budget(over: Workload, *, min_available: str = "100%") -> Action[Observation]:
    """A PodDisruptionBudget over a workload's pods."""
    selector = {"matchLabels": {LABEL: over.name}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": over.name},
        "spec": {"minAvailable": min_available, "selector": selector},
    }
    return ask("POST", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", body)
