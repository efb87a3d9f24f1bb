"""Settings that the API shows, and dangerous values among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import catalogue
from nodeproof.audit.command import cluster_role
from nodeproof.audit.dangers import dangers
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import pods
from nodeproof.existing.settings import (
    API_SERVER,
    CONTROL_PLANE,
    MANAGER,
    Evidence,
    Tolerations,
    read,
    settings,
)
from nodeproof.model.cluster import flags_of

Json = Any
CATALOGUE = catalogue.load()
VERSION = "v1.36.3"
FINDINGS = {
    page.read_text().partition("\n")[0]
    for page in (Path(__file__).parents[2] / "docs" / "findings").glob("*.md")
}
DEFAULT = Tolerations({"NotReady": 300, "Unreachable": 300})
CRITICAL = 2_000_001_000


def node(name: str = "n-1", image: str = "Talos", swap: int = 0, annotations: Json = None) -> Json:
    info = {"osImage": image, **({"swap": {"capacity": swap}} if swap else {})}
    return {"metadata": {"name": name, "annotations": annotations}, "status": {"nodeInfo": info}}


def static_pod(*flags: str, name: str = "cp-1", priority: int | None = CRITICAL) -> Json:
    meta = {"name": f"{MANAGER}-{name}", "annotations": {"kubernetes.io/config.mirror": "hash"}}
    container = {"name": MANAGER, "command": [MANAGER, *flags]}
    return {"metadata": meta, "spec": {"containers": [container], "priority": priority}}


def evidence(**changed: Json) -> Evidence:
    lease = {"spec": {"leaseDurationSeconds": 40}}
    parts: dict[str, Json] = {"nodes": [node()], "leases": [lease], "tolerations": DEFAULT}
    return Evidence(**{**parts, **changed})


def shown(of: Evidence, version: str = VERSION) -> Mapping[str, tuple[str, str]]:
    return {entry.name: (entry.value, entry.source) for entry in settings(of, CATALOGUE, version)}


def warned(of: Evidence) -> list[str]:
    return [entry.claim for entry in dangers(of, CATALOGUE, VERSION)]


def test_flags_of_mirror_pods_are_shown_and_others_have_the_default() -> None:
    of = evidence(static_pods=[static_pod("--node-monitor-period=2s", "--leader-elect=true")])
    assert shown(of)[f"{MANAGER} node-monitor-period"] == ("2s", f"pod {MANAGER}-cp-1")
    assert shown(of)[f"{MANAGER} node-monitor-grace-period"] == ("50s", f"default of {VERSION}")
    assert shown(of, "v1.31.0")[f"{MANAGER} node-monitor-grace-period"][0] == "40s"
    assert shown(of)["nodeLeaseDurationSeconds"] == ("40", "Leases")


def test_different_flags_of_two_controller_managers_are_both_shown() -> None:
    both = [static_pod("--node-eviction-rate=0.5"), static_pod(name="cp-2")]
    assert shown(evidence(static_pods=both))[f"{MANAGER} node-eviction-rate"][0] == "0.5, 0.1"


@pytest.mark.parametrize("key", ["k3s.io/node-args", "rke2.io/node-args"])
def test_arguments_of_k3s_and_rke2_are_read_from_nodes(key: str) -> None:
    arguments = [
        *("server", "--kube-controller-manager-arg", "node-monitor-grace-period=20s", "--disable=traefik"),
        "--kube-apiserver-arg=default-unreachable-toleration-seconds=30",
    ]
    of = evidence(
        nodes=[node(annotations={key: json.dumps(arguments)}), node("agent", annotations={key: '["agent"]'})]
    )
    assert shown(of)[f"{MANAGER} node-monitor-grace-period"] == ("20s", f"{key} of n-1")
    assert list(of.flags(API_SERVER).values()) == [{"default-unreachable-toleration-seconds": "30"}]


def test_server_of_k3s_without_arguments_has_the_defaults() -> None:
    of = evidence(nodes=[node(annotations={"k3s.io/node-args": '["server"]'})])
    assert shown(of)[f"{MANAGER} node-eviction-rate"] == ("0.1", f"default of {VERSION}")


def test_unreadable_settings_are_unknown_with_the_reason() -> None:
    of = evidence(unread="pods are forbidden", tolerations=Tolerations(None, "no dry run"))
    assert shown(of)[f"{MANAGER} node-eviction-rate"] == ("", "pods are forbidden")
    assert shown(of)["default toleration of Unreachable (s)"] == ("", "no dry run")
    assert shown(of)["kubelet shutdownGracePeriod"] == ("", "/configz of a kubelet needs --allow-nodes-proxy")


class Server:
    """An API server that answers these paths, and forbids all others."""

    def __init__(self, answers: Mapping[str, Json]) -> None:
        self.answers, self.paths = answers, list[str]()

    def get(self, path: str, _query: Json = None) -> Json:
        self.paths.append(path)
        if path not in self.answers:
            raise ApiError(403, "forbidden")
        return self.answers[path]


def test_kubelets_are_queried_only_with_the_option() -> None:
    proxy = "/api/v1/nodes/n-1/proxy/configz"
    answers = {
        pods(CONTROL_PLANE): {"items": [static_pod()]},
        proxy: {"kubeletconfig": {"shutdownGracePeriod": "20s"}},
    }
    for configz in (False, True):
        server = Server(answers)
        of = read(server, [node()], [], DEFAULT, configz=configz)  # type: ignore[arg-type]
        assert (proxy in server.paths) == configz
        assert shown(of)["kubelet shutdownGracePeriod"][0] == ("20s" if configz else "")


def test_refused_reads_leave_settings_unknown() -> None:
    of = read(Server({}), [node()], [], DEFAULT, configz=True)  # type: ignore[arg-type]
    assert "403" in shown(of)[f"{MANAGER} node-eviction-rate"][1]
    assert "403" in shown(of)["kubelet failSwapOn"][1]


def with_kubelet(image: str = "Talos", swap: int = 0, **configuration: Json) -> Evidence:
    return evidence(nodes=[node(image=image, swap=swap)], kubelets={"n-1": configuration})


LIMITED: dict[str, Json] = {"memorySwap": {"swapBehavior": "LimitedSwap"}}
PERIODS: dict[str, Json] = {"shutdownGracePeriod": "60s", "shutdownGracePeriodCriticalPods": "10s"}


@pytest.mark.parametrize(
    ("of", "claim_id"),
    [
        (
            evidence(static_pods=[static_pod("--node-monitor-grace-period=40s")]),
            "monitoring.grace-period-default",
        ),
        (evidence(static_pods=[static_pod("--node-eviction-rate", "1.0")]), "zones.recovery-resumes"),
        (evidence(static_pods=[static_pod(priority=None)]), "graceful-shutdown.critical-definition"),
        (
            evidence(tolerations=Tolerations({"NotReady": 0, "Unreachable": 300})),
            "eviction.default-tolerations-injected",
        ),
        (with_kubelet("Ubuntu 24.04", **PERIODS), "graceful-shutdown.inhibit-delay-conflict"),
        (
            with_kubelet(shutdownGracePeriod="20s", shutdownGracePeriodCriticalPods="20s"),
            "graceful-shutdown.validation",
        ),
        (
            with_kubelet(shutdownGracePeriod="20s", shutdownGracePeriodCriticalPods="0s"),
            "graceful-shutdown.activation",
        ),
        (with_kubelet(swap=1 << 30, **LIMITED), "swap.formula-no-reservation"),
    ],
)
def test_dangerous_value_is_named_with_claim_and_finding(of: Evidence, claim_id: str) -> None:
    (danger,) = dangers(of, CATALOGUE, VERSION)
    assert danger.claim == claim_id
    assert danger.statement == CATALOGUE[claim_id].statement
    assert danger.finding == CATALOGUE[claim_id].drift or f"# {danger.finding}" in FINDINGS


@pytest.mark.parametrize(
    "of",
    [
        evidence(static_pods=[static_pod("--node-monitor-grace-period=50s", "--node-eviction-rate=0.1")]),
        evidence(static_pods=[static_pod("--node-monitor-grace-period=soon")]),
        evidence(tolerations=Tolerations({"NotReady": None, "Unreachable": 30})),
        with_kubelet("Fedora", **PERIODS),
        with_kubelet(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s"),
        with_kubelet(**LIMITED),
        with_kubelet(swap=1 << 30, memorySwap={}),
        with_kubelet(swap=1 << 30, systemReserved={"memory": "1Gi"}, **LIMITED),
    ],
)
def test_other_values_give_no_warning(of: Evidence) -> None:
    assert warned(of) == []


@pytest.mark.parametrize("reads_settings", [False, True])
@pytest.mark.parametrize("reads_kubelets", [False, True])
def test_role_has_the_proxy_of_nodes_only_on_request(reads_settings: bool, reads_kubelets: bool) -> None:
    role = yaml.safe_load(cluster_role(reads_settings=reads_settings, reads_kubelets=reads_kubelets))
    verbs = {
        (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert (("nodes/proxy", "get") in verbs) == reads_kubelets
    assert (("pods", "create") in verbs) == reads_settings
    assert {verb for _resource, verb in verbs} <= {"get", "list", "watch", "create"}


def test_flag_and_value_may_be_two_arguments() -> None:
    argv = ["program", "--one", "1", "--two=2", "--three", "--four", ""]
    assert flags_of(argv) == {"one": "1", "two": "2", "three": "true", "four": "true"}
