"""What a kubelet's /stats/summary tells of swap."""

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
    """A field such as `swapUsageBytes` of the swap of a node, of a pod, or of a pod's container, as the
    kubelet tells at /stats/summary: a whole number as text, nothing where it tells none.
    """
    name = pod.name if pod else ""

    def read(lab: Lab) -> str:
        told = lab.cluster.api.get(f"{node_path(node)}/proxy{_PAGE}")
        value = swap_of(told, name, container).get(field)
        return "" if value is None else str(value)

    of = f"{container} " if container else ""
    return Probe(f"{_PAGE} {of}{field}", name or node, read)


def swap_of(told: Json, pod: str, container: str) -> Mapping[str, Json]:
    """What a summary tells of the swap of a pod's container, of a pod, or, of neither, of the node."""
    if not pod:
        return _swap(told["node"])
    found: Json = next((each for each in told["pods"] if each["podRef"]["name"] == pod), {})
    if not container:
        return _swap(found)
    inside = (each for each in found.get("containers", ()) if each["name"] == container)
    return _swap(next(inside, {}))


def _swap(of: Json) -> Mapping[str, Json]:
    found: Mapping[str, Json] = of.get("swap") or {}
    return found
