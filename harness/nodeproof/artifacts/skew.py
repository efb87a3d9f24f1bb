"""Kubelets of other versions than their control plane (`--node-versions`, or a topology file).

The rules are those of https://kubernetes.io/releases/version-skew-policy/#kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.artifacts.build import Version
from nodeproof.artifacts.components import BUILD, HOLLOW, Components, obtain
from nodeproof.cache import Report
from nodeproof.model.overrides import NODE_VERSIONS_OPTION
from nodeproof.model.problem import Problem

_OLDEST = 3
"""How many minors a kubelet may be older than its API server."""


def parse_node_versions(text: str) -> tuple[str, ...]:
    """Parse a list such as `v1.36.3,v1.37.2`; an empty text is an empty list. Raises Problem."""
    return tuple(
        str(Version.parse(part.strip(), NODE_VERSIONS_OPTION)) for part in filter(None, text.split(","))
    )


def check_skew(api_server: str, node_versions: tuple[str, ...], where: str = NODE_VERSIONS_OPTION) -> None:
    """Check that an API server of one version supports kubelets of the others, which `where` sets.

    Raises:
        Problem: A kubelet is newer than the API server, or too old for it.
    """
    if not node_versions:
        return
    minor = _minor(api_server)
    supported = f"the version skew policy allows kubelets of 1.{minor - _OLDEST} to 1.{minor}"
    for version in node_versions:
        age = minor - _minor(version)
        if 0 <= age <= _OLDEST:
            continue
        relation = "newer than" if age < 0 else f"more than {_OLDEST} minor versions older than"
        message = f"kubelet {version} is {relation} kube-apiserver {api_server}"
        raise Problem(message, where, supported)


def _minor(version: str) -> int:
    return Version.parse(version.partition("+")[0]).minor


def obtain_others(
    node_versions: tuple[str, ...], role: str, components: Components, report: Report
) -> Mapping[str, Components]:
    """Return the executables of each version that is not the lab's own; nodes run that of `role`.

    Raises Problem.
    """
    others = {}
    for version in sorted({*node_versions} - {components.kubernetes_version}):
        built = obtain(BUILD, version, report)
        if role == HOLLOW and not built.hollow_from_tree:
            message = f"the kubelet of process nodes does not compile with Kubernetes {version}"
            raise Problem(message, NODE_VERSIONS_OPTION, "choose another version")
        others[version] = built
    return others
