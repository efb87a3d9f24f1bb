"""The symbols of formulas, and the component fields that report their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodeproof.model.duration import duration_s

Json = Any


@dataclass(frozen=True)
class Symbol:
    """A value of the running configuration: `share` of the value at a path of a component's `/configz`."""

    meaning: str
    component: str
    path: str
    share: float = 1.0


SYMBOLS: Mapping[str, Symbol] = {
    "G": Symbol(
        "node-monitor-grace-period (s)",
        "kube-controller-manager",
        "NodeLifecycleController.NodeMonitorGracePeriod",
    ),
    "P": Symbol("node-monitor-period (s)", "kube-controller-manager", "KubeCloudShared.NodeMonitorPeriod"),
    "E": Symbol(
        "node-eviction-rate (1/s)", "kube-controller-manager", "NodeLifecycleController.NodeEvictionRate"
    ),
    "E2": Symbol(
        "secondary-node-eviction-rate (1/s)",
        "kube-controller-manager",
        "NodeLifecycleController.SecondaryNodeEvictionRate",
    ),
    # nodeLeaseRenewIntervalFraction is compiled in (pkg/kubelet/kubelet.go).
    "R": Symbol("interval of lease renewals (s)", "kubelet", "nodeLeaseDurationSeconds", 0.25),
    "S": Symbol(
        "node-startup-grace-period (s)",
        "kube-controller-manager",
        "NodeLifecycleController.NodeStartupGracePeriod",
    ),
    "U": Symbol("period in which a kubelet computes its status (s)", "kubelet", "nodeStatusUpdateFrequency"),
    "T": Symbol("default toleration (s)", "kube-apiserver", "DefaultTolerationSeconds.Unreachable"),
}
SLACK = "slack"
"""Time that measuring may add to a true duration (s); every formula may use it."""


def read(symbol: Symbol, reported: Mapping[str, Json]) -> float:
    """Return the value of a symbol.

    Raises:
        KeyError: Its component did not report it.
    """
    value: Json = reported[symbol.component]
    for part in symbol.path.split("."):
        value = value[part]
    return symbol.share * (0.0 if value is None else duration_s(value))
