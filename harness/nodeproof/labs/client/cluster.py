"""The Kubernetes of a lab: its API, its kubectl, and what scenarios run in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.cluster import witness, workloads
from nodeproof.cluster.api import Api
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

    def run_pod(self, on: str, tolerations: Sequence[Json] = ()) -> Pod:
        """A Running pod on a node. Raises Problem, ApiError."""
        return workloads.run_pod(self.api, node_name=on, tolerations=tolerations, limit_s=POD_LIMIT_S)

    def run_witnesses(self, on: str, witnesses: Sequence[Witness]) -> list[Pod]:
        """Running pods that tell what happens to them. Raises Problem, ApiError."""
        return witness.run(self.api, on, witnesses, WITNESS_LIMIT_S)

    def pending_pod(
        self,
        only_on: str,
        tolerations: Sequence[Json] = (),
        requests: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        fields: Mapping[str, Json] | None = None,
    ) -> Pod:
        """A pod that the scheduler may bind to one node only, with these `fields` in its spec. Raises
        ApiError.
        """
        return workloads.create_pod(self.api, only_on, tolerations, True, requests, limits, fields)

    def bound_pod(self, to: str) -> Pod:
        """A pod that is a node's from the beginning. Raises ApiError."""
        return workloads.create_pod(self.api, to, (), by_scheduler=False)

    def tidy(self, nodes: Collection[str] | None, is_others: Callable[[str], bool]) -> None:
        """Remove what scenarios left on these nodes, or anywhere, by its name: their pods and labels. Raises
        ApiError.
        """
        workloads.sweep_pods(self.api, nodes, is_others)
        workloads.take_labels_off(self.api, nodes)
