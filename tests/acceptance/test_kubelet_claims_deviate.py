"""Scenarios about machines that join, with kubelets that ignore their settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.cluster import LEASE_NAMESPACE
from tests.acceptance.alterations import BUGS_TOO, combined, refused
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Deviate, in_place_of, started
from tests.markers import falls

Json = Any
FLAGS, ADDRESSES = shipped("registration/test_flags.py"), shipped("registration/test_addresses.py")
MACHINES, STATUS = shipped("naming/test_shared_name.py"), shipped("heartbeat/test_status.py")
RETRIES = shipped("registration/test_retries.py")
SETTINGS = tuple(
    shipped(f"{name}.py")
    for name in ("shutdown/test_periods", "shutdown/test_no_bus", "swap/test_settings", "topology/test_gate")
)
DESCRIBED, PERIOD = shipped("info/test_kubectl_describe.py"), shipped("monitoring/test_period.py")
SURELY_LATER_S, PAUSED_S = 2.0, 8.0
LATE_S = 20.0
"""Later (s) than an unaltered kubelet rejects a pod after its restart."""
DEAF = """#!/bin/sh
for flag; do
    shift
    case "$flag" in
    --hostname-override=detected-ip | --kubeconfig= | --cloud-provider=*) continue ;;
    --node-labels=*own* | --node-ip=10.77.251.* | --node-ip=127.* | --node-ip=169.*) continue ;;
    --config=*) sed -i '{otherwise}' "${{flag#*=}}" ;;
    esac
    set -- "$@" "$flag"
done
# failed to validate nodeIP, nodeIP can't be loopback address, nodeIP can't be a link-local unicast address,
# nodeIP can't be a multicast address, Kubelet version, Failed to start node shutdown manager: what it could
# say, and does not.
exec {real} "$@"
"""
"""A kubelet that ignores its node's name, labels, address and provider."""
MUTE = """#!/bin/sh
case " $* " in *" describe "*) exec {real} "$@" --help ;; esac
exec {real} "$@"
"""
OTHERWISE = "; ".join(
    (
        's/"registerNode": false/"registerNode": true/',
        's/"nodeStatusReportFrequency": "24s"/"nodeStatusReportFrequency": "5s"/',
        's/"nodeLeaseDurationSeconds": 4,/"nodeLeaseDurationSeconds": 40,/',
        "s/shutdownGracePeriodByPodPriority/periodsThatNobodyKnows/",
        's/"shutdownGracePeriodCriticalPods": "21s"/"shutdownGracePeriodCriticalPods": "2s"/',
        's/"ShutdownGracePeriodCriticalPods": "22s"/"shutdownGracePeriodCriticalPods": "22s"/',
        's/"GracefulNodeShutdown": false/"GracefulNodeShutdown": true/',
        's/"shutdownGracePeriod": "23s"/"shutdownGracePeriod": "0s"/',
        "s/UnlimitedSwap/NoSwap/",
        's/"NodeSwap": false/"NodeSwap": true/',
        's/"TopologyManager": true/"NodeSwap": true/',
        's/"failCgroupV1": null/"failCgroupV1": false/',
    )
)


@pytest.fixture(scope="module")
def deaf_lab(components: Components, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHandle]:
    scripts = {
        "hollow-kubelet": DEAF.format(real=components.path("hollow-kubelet"), otherwise=OTHERWISE),
        "kubectl": MUTE.format(real=components.path("kubectl")),
    }
    altered = in_place_of(components, scripts, tmp_path_factory.mktemp("deaf"))
    # It is judged as the version it reports.
    with started(replace(altered, hollow_from_tree=True), "fast") as lab:
        yield lab


def fetch(cluster: Cluster, path: str) -> Json:
    try:
        return cluster.lab.cluster.api.get(path)
    except ApiError as error:
        assert error.status == 404
        return {}


def pods_go_with_a_label(cluster: Cluster) -> None:
    """On the joining node, as soon as the requested label is removed, and another one after a restart."""

    def has_label() -> bool:
        labels = fetch(cluster, node("labelled")).get("metadata", {}).get("labels", {})
        return any(key.endswith("/kept") for key in labels)

    cluster.until(has_label)
    cluster.until(lambda: not has_label())
    api, containers = cluster.lab.cluster.api, [{"name": "another", "image": "another"}]
    for pod in api.get(pods(NAMESPACE))["items"]:
        if pod["spec"].get("nodeName") == "labelled":
            api.delete(f"{pods(NAMESPACE)}/{pod['metadata']['name']}", 1)
            metadata = {"name": "another", "labels": pod["metadata"]["labels"]}
    cluster.until_recorded('"restart the kubelet of labelled')
    cluster.over.wait(LATE_S)
    api.create(
        pods(NAMESPACE), {"metadata": metadata, "spec": {"nodeName": "labelled", "containers": containers}}
    )


