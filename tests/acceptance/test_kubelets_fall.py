"""Scenarios about machines that join, with kubelets that do not care what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import LEASE_NAMESPACE
from tests.acceptance.alterations import BUGS_TOO, each, refused
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run, in_place_of, started
from tests.acceptance.test_nodes_fall import deviating

Json = Any
FLAGS, ADDRESSES = shipped("registration/test_flags.py"), shipped("registration/test_addresses.py")
MACHINES, STATUS = shipped("naming/test_machines.py"), shipped("heartbeat/test_status.py")
RETRIES = shipped("registration/test_retries.py")
SETTINGS = tuple(
    shipped(f"{name}.py")
    for name in ("shutdown/test_periods", "shutdown/test_no_bus", "swap/test_settings", "topology/test_gate")
)
DESCRIBED, PERIOD = shipped("info/test_described.py"), shipped("monitoring/test_period.py")
SURELY_LATER_S, PAUSED_S = 2.0, 8.0
IN_FLAGS = {
    *(f"registration.{name}" for name in ("node-labels", "node-labels-restart-ignored")),
    *(f"registration.{name}" for name in ("default-label-keys-reconciled", "node-labels-validation")),
    *(f"registration.{name}" for name in ("label-change-running-pods", "register-node-false")),
    *(f"registration.{name}" for name in ("kubeconfig-required", "cloud-uninitialized-taint")),
    "registration.cloud-provider-flag",
    "manual-node.becomes-healthy",
}
IN_ADDRESSES = {
    "addresses.hostname-override",
    "addresses.refresh",
    *(f"registration.node-ip{name}" for name in ("", "-dual-stack", "-default", "-not-on-host")),
}
IN_MACHINES = {f"naming.{name}" for name in ("replacement-inherits-state", "second-kubelet-adopts")}
IN_STATUS = {
    *(f"heartbeat.{name}" for name in ("two-forms", "status-report-interval", "status-longer-than-grace")),
    *(f"heartbeat.{name}" for name in ("lease-lightweight", "lease-reduces-load", "request-timeout")),
    "registration.status-update-frequency",
    "info.describe-sections",
    "monitoring.period-configurable",
}
IN_RETRIES = {"registration.retry-backoff", "heartbeat.lease-backoff"}
IN_SETTINGS = {
    "priority-shutdown.kubelet-config-name",
    "priority-shutdown.gate",
    "priority-shutdown.exclusive-with-classic",
    *(f"graceful-shutdown.{name}" for name in ("validation", "gate", "field-spelling", "needs-systemd")),
    *(f"swap.{name}" for name in ("config-validation", "gate", "unlimited", "cgroup-v1-kubelet-refuses")),
    "topology.gate",
}
IN_TOLD = IN_FLAGS | IN_ADDRESSES | IN_MACHINES | IN_STATUS | IN_RETRIES | IN_SETTINGS
DEAF = """#!/bin/sh
for flag; do
    shift
    case "$flag" in
    --hostname-override=found | --kubeconfig= | --cloud-provider=*) continue ;;
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
"""A kubelet that does not hear how its node is called, labelled and addressed, and whose it is to be."""
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
def deaf_lab(components: Components, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    scripts = {
        "hollow-kubelet": DEAF.format(real=components.path("hollow-kubelet"), otherwise=OTHERWISE),
        "kubectl": MUTE.format(real=components.path("kubectl")),
    }
    altered = in_place_of(components, scripts, tmp_path_factory.mktemp("deaf"))
    # It is judged as what it pretends to be.
    with started(replace(altered, hollow_from_tree=True), "fast") as lab:
        yield lab


def found(cluster: Cluster, path: str) -> Json:
    try:
        return cluster.lab.cluster.api.get(path)
    except ApiError as error:
        assert error.status == 404
        return {}


def pods_go_with_a_label(cluster: Cluster) -> None:
    """Of the node that joins, as soon as the label that they asked for is taken from it."""

    def has_label() -> bool:
        labels = found(cluster, node("labelled")).get("metadata", {}).get("labels", {})
        return any(key.endswith("/kept") for key in labels)

    cluster.until(has_label)
    cluster.until(lambda: not has_label())
    for each_pod in cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]:
        if each_pod["spec"].get("nodeName") == "labelled":
            cluster.lab.cluster.api.delete(f"{pods(NAMESPACE)}/{each_pod['metadata']['name']}", 1)


