"""Other versions in a lab: kubelets (`--node-versions`, or a topology file), and upgrades (`--upgrade-to`).

The rules are those of https://kubernetes.io/releases/version-skew-policy/, sections "kubelet" and "Supported
component upgrade order".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodeproof.artifacts.build import Version
from nodeproof.artifacts.components import BUILD, HOLLOW, Components, obtain, supplied_version
from nodeproof.cache import Report
from nodeproof.model.overrides import NODE_VERSIONS_OPTION, UPGRADE_OPTION
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
    minor = _version(api_server).minor
    supported = f"the version skew policy allows kubelets of 1.{minor - _OLDEST} to 1.{minor}"
    for version in node_versions:
        age = minor - _version(version).minor
        if 0 <= age <= _OLDEST:
            continue
        relation = "newer than" if age < 0 else f"more than {_OLDEST} minor versions older than"
        message = f"kubelet {version} is {relation} kube-apiserver {api_server}"
        raise Problem(message, where, supported)


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


def upgrade_version(upgrade_to: str) -> str:
    """Return the version of `--upgrade-to`: itself, or of a folder with executables. Raises Problem."""
    if _is_folder(upgrade_to):
        return supplied_version(upgrade_to)
    return str(Version.parse(upgrade_to, UPGRADE_OPTION))


def check_upgrade(api_server: str, upgrade_to: str, node_versions: tuple[str, ...]) -> None:
    """Check that a control plane, and nodes that stay as they are, support an upgrade.

    Raises:
        Problem: The upgrade leads to no newer version or skips a minor, or a kubelet is too old for it.
    """
    if not upgrade_to:
        return
    newer = upgrade_version(upgrade_to)
    old, new = _version(api_server), _version(newer)
    is_patch = new.minor == old.minor and _patch(new) > _patch(old)
    if not is_patch and new.minor != old.minor + 1:
        supported = f"the version skew policy allows a newer patch of 1.{old.minor}, or 1.{old.minor + 1}"
        raise Problem(f"kube-apiserver {api_server} cannot be upgraded to {newer}", UPGRADE_OPTION, supported)
    check_skew(newer, node_versions)


def obtain_upgrade(upgrade_to: str, report: Report) -> Components | None:
    """Return the executables of `--upgrade-to`; None without it. Raises Problem."""
    if not upgrade_to:
        return None
    return obtain(upgrade_to, "", report) if _is_folder(upgrade_to) else obtain(BUILD, upgrade_to, report)


def _is_folder(upgrade_to: str) -> bool:
    return len(Path(upgrade_to).parts) > 1


def _version(text: str) -> Version:
    return Version.parse(text.partition("+")[0])


def _patch(version: Version) -> int:
    return int(version.rest.partition("-")[0])
