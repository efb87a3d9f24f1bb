"""Profiles: the timing settings of a lab's components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import duration_s


@dataclass(frozen=True)
class Profile:
    """Timing flags per component, kubelet configuration and environment; empty means upstream's default.

    `slack_limit_s` is the measurement error above which verdicts are `host-too-loaded`; `negative_wait_s` is
    how long a scenario waits for an event that must not happen. `leader_election` are flags of components
    that elect a leader, in labs with several control planes.
    """

    name: str
    slack_limit_s: float
    negative_wait_s: float
    toleration_s: int
    api_server: Mapping[str, str] = field(default_factory=dict)
    controller_manager: Mapping[str, str] = field(default_factory=dict)
    cloud_controller_manager: Mapping[str, str] = field(default_factory=dict)
    kubelet: Mapping[str, Json] = field(default_factory=dict)
    kubelet_env: Mapping[str, str] = field(default_factory=dict)
    leader_election: Mapping[str, str] = field(default_factory=dict)


FAST = Profile(
    name="fast",
    slack_limit_s=1.0,
    negative_wait_s=5.0,
    toleration_s=6,
    api_server={"default-not-ready-toleration-seconds": "10", "default-unreachable-toleration-seconds": "10"},
    controller_manager={
        "node-monitor-grace-period": "12s",
        "node-monitor-period": "1s",
        "node-startup-grace-period": "15s",
        # Not 1: with exactly 1 evictions never resume after all zones were down
        # (docs/findings/eviction-rate-exactly-one.md).
        "node-eviction-rate": "0.5",
        "secondary-node-eviction-rate": "0.2",
        # Scaled like the other settings: upstream's 20/s and burst of 30 would delay a group of lost nodes.
        "kube-api-qps": "100",
        "kube-api-burst": "150",
    },
    cloud_controller_manager={"node-monitor-period": "1s"},
    kubelet={
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "5m0s",
    },
    kubelet_env={"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "2"},
    leader_election={
        "leader-elect-lease-duration": "6s",
        "leader-elect-renew-deadline": "4s",
        "leader-elect-retry-period": "1s",
    },
)
DOCUMENTED = Profile(name="documented", slack_limit_s=3.0, negative_wait_s=60.0, toleration_s=30)
PROFILES = {profile.name: profile for profile in (FAST, DOCUMENTED)}


FIXED_FLAGS: Mapping[str, Mapping[str, str]] = {
    "etcd": {"unsafe-no-fsync": "true"},
    "kube-apiserver": {
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-preferred-address-types": "InternalIP,Hostname",
    },
    "kube-controller-manager": {"leader-elect": "false", "use-service-account-credentials": "true"},
    "kube-scheduler": {"leader-elect": "false"},
}
"""Flags of a lab with one control plane that differ from upstream's defaults and change no timing."""
FIXED_KUBELET: Mapping[str, Json] = {
    "healthzPort": 0,
    "makeIPTablesUtilChains": False,
    "resolvConf": "",
    "clusterDNS": ["10.96.0.10"],
    "authorization": {"mode": "Webhook"},
}
"""The same for KubeletConfiguration. No server has that DNS address; it only silences a kubelet warning."""


ELECTING = ("kube-controller-manager", "kube-scheduler")
"""The components of which only a leader works."""


def fixed_flags(profile: Profile, control_planes: int) -> Mapping[str, Mapping[str, str]]:
    """Return the flags of every lab with so many control planes: several replicas elect a leader."""
    if control_planes == 1:
        return FIXED_FLAGS
    electing = {
        name: {**FIXED_FLAGS[name], "leader-elect": "true", **profile.leader_election} for name in ELECTING
    }
    return {**FIXED_FLAGS, **electing}


def symbols(profile: Profile) -> Mapping[str, float]:
    """Return the expected values of the symbols of formulas (`nodeproof.model.formula`).

    They come from the profile or upstream's defaults and are not evidence: verdicts use what a lab reports.
    """
    manager, kubelet, server = profile.controller_manager, profile.kubelet, profile.api_server
    election = profile.leader_election
    return {
        "G": duration_s(manager.get("node-monitor-grace-period", "50s")),
        "P": duration_s(manager.get("node-monitor-period", "5s")),
        "E": float(manager.get("node-eviction-rate", "0.1")),
        "E2": float(manager.get("secondary-node-eviction-rate", "0.01")),
        "R": float(kubelet.get("nodeLeaseDurationSeconds", 40)) / 4,
        "S": duration_s(manager.get("node-startup-grace-period", "60s")),
        "U": duration_s(str(kubelet.get("nodeStatusUpdateFrequency", "10s"))),
        "L": duration_s(election.get("leader-elect-lease-duration", "15s")),
        "D": duration_s(election.get("leader-elect-renew-deadline", "10s")),
        "Y": duration_s(election.get("leader-elect-retry-period", "2s")),
        "T": float(server.get("default-unreachable-toleration-seconds", 300)),
    }


def profile_named(name: str) -> Profile:
    """Return a profile by name. Raises Problem if there is none."""
    if name not in PROFILES:
        raise Problem(f"unknown profile {name!r}", "--profile", f"choose one of: {', '.join(PROFILES)}")
    return PROFILES[name]
