"""The Kubernetes of a lab: its API, its kubectl, and what scenarios run in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.cluster import witness, workloads
from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.witness import Witness
from nodeproof.cluster.workloads import Pod

Json = Any
Kubectl = Callable[[Sequence[str], float, str], Mapping[str, Json]]
"""Runs kubectl with arguments, a limit (s) and standard input; gives status, stdout, stderr."""
POD_LIMIT_S = 90.0
WITNESS_LIMIT_S = 240.0
"""Real containers; several at once on an emulated machine of one CPU, on a busy host."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, wherever its machines are."""

    api: Api
    run_kubectl: Kubectl

    def run_pod(self, on: str, tolerates_unreachable_s: int | None = None) -> Pod:
        """A Running pod on a node. Raises Problem, ApiError."""
        return workloads.run_pod(
            self.api, node_name=on, unreachable_toleration_s=tolerates_unreachable_s, limit_s=POD_LIMIT_S
        )

    def run_witnesses(self, on: str, witnesses: Sequence[Witness]) -> list[Pod]:
        """Running pods that tell what happens to them. Raises Problem, ApiError."""
        return witness.run(self.api, on, witnesses, WITNESS_LIMIT_S)

    def pending_pod(self, only_on: str) -> Pod:
        """A pod that the scheduler may bind to one node only. Raises ApiError."""
        return workloads.create_pod(self.api, only_on, None, by_scheduler=True)

    def tidy(self, nodes: Collection[str] | None) -> None:
        """Remove what scenarios left on these nodes, or anywhere: their pods and cordons. Raises ApiError."""
        workloads.sweep_pods(self.api, nodes)
        for entry in self.api.get(WATCHED["nodes"])["items"]:
            name = entry["metadata"]["name"]
            if entry["spec"].get("unschedulable") and (nodes is None or name in nodes):
                workloads.uncordon(self.api, name)
