"""Claims about shutdowns, and about containers whose node is away.

They conform on a machine as it is, and fall on one that behaves differently.
"""

from __future__ import annotations

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pod
from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.altered import SLACK_S, Alteration, Cluster, check_fall, shipped, unaltered
from tests.markers import falls
from tests.vm.altering import (
    BASE,
    ENVIRONMENT,
    KILL_WITNESSES,
    changed,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import pause

CONTAINERS, BY_FORCE = shipped("partition/test_containers.py"), shipped("partition/test_force_delete.py")
GRACEFUL, UNNOTICED = shipped("shutdown/test_graceful.py"), shipped("shutdown/test_power_off.py")
CALLED_OFF, BY_PRIORITY = shipped("shutdown/test_cancelled.py"), shipped("shutdown/test_by_priority.py")
CUT_OFF = shipped("shutdown/test_no_time_for_critical_pods.py")
BUS, PAST_LOGIND = shipped("shutdown/test_bus_restart.py"), shipped("shutdown/test_past_logind.py")
NOT_NOTIFIED, RESTARTED = shipped("shutdown/test_undetected.py"), shipped("shutdown/test_kubelet_restart.py")
LOST_STATUS = shipped("shutdown/test_lost_status.py")
LATER_DROP_IN = "/etc/systemd/logind.conf.d/nodeproof.conf"
NO_BUS = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
GATE = "GracefulNodeShutdownBasedOnPodPriority"
LOCK = "systemd-inhibit --what=shutdown --mode=delay"
OWN_LOCK = f"systemd-run --quiet --collect --unit=own-lock {LOCK} --who=operator sleep 900"


def containers_end_and_nobody_clears_up(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def somebody_says_not_ready(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.injected("power-off") or cluster.injected("shutdown"))
    conditions = cluster.node()["status"]["conditions"]
    altered = [{**entry, "status": "False"} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": altered}})


def containers_end_at_once(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    sh(cluster.lab, f"sleep 2; {KILL_WITNESSES}")


def containers_end_with_a_pod_that_is_deleted_by_force(cluster: Cluster) -> None:
    """Their kubelet would restart them, but does not notice."""
    cluster.until_injected("partition")
    cluster.until(lambda: cluster.pod() is None)
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def a_kubelet_does_not_come_back(cluster: Cluster) -> None:
    """Healing the shutdown starts it."""
    cluster.until_recorded(f'"restart the kubelet of {cluster.target}","step":"ended"')
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_tells_what_became_of_a_pod(cluster: Cluster) -> None:
    cluster.until_injected("shutdown")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    status = f"{pod(NAMESPACE, cluster.pod()['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"phase": "Failed"}})


def a_node_in_shutdown_renews_nothing(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    with kubelet_refused(cluster, "leases", group="coordination.k8s.io"):
        cluster.over.wait()


FALLS = [
    pytest.param(
        containers_end_and_nobody_clears_up,
        (CONTAINERS,),
        marks=falls("partition.containers-keep-running", "partition.deferred-delete"),
    ),
    pytest.param(
        containers_end_with_a_pod_that_is_deleted_by_force,
        (BY_FORCE,),
        marks=falls("partition.user-force-delete"),
    ),
    pytest.param(somebody_says_not_ready, (UNNOTICED,), marks=falls("non-graceful.not-detected")),
    pytest.param(somebody_says_not_ready, (PAST_LOGIND,), marks=falls("graceful-shutdown.undetected-paths")),
    pytest.param(
        a_kubelet_does_not_come_back, (RESTARTED,), marks=falls("graceful-shutdown.kubelet-restart-during")
    ),
    pytest.param(
        somebody_tells_what_became_of_a_pod,
        (LOST_STATUS,),
        marks=falls("graceful-shutdown.status-may-be-lost"),
    ),
    pytest.param(
        containers_end_at_once,
        (CALLED_OFF,),
        marks=falls("graceful-shutdown.example-30-10", "graceful-shutdown.pod-grace-is-minimum"),
    ),
    pytest.param(
        a_node_in_shutdown_renews_nothing, (CALLED_OFF,), marks=falls("heartbeat.continues-in-shutdown")
    ),
]


@pytest.mark.parametrize(("alter", "scenario"), FALLS)
def test_claim_deviates_on_a_machine_that_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: tuple[str, ...], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)


@falls("graceful-shutdown.detects", "graceful-shutdown.inhibitor-lock")
@falls("graceful-shutdown.normal-termination", "graceful-shutdown.pods-marked")
@falls("graceful-shutdown.ready-false", "graceful-shutdown.two-phases", "shutdown-metrics.survive-reboot")
def test_shutdown_claims_deviate_if_the_kubelet_has_no_bus(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, GRACEFUL)

    assert ended.deviating() == claims
    assert ended.status == 1


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            CALLED_OFF,
            marks=[
                falls(
                    "graceful-shutdown.admission-rejects", "graceful-shutdown.admission-rejects-tolerating"
                ),
                falls("graceful-shutdown.cancelled-pods-lost", "graceful-shutdown.cancelled-ready"),
                falls(
                    "graceful-shutdown.critical-definition",
                    "graceful-shutdown.event",
                    "graceful-shutdown.example-30-10",
                ),
                falls("graceful-shutdown.failed-pods-kept", "graceful-shutdown.kubectl-get"),
                falls("graceful-shutdown.pod-grace-is-minimum", "graceful-shutdown.scheduler-stops"),
                falls(
                    "heartbeat.continues-in-shutdown",
                    "priority-shutdown.no-config",
                    "shutdown-metrics.values",
                ),
            ],
            id="called-off",
        ),
        pytest.param(
            BY_PRIORITY,
            marks=[
                falls("priority-shutdown.empty-range-skipped", "priority-shutdown.example-one"),
                falls("priority-shutdown.example-two", "priority-shutdown.order-low-to-high"),
                falls("priority-shutdown.outside-range", "priority-shutdown.total-is-sum"),
            ],
            id="by-priority",
        ),
        pytest.param(
            CUT_OFF,
            marks=[
                falls("graceful-shutdown.activation", "graceful-shutdown.termination-starts-with-condition")
            ],
            id="cut-off",
        ),
        pytest.param(BUS, marks=falls("graceful-shutdown.dbus-restart"), id="bus"),
    ],
)
def test_cancelled_shutdown_claims_deviate_if_the_kubelet_has_no_bus(
    lab: LabHandle, run: Run, scenario: str, claims: frozenset[str]
) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, scenario)

    assert ended.deviating() == claims
    assert ended.status == 1


