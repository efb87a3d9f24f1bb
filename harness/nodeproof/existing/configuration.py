"""The running configuration of an existing cluster, as far as its API shows it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nodeproof import catalogue
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz, read_fields
from nodeproof.cluster.resources import WATCHED
from nodeproof.existing import settings
from nodeproof.existing.settings import API_SERVER, KUBELET, MANAGER, Evidence
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.formula import SYMBOLS
from nodeproof.model.problem import Problem

Json = Any
_FLAGS: Mapping[str, str] = {
    "G": "node-monitor-grace-period",
    "P": "node-monitor-period",
    "E": "node-eviction-rate",
    "E2": "secondary-node-eviction-rate",
    "S": "node-startup-grace-period",
}
"""The flags of the controller manager that symbols of formulas stand for."""
KIND, PROFILE = "existing", "documented"


class Limits(Protocol):
    """The limits of measuring; those of a profile."""

    @property
    def slack_limit_s(self) -> float: ...
    @property
    def negative_wait_s(self) -> float: ...


def read_configuration(
    api: Api, version: str, names: Sequence[str], where: str, limits: Limits, calibration: Calibration
) -> Configuration:
    """Read the configuration that windows are computed from.

    Args:
        api: The API server.
        version: Its version.
        names: The marked nodes; the kubelet of the first one represents all.
        where: The inventory, for messages.
        limits: Limits of the slack and of waits for events that must not happen (s).
        calibration: Timing accuracy.

    Raises:
        ApiError: The API server refuses or does not answer.
        Problem: The API does not show a setting that windows need.
    """
    nodes = api.get(WATCHED["nodes"])["items"]
    evidence = settings.read(api, nodes, (), settings.read_tolerations(api), configz=False)
    claims = catalogue.load()
    reported = {
        MANAGER: manager_settings(evidence, claims, version, where),
        KUBELET: _kubelet(api, names[0], where),
        API_SERVER: {"DefaultTolerationSeconds": _tolerations(evidence, where)},
    }
    versions = {
        entry["metadata"]["name"]: str(entry["status"]["nodeInfo"]["kubeletVersion"]) for entry in nodes
    }
    others = {name: versions[name] for name in names if versions[name] != version}
    return Configuration(
        kubernetes_version=version,
        lab=KIND,
        profile=PROFILE,
        slack_limit_s=limits.slack_limit_s,
        negative_wait_s=limits.negative_wait_s,
        calibration=calibration,
        reported=reported,
        flags_set=_flags_set(evidence),
        fields=read_fields(api, WATCHED),
        node_versions=others,
        kubelet_version=others.get(names[0], ""),
    )


def manager_settings(
    evidence: Evidence, claims: Mapping[str, Claim], version: str, where: str
) -> Mapping[str, Json]:
    """Return the settings of the controller manager that windows need, by group as `/configz` has them.

    Raises:
        Problem: One is unknown, or the controller managers differ in it.
    """
    groups: dict[str, dict[str, float]] = {}
    for symbol, flag in _FLAGS.items():
        values = settings.numbers(evidence, flag, claims, version)
        if len(values) != 1:
            differing = f"the controller managers have {sorted(values)}"
            hidden = "no command line of a controller manager is seen"
            reason = evidence.unread or (differing if values else hidden)
            step = "windows are computed from it: only static pods, k3s and RKE2 show it"
            raise Problem(f"{flag} is unknown ({reason})", where, step)
        group, _dot, name = SYMBOLS[symbol].path.partition(".")
        (groups.setdefault(group, {})[name],) = values
    return groups


def _kubelet(api: Api, name: str, where: str) -> Mapping[str, Json]:
    """Return a kubelet's configuration. Raises Problem if nobody may read it."""
    try:
        return kubelet_configz(api, name)
    except ApiError as error:
        step = "the user needs get on nodes/proxy"
        raise Problem(f"the settings of the kubelet of {name} are unknown: {error}", where, step) from error


def _tolerations(evidence: Evidence, where: str) -> Mapping[str, float | None]:
    if evidence.tolerations.seconds is None:
        step = "the user needs create on pods in the namespace default, for a dry run"
        raise Problem(evidence.tolerations.reason, where, step)
    return evidence.tolerations.seconds


def _flags_set(evidence: Evidence) -> Mapping[str, Mapping[str, str]]:
    """Return the flags of the components whose command line the API shows."""
    by_component = {component: evidence.flags(component) for component in (API_SERVER, MANAGER)}
    return {name: dict(ChainMap(*map(dict, flags.values()))) for name, flags in by_component.items() if flags}