def one_may_not_report(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"]}
    own = {"name": "own", "expression": "request.userInfo.username == 'system:node:silent'"}
    with refused(cluster, [rule], [own]):
        cluster.over.wait()


def somebody_uncordons_what_a_machine_inherits_and_deletes_a_lease(cluster: Cluster) -> None:
    def machine_id() -> str:
        return str(found(cluster, node("shared")).get("status", {}).get("nodeInfo", {}).get("machineID", ""))

    cluster.until(machine_id)
    for what in ("uncordons", "deletes"):
        before = machine_id()
        cluster.until(lambda before=before: machine_id() != before)  # type: ignore[misc]
        cluster.over.wait(SURELY_LATER_S)
        if what == "uncordons":
            cluster.lab.cluster.api.patch(node("shared"), {"spec": {"unschedulable": None}})
            continue
        cluster.lab.cluster.api.delete(lease("shared"))


def an_address_is_told_that_nobody_has(cluster: Cluster) -> None:
    cluster.until(lambda: found(cluster, node("given")))
    cluster.over.wait(SURELY_LATER_S)
    told = [{"type": "InternalIP", "address": "10.77.251.1"}]
    cluster.lab.cluster.api.patch(f"{node('given')}/status", {"status": {"addresses": told}})


def a_manager_stands_still(cluster: Cluster) -> None:
    """For most of the time in which its looks are counted."""
    cluster.until_recorded("update_all_nodes_health_duration_seconds_count")
    cluster.pause("kube-controller-manager")
    cluster.over.wait(PAUSED_S)
    cluster.go_on()


def nothing(cluster: Cluster) -> None:
    """What is altered are the lab's kubelets."""
    del cluster


def a_kubelet_stands_still_between_its_tries(cluster: Cluster) -> None:
    """Once while it may reach nobody, and once more as soon as it may."""
    for text, later_s in (("restart the kubelet of retrying", SURELY_LATER_S), ("run nft delete", 0.0)):
        cluster.until_recorded(text)
        # What restarts is another process in the end.
        cluster.over.wait(later_s)
        cluster.pause("kubelet-retrying")
        cluster.over.wait(2 * PAUSED_S)
        cluster.go_on()


def leases_are_heavy(cluster: Cluster) -> None:
    for name in ("quiet", "chatty"):
        cluster.until(lambda name=name: found(cluster, lease(name)))  # type: ignore[misc]
        cluster.lab.cluster.api.patch(lease(name), {"metadata": {"annotations": {"heavy": "x" * 5000}}})


def lease(name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{name}"


@BUGS_TOO
def test_claims_about_flags_fall(deaf_lab: Lab, run: Run) -> None:
    assert deviating(run, deaf_lab, each(pods_go_with_a_label, one_may_not_report), FLAGS) == IN_FLAGS


@BUGS_TOO
def test_claims_about_addresses_fall(deaf_lab: Lab, run: Run) -> None:
    assert deviating(run, deaf_lab, an_address_is_told_that_nobody_has, ADDRESSES) == IN_ADDRESSES


@BUGS_TOO
def test_claims_about_a_nodes_machines_fall(deaf_lab: Lab, run: Run) -> None:
    alter = somebody_uncordons_what_a_machine_inherits_and_deletes_a_lease
    assert deviating(run, deaf_lab, alter, MACHINES) == IN_MACHINES


@BUGS_TOO
def test_claims_about_a_kubelet_that_is_refused_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, a_kubelet_stands_still_between_its_tries, RETRIES) == IN_RETRIES


@BUGS_TOO
def test_claims_about_settings_that_are_refused_fall(deaf_lab: Lab, run: Run) -> None:
    assert deviating(run, deaf_lab, nothing, *SETTINGS) == IN_SETTINGS


@BUGS_TOO
def test_claims_about_a_quiet_kubelet_fall(deaf_lab: Lab, run: Run) -> None:
    alter, chosen = (
        each(leases_are_heavy, a_manager_stands_still),
        "nothing_new or describes or once_a_period",
    )
    assert deviating(run, deaf_lab, alter, STATUS, DESCRIBED, PERIOD, "-k", chosen) == IN_STATUS
