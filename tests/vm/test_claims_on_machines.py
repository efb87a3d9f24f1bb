"""Claims about shutdowns, and containers whose node is away: they conform on a machine as it is, and fall on
one that does otherwise.
"""

from __future__ import annotations

import pytest

from nodeproof.cluster.resources import NAMESPACE, node, pod
from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import SLACK_S
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.vm.altering import (
    BASE,
    ENVIRONMENT,
    KILL_WITNESSES,
    Fall,
    changed,
    check_that_all_conform,
    check_that_fall,
    claims_of,
    deviating,
    kubelet_refused,
    sh,
)
from tests.vm.conftest import Run
from tests.waiting import pause

CONTAINERS, BY_FORCE = shipped("partition/test_containers.py"), shipped("partition/test_by_force.py")
GRACEFUL, UNNOTICED = shipped("shutdown/test_graceful.py"), shipped("shutdown/test_unnoticed.py")
CALLED_OFF, BY_PRIORITY = shipped("shutdown/test_called_off.py"), shipped("shutdown/test_by_priority.py")
CUT_OFF = shipped("shutdown/test_no_time_for_critical_pods.py")
BUS, PAST_LOGIND = shipped("shutdown/test_bus_restart.py"), shipped("shutdown/test_past_logind.py")
NOT_TOLD, RESTARTED = shipped("shutdown/test_not_told.py"), shipped("shutdown/test_kubelet_restart.py")
LOST_STATUS = shipped("shutdown/test_lost_status.py")
SHUTDOWN_CLAIMS = {
    *(f"graceful-shutdown.{name}" for name in ("detects", "inhibitor-lock", "ready-false")),
    *(f"graceful-shutdown.{name}" for name in ("pods-marked", "normal-termination", "two-phases")),
    "shutdown-metrics.survive-reboot",
}
IN_CALLED_OFF = {
    *(f"graceful-shutdown.{name}" for name in ("example-30-10", "pod-grace-is-minimum", "event")),
    *(f"graceful-shutdown.{name}" for name in ("critical-definition", "scheduler-stops", "kubectl-get")),
    *(f"graceful-shutdown.{name}" for name in ("admission-rejects", "admission-rejects-tolerating")),
    *(f"graceful-shutdown.{name}" for name in ("cancelled-ready", "cancelled-pods-lost")),
    *("graceful-shutdown.failed-pods-kept", "priority-shutdown.no-config"),
    *("shutdown-metrics.values", "heartbeat.continues-in-shutdown"),
}
TIMED = {f"graceful-shutdown.{name}" for name in ("example-30-10", "pod-grace-is-minimum")}
IN_BY_PRIORITY = {
    *(f"priority-shutdown.{name}" for name in ("example-one", "example-two", "order-low-to-high")),
    *(f"priority-shutdown.{name}" for name in ("empty-range-skipped", "outside-range", "total-is-sum")),
}
IN_CUT_OFF = {f"graceful-shutdown.{name}" for name in ("activation", "termination-starts-with-condition")}
IN_BUS = {"graceful-shutdown.dbus-restart"}
IN_DELAY = {f"graceful-shutdown.inhibit-delay-{name}" for name in ("override", "conflict")}
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
    said = [{**entry, "status": "False"} if entry["type"] == "Ready" else entry for entry in conditions]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": said}})


