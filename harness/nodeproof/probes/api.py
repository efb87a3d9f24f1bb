"""Probes through the API: fields and sizes of objects, what kubectl describes, and kubelets' summaries."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from fractions import Fraction
from ipaddress import ip_network
from itertools import combinations
from typing import TYPE_CHECKING

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.judgment import words_in
from nodeproof.model.pattern import Json, value_at
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import amount
from nodeproof.probes.probe import COMMAND_TIMEOUT_S, Probe
from nodeproof.waiting import retry_on

_QUORUM_TIMEOUT_S = 120.0
"""From the boot of a control plane to its first answer, with a slow election in between."""


def field_of(path: str, field: str) -> Probe:
    """Return a probe of a field such as `metadata.uid` of an object at a path (`/api/v1/nodes/node-1`)."""

    def read(lab: LabHandle) -> Json:
        document = lab.cluster.api.get(path)
        if document.get("kind") in ("Secret", "SecretList"):
            raise Problem(
                f"{path} is a Secret", "field_of(...)", "read another object: the value is in the report"
            )
        return value_at(field, document)

    return Probe(field, path, read)


def config_maps(namespace: str, control_plane: str) -> Probe:
    """Return a probe of the names of a namespace's ConfigMaps, as one control plane lists them.

    A LIST without a resourceVersion is as recent as a quorum of etcd. The probe repeats it until it is
    answered.
    """

    def read(lab: LabHandle) -> list[str]:
        address = lab.fleet.control_planes()[control_plane]

        def dial(_host: str, port: int, timeout_s: float) -> socket.socket:
            return lab.fleet.dial(address, port, timeout_s)

        own = Api(lab.dir / "pki" / "admin.kubeconfig", dial)
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        items = retry_on(lambda: own.get(path), ApiError, timeout_s=_QUORUM_TIMEOUT_S)["items"]
        return sorted(str(item["metadata"]["name"]) for item in items)

    return Probe(f"ConfigMaps at {control_plane}", namespace, read)


def size_ratio(path: str, than: str) -> Probe:
    """Return a probe of the size ratio of two API objects, given by their paths, without managedFields.

    The sizes are those as JSON; the ratio is rounded down to a whole number.
    """

    def read(lab: LabHandle) -> str:
        return str(_bytes(lab, path) // _bytes(lab, than))

    return Probe(f"size in sizes of {than}", path, read)


def _bytes(lab: LabHandle, path: str) -> int:
    document = lab.cluster.api.get(path)
    document["metadata"].pop("managedFields", None)
    return len(json.dumps(document, separators=(",", ":")).encode())


def overlapping_ranges() -> Probe:
    """Return a probe of all Nodes' pod CIDRs: the number of `ranges` and of `overlapping` pairs of them."""

    def read(lab: LabHandle) -> Json:
        items = lab.cluster.api.get(WATCHED["nodes"])["items"]
        ranges = [ip_network(cidr) for item in items for cidr in item["spec"].get("podCIDRs", ())]
        pairs = combinations(ranges, 2)
        return {"ranges": len(ranges), "overlapping": sum(one.overlaps(other) for one, other in pairs)}

    return Probe("podCIDRs", "all Nodes", read)


_THOUSANDTHS = 1000


def resources_of(node: str) -> Probe:
    """Return a probe of a Node's `capacity` and `allocatable`, by resource: `cpu` in millicores.

    All other resources are in their units, so memory is in bytes.
    """

    def read(lab: LabHandle) -> Json:
        status = lab.cluster.api.get(node_path(node))["status"]
        return {what: as_numbers(status[what]) for what in ("capacity", "allocatable")}

    return Probe("resources", node, read)


def as_numbers(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return resources as numbers, from the form in the API (`cpu: 950m`, `memory: 2Gi`).

    Raises:
        ValueError: A quantity is invalid, or not a whole number.
    """
    return {name: _whole(amount(text), text, name) for name, text in quantities.items()}


def _whole(number: Fraction, text: str, name: str) -> int:
    scaled = number * _THOUSANDTHS if name == "cpu" else number
    if scaled.denominator != 1:
        raise ValueError(f"{text!r} of {name} is not a whole number")
    return scaled.numerator


def described(node: str) -> Probe:
    """Return a probe of the sections of a Node's description: the value of each key in them.

    The key is that of a `key: value` line, or the first word of a table row, whose value is the second word.
    """

    def read(lab: LabHandle) -> dict[str, dict[str, str]]:
        completed = lab.cluster.run_kubectl(("describe", "node", node), COMMAND_TIMEOUT_S, "")
        if completed["status"] != 0:
            raise Problem(
                f"kubectl describe: {completed['stderr']}".strip(),
                f"lab {lab.name}",
                "see the log of kube-apiserver",
            )
        return sections(str(completed["stdout"]))

    return Probe("kubectl describe node", node, read)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of a description by their headings."""
    parts: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith(" "):
            rows = parts.setdefault(line.partition(":")[0], {})
        elif len(words) > 1:
            rows[words[0].rstrip(":")] = words[1]
            key, colon, value = line.partition(":")
            if colon:
                rows[key.strip()] = value.strip()
    return parts


_PAGE = "/stats/summary"


def swap_stats(node: str, field: str, pod: Pod | None = None, container: str = "") -> Probe:
    """Return a probe of a swap field such as `swapUsageBytes` of a node, a pod or a pod's container.

    The kubelet reports it at /stats/summary. The value is a whole number as text, empty if there is none.
    """
    name = pod.name if pod else ""

    def read(lab: LabHandle) -> str:
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


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Probe)  # noqa: PLE0605
