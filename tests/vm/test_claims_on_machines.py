"""Claims about machines: they conform on machines as they are, and fall on those that behave differently."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.alterations import combined
from tests.acceptance.altered import Alteration, Cluster, check_fall, shipped, unaltered
from tests.markers import falls
from tests.vm import altering
from tests.vm.conftest import Run

CONTAINERS, BY_FORCE = shipped("partition/test_containers.py"), shipped("partition/test_force_delete.py")
GRACEFUL, UNNOTICED = shipped("shutdown/test_graceful.py"), shipped("shutdown/test_power_off.py")
CALLED_OFF, BY_PRIORITY = shipped("shutdown/test_cancelled.py"), shipped("shutdown/test_by_priority.py")
CUT_OFF = shipped("shutdown/test_no_time_for_critical_pods.py")
BUS, PAST_LOGIND = shipped("shutdown/test_bus_restart.py"), shipped("shutdown/test_past_logind.py")
NOT_NOTIFIED, RESTARTED = shipped("shutdown/test_undetected.py"), shipped("shutdown/test_kubelet_restart.py")
LOST_STATUS, UNMOUNT = shipped("shutdown/test_lost_status.py"), shipped("shutdown/test_unmount.py")
DEAD, RUN_ON = shipped("nongraceful/test_disks.py"), shipped("nongraceful/test_running_machines.py")
STOPPED = shipped("heartbeat/test_stopped_kubelet.py")
MACHINE, NETWORK = shipped("info/test_machine.py"), shipped("conditions/test_network.py")
RUNTIME, PRESSURE = shipped("conditions/test_runtime.py"), shipped("conditions/test_pressure.py")
DELETED, OLD_CLOCK = shipped("deletion_gc/test_live_kubelet.py"), shipped("heartbeat/test_clock.py")
NUMA, CGROUP_V1 = shipped("topology/test_numa.py"), shipped("swap/test_cgroup_v1.py")
SWAP, NO_SWAP, PAGING = (shipped(f"swap/test_{name}.py") for name in ("swap", "no_swap", "paging"))
SHARE, ROOM = shipped("swap/test_limited.py"), shipped("scheduling/test_allocatable.py")


def row(alter: Callable[[Cluster], object], scenario: str, *claims: str) -> Any:
    """Return an alteration, the arguments that choose scenarios (`FILE -k NAME`), and what falls there."""
    return pytest.param(alter, scenario.split(), marks=falls(*claims))


MEANWHILE = [
    row(
        altering.containers_end_and_nobody_clears_up,
        CONTAINERS,
        *("partition.containers-keep-running", "partition.deferred-delete"),
    ),
    row(
        altering.containers_end_with_a_pod_that_is_deleted_by_force,
        BY_FORCE,
        "partition.user-force-delete",
    ),
    row(altering.somebody_says_not_ready, UNNOTICED, "non-graceful.not-detected"),
    row(altering.somebody_says_not_ready, PAST_LOGIND, "graceful-shutdown.undetected-paths"),
    row(altering.a_kubelet_does_not_come_back, RESTARTED, "graceful-shutdown.kubelet-restart-during"),
    row(altering.somebody_tells_what_became_of_a_pod, LOST_STATUS, "graceful-shutdown.status-may-be-lost"),
    row(
        altering.containers_end_at_once,
        CALLED_OFF,
        *("graceful-shutdown.example-30-10", "graceful-shutdown.pod-grace-is-minimum"),
    ),
    row(altering.a_node_in_shutdown_renews_nothing, CALLED_OFF, "heartbeat.continues-in-shutdown"),
    row(altering.somebody_wants_the_disks_back, DEAD, "non-graceful.volumeattachment-stays"),
    row(altering.somebody_plugs_a_disk_in_elsewhere, DEAD, "non-graceful.volume-not-attachable"),
    row(altering.nobody_may_detach, DEAD, "out-of-service.immediate-detach"),
    row(altering.disks_go_before_pods, DEAD, "out-of-service.two-phases"),
    row(altering.no_other_machine_takes_pods, DEAD, "out-of-service.recovers-elsewhere"),
    row(altering.somebody_empties_the_disk, DEAD, "out-of-service.recovers-elsewhere"),
    row(altering.somebody_writes_half_a_line, DEAD, "out-of-service.recovers-elsewhere"),
    row(
        altering.nobody_may_detach,
        f"{RUN_ON} -k leftover_out_of_service_taint",
        "out-of-service.detach-ignores-readiness",
    ),
    row(
        altering.what_is_out_of_service_stops,
        f"{RUN_ON} -k loses_its_disk",
        *("out-of-service.power-state-not-checked", "partition.two-writers"),
    ),
    row(altering.somebody_unmounts, UNMOUNT, "graceful-shutdown.waits-for-unmount"),
    row(
        altering.nobody_hears_of_the_runtime,
        f"{RUNTIME} -k with_stopped_runtime",
        *("conditions.ready-false", "runtime-restart.node-not-ready"),
    ),
    row(
        altering.nobody_leaves_a_node_alone_that_has_no_kubelet,
        STOPPED,
        *("eviction.all-pods", "eviction.static-pods-stay", "heartbeat.kubelet-stop"),
    ),
    row(altering.a_kubelet_ends_with_its_node, DELETED, "deletion-gc.live-kubelet-kills"),
    row(altering.somebody_says_unknown_of_a_node, OLD_CLOCK, "heartbeat.local-clock"),
    row(altering.somebody_listens, f"{RUNTIME} -k without_container_runtime", "components.on-node"),
    row(
        altering.a_kubelet_hears_of_no_policy, NUMA, *("topology.hints-align", "topology.policy-single-numa")
    ),
    row(altering.a_kubelet_aligns_unasked, NUMA, "topology.default-none"),
    row(altering.a_kubelet_takes_one_behaviour_for_another, CGROUP_V1, "swap.cgroup-v1-unsupported"),
    row(
        altering.everybody_may_swap,
        f"{SWAP} -k limited_swap",
        *("swap.critical-pods-none", "swap.limited-besteffort-guaranteed-zero"),
        *("swap.limited-burstable-only", "swap.limited-formula", "swap.no-request-no-swap", "swap.opt-out"),
    ),
    row(altering.everybody_may_swap, f"{PAGING} -k keeps_pods_off_swap", "swap.noswap"),
    row(
        altering.nobody_pages,
        f"{PAGING} -k beyond_memory_limit",
        *("swap.beyond-limit-memory", "swap.limited-others-can-swap", "swap-metrics.container"),
        *("swap-metrics.node", "swap-metrics.pod", "swap-metrics.summary"),
    ),
    row(
        combined(altering.everybody_may_swap, altering.nobody_hears_of_its_pods),
        SHARE,
        *("swap.formula-no-reservation", "swap.per-node", "swap.resize-infeasible"),
        "swap-metrics.container-limit",
    ),
    row(
        combined(altering.a_node_that_pages_reports_nothing, altering.everything_may_swap),
        NO_SWAP,
        *("swap.default-behavior", "swap.fail-on-false-starts", "swap.node-capacity-field"),
        "swap.secrets-on-disk",
    ),
    row(altering.nobody_hears_of_static_pods, f"{ROOM} -k counts", "scheduling.counts-kubelet-containers"),
    row(altering.somebody_counts_foreign_work, f"{ROOM} -k counts", "scheduling.ignores-foreign"),
]
BEFOREHAND = [
    row(
        altering.no_bus,
        GRACEFUL,
        *("graceful-shutdown.detects", "graceful-shutdown.inhibitor-lock", "graceful-shutdown.two-phases"),
        *("graceful-shutdown.normal-termination", "graceful-shutdown.pods-marked"),
        *("graceful-shutdown.ready-false", "shutdown-metrics.survive-reboot"),
    ),
    row(
        altering.no_bus,
        CALLED_OFF,
        *("graceful-shutdown.admission-rejects", "graceful-shutdown.admission-rejects-tolerating"),
        *("graceful-shutdown.cancelled-pods-lost", "graceful-shutdown.cancelled-ready"),
        *("graceful-shutdown.critical-definition", "graceful-shutdown.event"),
        *("graceful-shutdown.example-30-10", "graceful-shutdown.failed-pods-kept"),
        *("graceful-shutdown.kubectl-get", "graceful-shutdown.pod-grace-is-minimum"),
        *("graceful-shutdown.scheduler-stops", "heartbeat.continues-in-shutdown"),
        *("priority-shutdown.no-config", "shutdown-metrics.values"),
    ),
    row(
        altering.no_bus,
        BY_PRIORITY,
        *("priority-shutdown.empty-range-skipped", "priority-shutdown.example-one"),
        *("priority-shutdown.example-two", "priority-shutdown.order-low-to-high"),
        *("priority-shutdown.outside-range", "priority-shutdown.total-is-sum"),
    ),
    row(
        altering.no_bus,
        CUT_OFF,
        *("graceful-shutdown.activation", "graceful-shutdown.termination-starts-with-condition"),
    ),
    row(altering.no_bus, BUS, "graceful-shutdown.dbus-restart"),
    row(
        altering.a_grace_period,
        f"{NOT_NOTIFIED} -k without_grace_period",
        "graceful-shutdown.off-by-default",
    ),
    row(
        altering.no_later_drop_in,
        f"{NOT_NOTIFIED} -k raises_logind_delay",
        "graceful-shutdown.inhibit-delay-conflict",
    ),
    row(altering.a_foreign_lock, GRACEFUL, "graceful-shutdown.early-release"),
    row(
        altering.another_machine_reported,
        MACHINE,
        *("addresses.external-ip-absent", "addresses.hostname", "addresses.internal-ip"),
        *("addresses.internal-ip-only-inside", "capacity.fields", "capacity.updates-live"),
        *("conditions.ready-true-shape", "info.kernel-os-runtime", "info.kube-proxy-version"),
        *("info.kubelet-version", "info.machine-ids"),
    ),
    row(
        altering.another_pod_network,
        NETWORK,
        *("conditions.accepting-pods", "conditions.ready-false-cni", "registration.first-ready-fast"),
    ),
    row(
        altering.swap_tolerated, f"{SWAP} -k does_not_start", "swap.detected-at-start", "swap.fail-on-default"
    ),
    row(
        altering.no_node_status,
        f"{ROOM} -k allocatable_resources",
        *("capacity.allocatable-formula", "scheduling.reserve-for-daemons"),
    ),
    row(
        altering.no_node_status,
        PRESSURE,
        *("conditions.disk-pressure", "conditions.memory-pressure", "conditions.pid-pressure"),
        "conditions.pressure-damping",
    ),
]
BEFOREHAND_AMONG_OTHERS = [
    row(altering.no_gate, CALLED_OFF, "shutdown-metrics.exist"),
    row(
        altering.no_bus,
        f"{NOT_NOTIFIED} -k raises_logind_delay",
        "graceful-shutdown.inhibit-delay-override",
    ),
]
Altered = Callable[[Cluster], AbstractContextManager[None]]


@pytest.mark.parametrize(("alter", "scenario"), MEANWHILE)
def test_claims_deviate_if_a_component_behaves_differently(
    lab: LabHandle, run: Run, alter: Alteration, scenario: list[str], claims: frozenset[str]
) -> None:
    check_fall(run(lab, alter, *scenario), claims)


@pytest.mark.parametrize(("altered", "scenario"), BEFOREHAND)
def test_exactly_these_claims_deviate_on_an_altered_machine(
    lab: LabHandle, run: Run, tmp_path: Path, altered: Altered, scenario: list[str], claims: frozenset[str]
) -> None:
    with altered(Cluster(lab, tmp_path)):
        ended = run(lab, unaltered, *scenario)
    assert (ended.deviating(), ended.status) == (claims, 1)


@pytest.mark.parametrize(("altered", "scenario"), BEFOREHAND_AMONG_OTHERS)
def test_claims_deviate_among_others_on_an_altered_machine(
    lab: LabHandle, run: Run, tmp_path: Path, altered: Altered, scenario: list[str], claims: frozenset[str]
) -> None:
    with altered(Cluster(lab, tmp_path)):
        check_fall(run(lab, unaltered, *scenario), claims)
