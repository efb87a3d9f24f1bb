"""The Kubernetes cluster of a lab: its API, its kubectl, and the pods of scenarios."""

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
"""Runs kubectl with arguments, a timeout (s) and standard input; returns status, stdout, stderr."""
POD_LIMIT_S = 90.0
WITNESS_LIMIT_S = 240.0
"""Several real containers may start at once on an emulated machine with one CPU, on a busy host."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, independent of its kind of machines."""

    api: Api
    run_kubectl: Kubectl

    def run_pod(self, on: str, tolerations: Sequence[Json] = ()) -> Pod:
        """Create a pod on a node and wait until it is Running. Raises Problem, ApiError."""
        return workloads.run_pod(self.api, node_name=on, tolerations=tolerations, limit_s=POD_LIMIT_S)

    def run_witnesses(self, on: str, witnesses: Sequence[Witness]) -> list[Pod]:
        """Run pods that record what happens to them. Raises Problem, ApiError."""
        return witness.run(self.api, on, witnesses, WITNESS_LIMIT_S)

    def pending_pod(
        self,
        only_on: str,
        tolerations: Sequence[Json] = (),
        requests: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        fields: Mapping[str, Json] | None = None,
    ) -> Pod:
        """Create a pod that the scheduler may bind to one node only; `fields` go into its spec.

        Raises ApiError.
        """
        return workloads.create_pod(self.api, only_on, tolerations, True, requests, limits, fields)

    def bound_pod(self, to: str) -> Pod:
        """Create a pod that is bound to a node from the start. Raises ApiError."""
        return workloads.create_pod(self.api, to, (), by_scheduler=False)

    def tidy(self, nodes: Collection[str] | None, is_others: Callable[[str], bool]) -> None:
        """Delete the pods and labels that scenarios left on `nodes` (None: anywhere), identified by name.

        Raises ApiError.
        """
        workloads.sweep_pods(self.api, nodes, is_others)
        workloads.take_labels_off(self.api, nodes)