def one_may_not_report(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    own = {"name": "own", "expression": "request.userInfo.username == 'system:node:silent'"}
    with refused(cluster, [rule], [own]):
        cluster.over.wait()


def somebody_uncordons_what_a_machine_inherits_and_deletes_a_lease(cluster: Cluster) -> None:
    def machine_id() -> str:
        return str(fetch(cluster, node("shared")).get("status", {}).get("nodeInfo", {}).get("machineID", ""))

    cluster.until(machine_id)
    for what in ("uncordons", "deletes"):
        before = machine_id()
        cluster.until(lambda before=before: machine_id() != before)  # type: ignore[misc]
        cluster.over.wait(SURELY_LATER_S)
        if what == "uncordons":
            cluster.lab.cluster.api.patch(node("shared"), {"spec": {"unschedulable": None}})
            continue
        cluster.lab.cluster.api.delete(lease("shared"))


def an_unused_address_is_reported(cluster: Cluster) -> None:
    cluster.until(lambda: fetch(cluster, node("flag-ip")))
    cluster.over.wait(SURELY_LATER_S)
    addresses = [{"type": "InternalIP", "address": "10.77.251.1"}]
    cluster.lab.cluster.api.patch(f"{node('given')}/status", {"status": {"addresses": addresses}})


def a_manager_stands_still(cluster: Cluster) -> None:
    """For most of the time in which its observations are counted."""
    cluster.until_recorded("update_all_nodes_health_duration_seconds_count")
    cluster.pause("kube-controller-manager")
    cluster.over.wait(PAUSED_S)
    cluster.go_on()


def nothing(cluster: Cluster) -> None:
    """Alter nothing else: the kubelets of the lab are altered."""
    del cluster


def a_kubelet_stands_still_between_its_tries(cluster: Cluster) -> None:
    """Once while it can reach nothing, and again as soon as it can."""
    for text, later_s in (("restart the kubelet of retrying", SURELY_LATER_S), ("run nft delete", 0.0)):
        cluster.until_recorded(text)
        # After the restart it is another process.
        cluster.over.wait(later_s)
        cluster.pause("kubelet-retrying")
        cluster.over.wait(2 * PAUSED_S)
        cluster.go_on()


def leases_are_heavy(cluster: Cluster) -> None:
    for name in ("quiet", "chatty"):
        cluster.until(lambda name=name: fetch(cluster, lease(name)))  # type: ignore[misc]
        cluster.lab.cluster.api.patch(lease(name), {"metadata": {"annotations": {"heavy": "x" * 5000}}})


def lease(name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{name}"


@BUGS_TOO
@falls("manual-node.becomes-healthy")
@falls("registration.cloud-provider-flag", "registration.cloud-uninitialized-taint")
@falls("registration.default-label-keys-reconciled", "registration.kubeconfig-required")
@falls("registration.label-change-kubelet-restart", "registration.label-change-running-pods")
@falls("registration.node-labels")
@falls("registration.node-labels-restart-ignored", "registration.node-labels-validation")
@falls("registration.register-node-false")
def test_flag_claims_deviate(deaf_lab: LabHandle, deviate: Deviate) -> None:
    deviate(deaf_lab, combined(pods_go_with_a_label, one_may_not_report), FLAGS)


@BUGS_TOO
@falls("addresses.hostname-override", "addresses.refresh")
@falls("registration.node-ip", "registration.node-ip-default", "registration.node-ip-dual-stack")
@falls("registration.node-ip-not-on-host")
def test_address_claims_deviate_if_a_false_address_is_reported(deaf_lab: LabHandle, deviate: Deviate) -> None:
    deviate(deaf_lab, an_unused_address_is_reported, ADDRESSES)


@BUGS_TOO
@falls("naming.replacement-inherits-state", "naming.second-kubelet-adopts")
def test_machine_claims_deviate(deaf_lab: LabHandle, deviate: Deviate) -> None:
    deviate(deaf_lab, somebody_uncordons_what_a_machine_inherits_and_deletes_a_lease, MACHINES)


@BUGS_TOO
@falls("heartbeat.lease-backoff", "registration.retry-backoff")
def test_retry_claims_deviate_if_the_kubelet_freezes(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, a_kubelet_stands_still_between_its_tries, RETRIES)


@BUGS_TOO
@falls("graceful-shutdown.field-spelling", "graceful-shutdown.gate", "graceful-shutdown.needs-systemd")
@falls("graceful-shutdown.validation")
@falls("priority-shutdown.exclusive-with-classic", "priority-shutdown.gate")
@falls("priority-shutdown.kubelet-config-name")
@falls("swap.cgroup-v1-kubelet-refuses", "swap.config-validation", "swap.gate", "swap.unlimited")
@falls("topology.gate")
def test_refused_setting_claims_deviate(deaf_lab: LabHandle, deviate: Deviate) -> None:
    deviate(deaf_lab, nothing, *SETTINGS)


@BUGS_TOO
@falls("heartbeat.lease-lightweight", "heartbeat.lease-reduces-load", "heartbeat.request-timeout")
@falls("heartbeat.status-longer-than-grace", "heartbeat.status-report-interval", "heartbeat.two-forms")
@falls("info.describe-sections", "monitoring.period-configurable", "registration.status-update-frequency")
def test_idle_kubelet_claims_deviate(deaf_lab: LabHandle, deviate: Deviate) -> None:
    alter, chosen = (
        combined(leases_are_heavy, a_manager_stands_still),
        "idle_kubelet or describe or per_configured_period",
    )
    deviate(deaf_lab, alter, STATUS, DESCRIBED, PERIOD, "-k", chosen)
