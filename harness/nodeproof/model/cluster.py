"""The configuration of a cluster under test as it reports it, and helpers to read its objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as fields_of

from nodeproof.model.formula import SYMBOLS, read
from nodeproof.model.pattern import Json

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
KUBERNETES_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of the taints that Kubernetes adds and removes itself, except `OUT_OF_SERVICE`."""
POD_COLLECTOR = "system:serviceaccount:kube-system:pod-garbage-collector"
"""User that removes pods by force (controller manager, with `--use-service-account-credentials`)."""
ZONE_LABEL = "topology.kubernetes.io/zone"
SERVICE_ADDRESS = "10.96.0.1"
"""Address of the Service `kubernetes` in a lab."""
PLANE_BRIDGE = "planes"
"""Interface of a lab behind which its several control planes are."""
LEASE_NAMESPACE = "kube-node-lease"
CLUSTER_WIDE = frozenset({"nodes", "namespaces", "csinodes", "volumeattachments"})
"""Recorded resources that are not namespaced."""
RENEW_JITTER = UPDATE_JITTER = 0.04
"""Largest relative delay of a Lease renewal since 1.22, and of a status update.

Sources: k8s.io/component-helpers/apimachinery/lease/controller.go; pkg/kubelet/kubelet.go, JitterUntil.
"""


@dataclass(frozen=True)
class Calibration:
    """Timing accuracy of this host and lab (all in s), measured at the start of a run."""

    watch_latency_s: float
    clock_offset_s: Mapping[str, float] = field(default_factory=dict)
    api_resolution_s: float = 0.0


@dataclass(frozen=True)
class Configuration:
    """The running configuration from which windows are computed; read from the cluster, never assumed.

    `reported` holds each component's `/configz`; of the API server, the default tolerations, read by a dry
    run. `flags_set` has an entry for each component whose flags are known, a kubelet's with the fields of its
    configuration file: it tells whether a value is a default. `tested_kubelet` is true if the kubelets are of
    the Kubernetes under test. `fields` are the field paths of each recorded resource, which a run stores once
    in a file of their own. `lab` is the kind of lab, `components` are the executables by role.
    `node_versions` are the versions of kubelets that differ from the API server's, by node. `kubelet_version`
    is that of the kubelet whose configuration was read; empty for the API server's. `upgraded_to` is the
    version to which a fault of the scenario upgraded the control plane; empty without.
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
    node_versions: Mapping[str, str] = field(default_factory=dict)
    kubelet_version: str = ""
    upgraded_to: str = ""

    @property
    def versions(self) -> Sequence[str]:
        """The versions that the control plane had, in their order."""
        return tuple(filter(None, (self.kubernetes_version, self.upgraded_to)))

    @property
    def has_own_systems(self) -> bool:
        """Whether each node runs a system of its own; the nodes of a process lab share the host's."""
        return self.lab != "process"

    def version_of(self, component: str) -> str:
        """Return the version of the component that reported its settings."""
        return (component == "kubelet" and self.kubelet_version) or self.kubernetes_version

    def __getitem__(self, symbol: str) -> float:
        """Return the value of a symbol of `nodeproof.model.formula`.

        Raises:
            KeyError: The symbol does not exist, or its component did not report it.
        """
        return read(SYMBOLS[symbol], self.reported)

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in a run's `configuration.json`."""
        data = asdict(replace(self, fields={}))
        del data["fields"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Configuration:
        """Read a stored configuration; unknown fields are ignored.

        Raises:
            KeyError, TypeError: A field is missing.
        """
        calibration = Calibration(**select_fields(Calibration, data["calibration"]))
        # Earlier versions stored `hollow_from_tree` for all labs, but only process labs run a hollow kubelet.
        is_tested = data.get("hollow_from_tree", True) or data["lab"] != "process"
        return cls(**{"tested_kubelet": is_tested, **select_fields(cls, data), "calibration": calibration})


def select_fields(kind: type, data: Mapping[str, Json]) -> dict[str, Json]:
    """Return the stored data for which a dataclass has fields: a later version may have written more."""
    names = {field_.name for field_ in fields_of(kind)}
    return {name: value for name, value in data.items() if name in names}


def flags_of(argv: Sequence[str]) -> Mapping[str, str]:
    """Return the flags of a command line and their values, given as `--flag=value` or `--flag value`."""
    flags = {}
    for argument, following in zip(argv, [*argv[1:], ""], strict=False):
        name, equals, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and name:
            is_value = following and not following.startswith("-")
            flags[name] = value if equals else following if is_value else "true"
    return flags


def condition(obj: Mapping[str, Json], type_: str) -> Mapping[str, Json] | None:
    """Return the condition of one type of a Node or Pod, or None."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == type_), None)


def condition_status(obj: Mapping[str, Json], type_: str) -> str:
    """Return `True`, `False`, `Unknown`, or an empty string if the condition is missing."""
    entry = condition(obj, type_)
    return str(entry["status"]) if entry else ""


def has_taint(node: Mapping[str, Json], key: str, effect: str) -> bool:
    """Return whether a Node has the taint."""
    return any(
        taint["key"] == key and taint["effect"] == effect for taint in node["spec"].get("taints") or ()
    )


def is_ready(node: Mapping[str, Json]) -> bool:
    """Return whether the Node's Ready condition is True."""
    return condition_status(node, "Ready") == "True"