@falls("shutdown-metrics.exist")
def test_metrics_claims_deviate_without_their_feature_gate(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    with changed(lab, BASE, f's/}}$/, "featureGates": {{"{GATE}": false}}}}/'):
        ended = run(lab, unaltered, CALLED_OFF)

    assert claims <= ended.deviating()


@falls("graceful-shutdown.off-by-default")
def test_no_grace_period_claims_deviate_if_one_is_set(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    with changed(lab, BASE, 's/}$/, "shutdownGracePeriod": "20s"}/'):
        ended = run(lab, unaltered, NOT_NOTIFIED, "-k", "without_grace_period")

    assert ended.deviating() == claims


@falls("graceful-shutdown.inhibit-delay-override")
def test_delay_claims_deviate_if_the_kubelet_has_no_bus(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, NOT_NOTIFIED, "-k", "raises_logind_delay")

    assert claims <= ended.deviating()


@falls("graceful-shutdown.inhibit-delay-conflict")
def test_delay_claims_deviate_if_no_later_drop_in_lowers_it(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    try:
        with changed(lab, LATER_DROP_IN, "d"):
            ended = run(lab, unaltered, NOT_NOTIFIED, "-k", "raises_logind_delay")
    finally:
        sh(lab, "systemctl kill --signal=HUP systemd-logind.service")

    assert ended.deviating() == claims


@falls("graceful-shutdown.early-release")
def test_shutdown_claims_deviate_if_a_foreign_lock_delays_it(
    lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    sh(lab, OWN_LOCK)
    ended = run(lab, unaltered, GRACEFUL)

    assert ended.deviating() == claims
