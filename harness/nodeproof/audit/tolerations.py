"""The tolerations that the API server gives to pods, read by a dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nodeproof.checks.observations import shows
from nodeproof.checks.settings import default_of
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import pods
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, Configuration
from nodeproof.model.judgment import Judgment, Observation
from nodeproof.model.verdict import Verdict, unproven

Json = Any
NAMESPACE = "default"
DEFAULT_S = 300
_CONSTANTS = ("default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds")
_API_SERVER = "kube-apiserver"
_CONTAINER = {
    "name": "main",
    "image": "registry.k8s.io/pause:3.10",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
POD: Json = {
    "metadata": {"generateName": "nodeproof-audit-"},
    "spec": {
        "containers": [_CONTAINER],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    },
}
"""A pod that Pod Security's strictest level admits; it is never stored."""


@dataclass(frozen=True)
class Tolerations:
    """Toleration seconds of a new pod (None where it tolerates for ever, or not at all), or why unknown."""

    seconds: Mapping[str, float | None] | None
    reason: str = ""
    requested_t: float = 0.0
    """When the dry run was requested (s, monotonic)."""

    @property
    def observation(self) -> Observation | None:
        """The observation of the dry run, unless it was refused."""
        if self.seconds is None:
            return None
        return Observation("default tolerations", "tolerations", "a new pod", self.seconds)


@dataclass(frozen=True)
class Judged:
    """Judgments of a claim with the configuration for them, or its verdict."""

    configuration: Configuration
    judgments: tuple[Judgment, ...] = ()
    verdicts: tuple[tuple[str, Verdict], ...] = ()


def read_tolerations(api: Api) -> Tolerations:
    """Read the tolerations of a new pod by a server-side dry run."""
    requested_t = time.monotonic()
    try:
        pod = api.dry_run(pods(NAMESPACE), POD)
    except ApiError as error:
        return Tolerations(None, f"the dry run of a pod was refused: {error}")
    seconds = {
        entry.get("key"): entry.get("tolerationSeconds") for entry in pod["spec"].get("tolerations") or ()
    }
    by_taint = {"NotReady": seconds.get(NOT_READY), "Unreachable": seconds.get(UNREACHABLE)}
    return Tolerations(by_taint, requested_t=requested_t)


def judge_tolerations(tolerations: Tolerations, claim: str, configuration: Configuration) -> Judged:
    """Return how to judge the claim about the default.

    The default conforms whatever the flags of the API server are. Another value is judged by the flags, and
    is unproven if they are unknown.
    """
    observation = tolerations.observation
    if observation is None:
        return _unknown(configuration, claim, tolerations.reason)
    if _API_SERVER in configuration.flags_set:
        reported = {**configuration.reported, _API_SERVER: {"DefaultTolerationSeconds": tolerations.seconds}}
        judgments = tuple(Judgment(claim, default_of(constant)) for constant in _CONSTANTS)
        return Judged(replace(configuration, reported=reported), judgments)
    expected = dict.fromkeys(observation.value, DEFAULT_S)
    if observation.value != expected:
        reason = (
            f"a new pod has {dict(observation.value)} s; whether flags of the API server say so is unknown"
        )
        return _unknown(configuration, claim, reason)
    return Judged(configuration, (Judgment(claim, shows(observation, expected)),))


def _unknown(configuration: Configuration, claim: str, reason: str) -> Judged:
    return Judged(configuration, verdicts=((claim, unproven("settings-unknown", reason)),))