def containers_end_at_once(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    sh(cluster.lab, f"sleep 2; {KILL_WITNESSES}")


def containers_end_with_a_pod_that_is_deleted_by_force(cluster: Cluster) -> None:
    """Their kubelet would start them again: it is not told."""
    cluster.until_injected("partition")
    cluster.until(lambda: cluster.pod() is None)
    sh(cluster.lab, f"systemctl stop kubelet && {KILL_WITNESSES}")
    cluster.over.wait()
    sh(cluster.lab, "systemctl start kubelet")


def a_kubelet_does_not_come_back(cluster: Cluster) -> None:
    """What undoes the shutdown starts it."""
    cluster.until_recorded(f'"restart the kubelet of {cluster.target}","step":"ended"')
    sh(cluster.lab, "systemctl stop kubelet")


def somebody_tells_what_became_of_a_pod(cluster: Cluster) -> None:
    cluster.until_injected("shutdown")
    # What comes within the slack may have come before.
    pause(SLACK_S)
    status = f"{pod(NAMESPACE, cluster.pod()['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"phase": "Failed"}})


def a_node_in_shutdown_renews_nothing(cluster: Cluster) -> None:
    cluster.until_injected("called-off-shutdown")
    with kubelet_refused(cluster, "leases", group="coordination.k8s.io"):
        cluster.over.wait()


FALLS: list[Fall] = [
    (
        ("partition.containers-keep-running", "partition.deferred-delete"),
        containers_end_and_nobody_clears_up,
        (CONTAINERS,),
    ),
    (("partition.user-force-delete",), containers_end_with_a_pod_that_is_deleted_by_force, (BY_FORCE,)),
    (("non-graceful.not-detected",), somebody_says_not_ready, (UNNOTICED,)),
    (("graceful-shutdown.undetected-paths",), somebody_says_not_ready, (PAST_LOGIND,)),
    (("graceful-shutdown.kubelet-restart-during",), a_kubelet_does_not_come_back, (RESTARTED,)),
    (("graceful-shutdown.status-may-be-lost",), somebody_tells_what_became_of_a_pod, (LOST_STATUS,)),
    (tuple(sorted(TIMED)), containers_end_at_once, (CALLED_OFF,)),
    (("heartbeat.continues-in-shutdown",), a_node_in_shutdown_renews_nothing, (CALLED_OFF,)),
]
FALL = {
    *(claims_of(FALLS) | SHUTDOWN_CLAIMS | IN_CALLED_OFF | IN_BY_PRIORITY | IN_CUT_OFF | IN_BUS | IN_DELAY),
    *("shutdown-metrics.exist", "graceful-shutdown.early-release", "graceful-shutdown.off-by-default"),
}
"""Every claim that falls here."""


@pytest.mark.parametrize(
    "scenario",
    [CONTAINERS, GRACEFUL, UNNOTICED, CALLED_OFF, NOT_TOLD],
    ids=["containers", "graceful", "unnoticed", "called-off", "not-told"],
)
def test_the_claims_of_a_scenario_conform(lab: Lab, run: Run, scenario: str) -> None:
    check_that_all_conform(run(lab, unaltered, scenario))


@pytest.mark.parametrize(("claims", "alter", "scenario"), FALLS)
def test_a_claim_falls_on_a_machine_that_does_otherwise(
    lab: Lab, run: Run, claims: tuple[str, ...], alter: Alteration, scenario: tuple[str, ...]
) -> None:
    check_that_fall(run(lab, alter, *scenario), claims)


@pytest.mark.falls(*sorted(SHUTDOWN_CLAIMS))
def test_a_kubelet_that_hears_nothing_of_shutdowns(lab: Lab, run: Run, claims: set[str]) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, GRACEFUL)

    assert deviating(ended) == claims
    assert ended.status == 1


@pytest.mark.parametrize(
    ("scenario", "claims"),
    [(CALLED_OFF, IN_CALLED_OFF), (BY_PRIORITY, IN_BY_PRIORITY), (CUT_OFF, IN_CUT_OFF), (BUS, IN_BUS)],
    ids=["called-off", "by-priority", "cut-off", "bus"],
)
def test_a_kubelet_that_hears_nothing_of_a_shutdown_that_is_called_off(
    lab: Lab, run: Run, scenario: str, claims: set[str]
) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, scenario)

    assert deviating(ended) == claims
    assert ended.status == 1


@pytest.mark.falls("shutdown-metrics.exist")
def test_a_kubelet_without_the_gate_for_metrics(lab: Lab, run: Run, claims: set[str]) -> None:
    with changed(lab, BASE, f's/}}$/, "featureGates": {{"{GATE}": false}}}}/'):
        ended = run(lab, unaltered, CALLED_OFF)

    assert claims <= deviating(ended)


@pytest.mark.falls("graceful-shutdown.off-by-default")
def test_a_kubelet_that_was_given_time_is_told(lab: Lab, run: Run, claims: set[str]) -> None:
    with changed(lab, BASE, 's/}$/, "shutdownGracePeriod": "20s"}/'):
        ended = run(lab, unaltered, NOT_TOLD, "-k", "nobody_gave_time")

    assert deviating(ended) == claims


@pytest.mark.falls("graceful-shutdown.inhibit-delay-override")
def test_a_kubelet_without_a_bus_raises_no_delay(lab: Lab, run: Run, claims: set[str]) -> None:
    with changed(lab, ENVIRONMENT, f"$a{NO_BUS}"):
        ended = run(lab, unaltered, NOT_TOLD, "-k", "raises_the_delay")

    assert claims <= deviating(ended)


@pytest.mark.falls("graceful-shutdown.inhibit-delay-conflict")
def test_a_delay_that_no_later_drop_in_lowers(lab: Lab, run: Run, claims: set[str]) -> None:
    try:
        with changed(lab, LATER_DROP_IN, "d"):
            ended = run(lab, unaltered, NOT_TOLD, "-k", "raises_the_delay")
    finally:
        sh(lab, "systemctl kill --signal=HUP systemd-logind.service")

    assert deviating(ended) == claims


@pytest.mark.falls("graceful-shutdown.early-release")
def test_a_machine_that_others_hold_up_is_not_off_early(lab: Lab, run: Run, claims: set[str]) -> None:
    sh(lab, OWN_LOCK)
    ended = run(lab, unaltered, GRACEFUL)

    assert deviating(ended) == claims
