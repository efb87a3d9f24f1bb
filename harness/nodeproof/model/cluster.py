"""What a cluster under test is: its configuration as it reports it, and how to read its objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any

from nodeproof.model.symbols import SYMBOLS, read

Json = Any
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
KUBERNETES_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Begin the keys of the taints that Kubernetes puts on and takes off itself, all but `OUT_OF_SERVICE`."""
POD_COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
"""Who removes pods by force (controller manager, with `--use-service-account-credentials`)."""
ZONE_LABEL = "topology.kubernetes.io/zone"
LEASE_NAMESPACE = "kube-node-lease"
CLUSTER_WIDE = frozenset({"nodes", "namespaces", "csinodes", "volumeattachments"})
"""The recorded resources whose objects are in no namespace."""
RENEW_JITTER = UPDATE_JITTER = 0.04
"""Sliding jitter of the renewal since 1.22 (k8s.io/component-helpers/apimachinery/lease/controller.go)."""


@dataclass(frozen=True)
class Calibration:
    """How exactly this host and this lab can tell the time, measured at the start of a run (all in s)."""

    watch_latency_s: float
    clock_offset_s: Mapping[str, float] = field(default_factory=dict)
    api_resolution_s: float = 0.0


@dataclass(frozen=True)
class Configuration:
    """The running configuration that windows are computed from; read from the cluster, never assumed.

    `reported` holds each component's `/configz`; `flags_set` what was given to each component by flags, and
    to a kubelet by its file (an entry for every component that is known about), so that a default claim knows
    whether it looks at a default. `tested_kubelet` says that the kubelets are of the Kubernetes under test.
    `fields` are the paths that objects of each recorded resource have (kept once a run).
    """

    kubernetes_version: str
    lab: str
    profile: str
    slack_limit_s: float
    negative_wait_s: float
    calibration: Calibration
    tested_kubelet: bool = True
    components: Mapping[str, Json] = field(default_factory=dict)
    reported: Mapping[str, Json] = field(default_factory=dict)
    flags_set: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fields: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __getitem__(self, symbol: str) -> float:
        """What a symbol of `nodeproof.model.symbols` stands for. Raises KeyError on one that there is none
        of, or that its component did not report.
        """
        return read(SYMBOLS[symbol], self.reported)

    def to_json(self) -> Mapping[str, Json]:
        """As stored in a run's `configuration.json`."""
        told = asdict(replace(self, fields={}))
        del told["fields"]
        return told

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Configuration:
        """Read a stored configuration; what it does not know it passes over. Raises KeyError, TypeError on
        missing fields.
        """
        calibration = Calibration(**known_fields(Calibration, data["calibration"]))
        # Recordings of earlier versions say it of the hollow kubelet, whether or not it was the one that ran.
        told = data.get("hollow_from_tree", True) or data["lab"] != "process"
        return cls(**{"tested_kubelet": told, **known_fields(cls, data), "calibration": calibration})


def known_fields(kind: type, data: Mapping[str, Json]) -> dict[str, Json]:
    """What of stored data a dataclass has fields for: a later version may have written more."""
    names = {each.name for each in fields_of(kind)}
    return {name: value for name, value in data.items() if name in names}


def condition(obj: Mapping[str, Json], type_: str) -> Mapping[str, Json] | None:
    """The condition of one type of a Node or Pod, or None."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == type_), None)


def condition_status(obj: Mapping[str, Json], type_: str) -> str:
    """`True`, `False`, `Unknown`, or an empty string where the condition is absent."""
    found = condition(obj, type_)
    return str(found["status"]) if found else ""


def has_taint(node: Mapping[str, Json], key: str, effect: str) -> bool:
    """Whether a Node carries the taint."""
    return any(
        taint["key"] == key and taint["effect"] == effect for taint in node["spec"].get("taints") or ()
    )


def is_ready(node: Mapping[str, Json]) -> bool:
    """Whether the Node's Ready condition is True."""
    return condition_status(node, "Ready") == "True"
