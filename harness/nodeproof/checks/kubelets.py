"""The kubelet that a claim is about, in a lab whose kubelets are older than its control plane."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Any

from nodeproof.checks.settings import KUBELET
from nodeproof.model.claim import Claim, includes, release
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Check

Json = Any
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")


def kubelet_version(claim: Claim, check: Check, history: History, configuration: Configuration) -> str:
    """Return the version of the kubelet that a claim is about; empty if it is the API server's.

    A default is that of the kubelet that reported it. Another check names nodes, or pods on them; without
    any, it is about all nodes of the recording. Of several versions, return one in which the claim does not
    hold, else the oldest.
    """
    if claim.subject != KUBELET or not configuration.node_versions:
        return ""
    if check.name == "default":
        return configuration.kubelet_version
    nodes = _nodes_of(check, history) or {*history.begun.get("nodes", ())}
    versions = sorted({_version_on(node, history, configuration) for node in nodes}, key=release)
    others = (version for version in versions if not includes(claim.versions, version))
    version = next(others, next(iter(versions), ""))
    return "" if version == configuration.kubernetes_version else version


def _nodes_of(check: Check, history: History) -> Set[str]:
    """Return the nodes that the arguments of a check name, and those of the pods that they name."""
    names = {name for text in _texts(check.args) for name in _NAME.findall(text)}
    nodes = {name for name in names if history.versions("nodes", "", name)}
    for pod in history.all_versions("pods"):
        if pod.object["metadata"]["name"] in names:
            nodes.add(str(pod.object["spec"].get("nodeName") or ""))
    return nodes - {""}


def _texts(args: Json) -> Iterator[str]:
    if isinstance(args, str):
        yield args
    elif isinstance(args, Mapping | list | tuple):
        for part in args.values() if isinstance(args, Mapping) else args:
            yield from _texts(part)


def _version_on(node: str, history: History, configuration: Configuration) -> str:
    """Return the version of a node's kubelet; a node that joined later is in the recording alone."""
    if node in configuration.node_versions:
        return configuration.node_versions[node]
    infos = (
        state.object.get("status", {}).get("nodeInfo", {}) for state in history.versions("nodes", "", node)
    )
    reported = (str(info["kubeletVersion"]) for info in infos if info.get("kubeletVersion"))
    return next(reported, configuration.kubernetes_version)
