"""Swap in a kubelet's /stats/summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe

Json = Any
_PAGE = "/stats/summary"


def swap_stats(node: str, field: str, pod: Pod | None = None, container: str = "") -> Probe:
    """Return a probe of a swap field such as `swapUsageBytes` of a node, a pod or a pod's container.

    The kubelet reports it at /stats/summary. The value is a whole number as text, empty if there is none.
    """
    name = pod.name if pod else ""

    def read(lab: Lab) -> str:
        summary = lab.cluster.api.get(f"{node_path(node)}/proxy{_PAGE}")
        value = swap_of(summary, name, container).get(field)
        return "" if value is None else str(value)

    prefix = f"{container} " if container else ""
    return Probe(f"{_PAGE} {prefix}{field}", name or node, read)


def swap_of(summary: Json, pod: str, container: str) -> Mapping[str, Json]:
    """Return the swap of a pod's container, of a pod, or else of the node, from a summary."""
    if not pod:
        return _swap(summary["node"])
    pod_stats: Json = next((entry for entry in summary["pods"] if entry["podRef"]["name"] == pod), {})
    if not container:
        return _swap(pod_stats)
    containers = (entry for entry in pod_stats.get("containers", ()) if entry["name"] == container)
    return _swap(next(containers, {}))


def _swap(stats: Json) -> Mapping[str, Json]:
    swap: Mapping[str, Json] = stats.get("swap") or {}
    return swap
