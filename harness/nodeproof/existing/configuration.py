"""The running configuration of an existing cluster, as far as its API shows it.

Tolerations come from a dry run of a pod. A static pod's flags are in its mirror pod (kubeadm, RKE2), those of
k3s and RKE2 in an annotation of their Nodes. A flag that is not there has the default of the version, by the
constants of the catalogue.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeproof import catalogue
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz, read_fields
from nodeproof.cluster.resources import WATCHED, pods
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import NOT_READY, UNREACHABLE, Calibration, Configuration, flags_of
from nodeproof.model.formula import SYMBOLS, field_at
from nodeproof.model.judgment import Observation
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import duration_s
from nodeproof.report.plain import counted

Node = Mapping[str, Json]
Flags = Mapping[str, Mapping[str, str]]
"""Flags of the instances of a component, by their source."""
API_SERVER, MANAGER, KUBELET = "kube-apiserver", "kube-controller-manager", "kubelet"
CONTROL_PLANE = "kube-system"
MIRROR = "kubernetes.io/config.mirror"
NODE_ARGUMENTS = ("k3s.io/node-args", "rke2.io/node-args")
_OF_MANAGER: Mapping[str, str] = {
    "node-monitor-grace-period": "",
    "node-monitor-period": "",
    "node-startup-grace-period": "60s",
    "node-eviction-rate": "",
    "secondary-node-eviction-rate": "",
    "unhealthy-zone-threshold": "0.55",
    "large-cluster-size-threshold": "50",
}
"""Flags of the node controller; the default of those that the catalogue has no constant for
(pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
"""
OF_KUBELET = (
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "failSwapOn",
    "memorySwap.swapBehavior",
    "systemReserved",
    "kubeReserved",
)
"""Fields of a kubelet's configuration."""
_ARGUMENTS = re.compile(r"--(kube-apiserver|kube-controller-manager|kubelet)-arg(?:=(.*))?")
NAMESPACE = "default"
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


@dataclass(frozen=True)
class Setting:
    """A value and its source; the value is empty if it is unknown, and the source says why."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Evidence:
    """What the API shows of settings."""

    nodes: Sequence[Node]
    leases: Sequence[Json]
    tolerations: Tolerations
    static_pods: Sequence[Json] = ()
    unread: str = ""
    """Why the static pods are unknown."""
    kubelets: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """The configuration of each node's kubelet, as far as it was read."""
    unread_kubelets: Mapping[str, str] = field(default_factory=dict)
    """Why the configuration of each other kubelet was not read."""

    def flags(self, component: str) -> Flags:
        """Return the flags of each instance of a component of the control plane."""
        instances: dict[str, Mapping[str, str]] = {}
        for pod in self.static_pods:
            for container in pod["spec"]["containers"]:
                argv = [*(container.get("command") or ()), *(container.get("args") or ())]
                if _is_command_of(component, container["name"], argv):
                    flags = {name.replace("_", "-"): text for name, text in flags_of(argv).items()}
                    instances[f"pod {pod['metadata']['name']}"] = flags
        for node in self.nodes:
            annotations = node["metadata"].get("annotations") or {}
            for key in NODE_ARGUMENTS:
                arguments = _arguments(annotations.get(key, ""))
                if arguments[:1] == ["server"]:
                    source = f"{key} of {node['metadata']['name']}"
                    instances.setdefault(source, flags_of(list(_passed_on(arguments, component))))
        return instances

    def flags_set(self, *components: str) -> Mapping[str, Mapping[str, str]]:
        """Return the flags of the components whose command line the API shows."""
        instances = {component: self.flags(component).values() for component in components}
        return {name: dict(ChainMap(*map(dict, flags))) for name, flags in instances.items() if flags}


def read_evidence(
    api: Api, nodes: Sequence[Node], leases: Sequence[Json], tolerations: Tolerations
) -> Evidence:
    """Read what the API shows, without configurations of kubelets."""
    unread, mirrors = "", []
    try:
        items = api.get(pods(CONTROL_PLANE), {"labelSelector": "tier=control-plane"})["items"]
        mirrors = [pod for pod in items if MIRROR in (pod["metadata"].get("annotations") or {})]
        unread = "" if mirrors else "no mirror pod of the control plane, and no annotation of k3s or RKE2"
    except ApiError as error:
        unread = f"pods in {CONTROL_PLANE}: {error}"
    return Evidence(nodes, leases, tolerations, mirrors, unread)


def _is_command_of(component: str, container: str, argv: Sequence[str]) -> bool:
    """Return whether a container's command line is a component's own; a wrapper hides its flags."""
    if not argv:
        return False
    is_named = container == component and argv[0].startswith("-")
    return is_named or argv[0].rpartition("/")[2] == component


def _arguments(text: str) -> list[str]:
    with contextlib.suppress(ValueError):
        arguments = json.loads(text)
        return [str(argument) for argument in arguments] if isinstance(arguments, list) else []
    return []


def _passed_on(arguments: Sequence[str], component: str) -> Iterator[str]:
    """Yield the flags that a k3s or RKE2 server passes to a component (`--kubelet-arg=max-pods=50`)."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        match = _ARGUMENTS.fullmatch(argument)
        if match and match[1] == component:
            yield f"--{(match[2] if match[2] is not None else following).removeprefix('--')}"


def settings_of(evidence: Evidence, claims: Mapping[str, Claim], version: str) -> Iterator[Setting]:
    """Yield the settings that decide how a cluster treats its nodes."""
    for flag in _OF_MANAGER:
        yield _of_flag(evidence, flag, _default_of(flag, claims, version), version)
    yield from _of_tolerations(evidence.tolerations)
    durations = [lease["spec"].get("leaseDurationSeconds") for lease in evidence.leases]
    yield Setting("nodeLeaseDurationSeconds", _counted(durations), "Leases")
    source = _counted(evidence.unread_kubelets.values())
    if evidence.kubelets:
        source = f"/configz of {len(evidence.kubelets)} of {counted(len(evidence.nodes), 'node')}"
    for name in OF_KUBELET:
        configured = [_field(name, configuration) for configuration in evidence.kubelets.values()]
        yield Setting(f"{KUBELET} {name}", _counted(configured), source)
    yield Setting("swap of the machines (bytes)", _counted(map(swap_bytes, evidence.nodes)), "Nodes")


def _of_flag(evidence: Evidence, flag: str, default: str, version: str) -> Setting:
    instances, name = evidence.flags(MANAGER), f"{MANAGER} {flag}"
    if not instances:
        return Setting(name, "", evidence.unread or f"no static pod of {MANAGER}")
    set_in = [source for source, flags in instances.items() if flag in flags]
    values = dict.fromkeys(flags.get(flag, default) for flags in instances.values())
    sources = set_in if len(set_in) == len(instances) else [*set_in, f"default of {version}"]
    return Setting(name, ", ".join(values), ", ".join(sources))


def _default_of(flag: str, claims: Mapping[str, Claim], version: str) -> str:
    """Return the default of a flag of the node controller in this version."""
    if _OF_MANAGER[flag]:
        return _OF_MANAGER[flag]
    constant = next(
        entry
        for claim in claims.values()
        for entry in claim.constants
        if (entry.component, entry.flag) == (MANAGER, flag)
    )
    return f"{constant.at(version):g}{'s' if constant.unit == 's' else ''}"


def _of_tolerations(tolerations: Tolerations) -> Iterator[Setting]:
    for taint in ("NotReady", "Unreachable"):
        name = f"default toleration of {taint} (s)"
        if tolerations.seconds is None:
            yield Setting(name, "", tolerations.reason)
        else:
            seconds = tolerations.seconds[taint]
            yield Setting(name, "none" if seconds is None else f"{seconds:g}", "dry run of a pod")


def numbers(evidence: Evidence, flag: str, claims: Mapping[str, Claim], version: str) -> set[float]:
    """Return the values (s, or 1/s) of a flag of the controller managers; empty if they are unknown."""
    default, values = _default_of(flag, claims, version), set()
    for flags in evidence.flags(MANAGER).values():
        text = flags.get(flag, default)
        with contextlib.suppress(ValueError):
            values.add(float(text) if text.replace(".", "").isdecimal() else duration_s(text))
    return values


def swap_bytes(node: Node) -> int | None:
    """Return the swap that a Node reports (bytes)."""
    swap = node["status"].get("nodeInfo", {}).get("swap") or {}
    return swap.get("capacity")


def _field(name: str, configuration: Mapping[str, Json]) -> Json:
    with contextlib.suppress(KeyError):
        return field_at(name, configuration)
    return None


def _counted(values: Iterable[Json]) -> str:
    """Return the values with the number of objects that have them, most frequent first; empty without any."""
    texts = [json.dumps(value) if isinstance(value, dict | list | bool) else str(value) for value in values]
    counts = Counter("none" if text == "None" else text for text in texts).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{text} ({count})" for text, count in counts)


_FLAGS: Mapping[str, str] = {
    "G": "node-monitor-grace-period",
    "P": "node-monitor-period",
    "E": "node-eviction-rate",
    "E2": "secondary-node-eviction-rate",
    "S": "node-startup-grace-period",
}
"""The flags of the controller manager that symbols of formulas stand for."""
KIND, PROFILE = "existing", "documented"


def read_configuration(
    api: Api,
    version: str,
    names: Sequence[str],
    where: str,
    calibration: Calibration,
    *,
    slack_limit_s: float,
    negative_wait_s: float,
) -> Configuration:
    """Read the configuration that windows are computed from.

    Args:
        api: The API server.
        version: Its version.
        names: The marked nodes; the kubelet of the first one represents all.
        where: The inventory, for messages.
        calibration: Timing accuracy.
        slack_limit_s: Limit of the slack (s).
        negative_wait_s: Limit of waits for events that must not happen (s).

    Raises:
        ApiError: The API server refuses or does not answer.
        Problem: The API does not show a setting that windows need.
    """
    nodes, tolerations = api.get(WATCHED["nodes"])["items"], read_tolerations(api)
    evidence = read_evidence(api, nodes, (), tolerations)
    manager = manager_settings(evidence, catalogue.load(), version, where)
    kubelet = _kubelet(api, names[0], where)
    if tolerations.seconds is None:
        step = "the user needs create on pods in the namespace default, for a dry run"
        raise Problem(tolerations.reason, where, step)
    tolerated = {"DefaultTolerationSeconds": tolerations.seconds}
    versions = {
        entry["metadata"]["name"]: str(entry["status"]["nodeInfo"]["kubeletVersion"]) for entry in nodes
    }
    others = {name: versions[name] for name in names if versions[name] != version}
    return Configuration(
        kubernetes_version=version,
        lab=KIND,
        profile=PROFILE,
        slack_limit_s=slack_limit_s,
        negative_wait_s=negative_wait_s,
        calibration=calibration,
        reported={MANAGER: manager, KUBELET: kubelet, API_SERVER: tolerated},
        flags_set=evidence.flags_set(API_SERVER, MANAGER),
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
        values = numbers(evidence, flag, claims, version)
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
