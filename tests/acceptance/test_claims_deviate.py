"""Altered clusters on which claims of several areas deviate; other areas have their own files."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.handle import LabHandle
from tests.acceptance.alterations import (
    BUGS_TOO,
    a_boot_is_forgotten,
    a_cordon_is_a_condition,
    a_cordoned_node_is_not_ready,
    a_kubelet_is_refused,
    a_kubelet_stands_still_until_it_is_lost,
    a_pod_is_bound_to_a_cordoned_node,
    a_pod_is_bound_where_its_label_is_not,
    a_renewal_is_late,
    a_stranger_is_in_the_zone,
    combined,
    edits_are_undone,
    nobody_may_make_nodes,
    nobody_schedules,
    nobody_taints,
    nobody_taints_a_manual_node,
    pods_are_removed_by_force,
    pods_leave_after_recovery,
    pods_leave_at_once,
    somebody_else_says_unknown,
    somebody_else_writes_a_status,
    somebody_marks_the_pod,
    somebody_says_a_phase,
    somebody_uncordons,
    taints_come_back,
    taints_stay,
    the_pod_is_marked_lost,
)
from tests.acceptance.altered import Alteration, check_fall, shipped, unaltered
from tests.acceptance.conftest import PARTITION, Run
from tests.markers import falls

CORDON, LEASE = shipped("cordon/test_cordon.py"), shipped("heartbeat/test_lease.py")
REBOOT = shipped("naming/test_reboot.py")
NAMES, RESTRICTION = shipped("naming/test_names.py"), shipped("restriction/test_node_restriction.py")
FEW_NODES, JOINING = shipped("rate_limits/test_few_nodes.py"), shipped("registration/test_joining.py")
REFUSED = shipped("heartbeat/test_refused.py")
NOT_READY = shipped("eviction/test_not_ready.py")
DAEMONS, FLAGS = shipped("cordon/test_daemons.py"), shipped("eviction/test_admission_flags.py")
LABELS, EDITS = shipped("scheduling/test_labels.py"), shipped("registration/test_edits.py")
NEVER_REPORTED = shipped("manual_node/test_never_reported.py")
REFUSED_EVICTION = shipped("taints/test_refused_eviction.py")
ADDED_AGAIN = shipped("manual_node/test_added_again.py")
GATHERED, USER_TAINTS = shipped("info/test_node_info.py"), shipped("taints/test_user_taints.py")
RESTART = shipped("monitoring/test_controller_restart.py")
LEAVE, STAY = (PARTITION,), (shipped("partition/test_recovery.py"),)
DEFAULTS = (
    shipped("monitoring/test_defaults.py"),
    shipped("eviction/test_default.py"),
    *("-k", "api_server_default or node_monitor"),
)
DEFAULT_CLAIMS = (
    "eviction.default-tolerations-injected",
    "monitoring.grace-period-default",
    "monitoring.period-default",
)


TOGETHER = [
    pytest.param(
        combined(pods_leave_at_once, taints_come_back, a_stranger_is_in_the_zone, the_pod_is_marked_lost),
        LEAVE,
        {"monitoring.detection-time", "taints.unreachable-noexecute"},
        marks=[
            falls("eviction.toleration-seconds-override", "partition.terminating", "partition.unknown-state"),
            falls("taints.removed-on-recovery", "zones.metrics"),
        ],
        id="leaving",
    ),
    pytest.param(
        combined(a_kubelet_is_refused, somebody_says_a_phase),
        (GATHERED,),
        set(),
        marks=[
            falls(
                "conditions.node-phase",
                "conditions.times",
                "heartbeat.lease-recreated",
                "heartbeat.status-on-change",
            ),
            falls("info.gathered-by-kubelet"),
        ],
        id="gathered",
    ),
    pytest.param(
        pods_leave_after_recovery,
        STAY,
        set(),
        marks=falls("eviction.cancelled-on-recovery", "partition.heal-early"),
        id="recovered",
    ),
    pytest.param(
        a_kubelet_stands_still_until_it_is_lost,
        (REFUSED,),
        set(),
        marks=[
            falls(
                "heartbeat.lease-immediate-retries",
                "heartbeat.lease-independent",
                "heartbeat.status-alone-suffices",
            ),
            falls("heartbeat.status-retries"),
        ],
        id="refused",
    ),
    pytest.param(
        combined(a_renewal_is_late, somebody_else_writes_a_status),
        (LEASE,),
        set(),
        marks=falls("heartbeat.kubelet-is-writer", "heartbeat.lease-interval"),
        id="heartbeats",
    ),
]
"""Alterations of one run of a scenario, and claims that must not deviate there."""


@BUGS_TOO
@pytest.mark.parametrize(("alter", "scenario", "unharmed"), TOGETHER)
def test_altered_behaviour_makes_exactly_its_claims_deviate(
    lab: LabHandle,
    run: Run,
    alter: Alteration,
    scenario: tuple[str, ...],
    unharmed: set[str],
    claims: frozenset[str],
) -> None:
    ended = run(lab, alter, *scenario)

    check_fall(ended, claims, unharmed)
    assert ended.deviating() == claims


SINGLE = [
    pytest.param(
        a_pod_is_bound_to_a_cordoned_node,
        (CORDON,),
        {"cordon.not-a-condition"},
        marks=falls("cordon.blocks-new-pods"),
    ),
    pytest.param(
        a_cordon_is_a_condition, (CORDON,), {"cordon.blocks-new-pods"}, marks=falls("cordon.not-a-condition")
    ),
    pytest.param(a_cordoned_node_is_not_ready, (CORDON,), set(), marks=falls("cordon.not-a-condition")),
    pytest.param(
        a_boot_is_forgotten, (REBOOT,), {"monitoring.detection-time"}, marks=falls("naming.reboot-event")
    ),
    pytest.param(somebody_else_says_unknown, LEAVE, set(), marks=falls("monitoring.unknown-reason")),
    pytest.param(somebody_uncordons, (CORDON,), set(), marks=falls("cordon.display")),
    pytest.param(edits_are_undone, (EDITS,), set(), marks=falls("manual-node.edits-survive")),
    pytest.param(
        somebody_marks_the_pod,
        (NOT_READY,),
        {"taints.not-ready-noexecute"},
        marks=falls("conditions.pods-not-marked-on-kubelet-false"),
    ),
]


@BUGS_TOO
@pytest.mark.parametrize(("alter", "scenario", "unharmed"), SINGLE)
def test_claim_deviates_on_a_cluster_that_behaves_differently(
    lab: LabHandle,
    run: Run,
    alter: Alteration,
    scenario: tuple[str, ...],
    unharmed: set[str],
    claims: frozenset[str],
) -> None:
    check_fall(run(lab, alter, *scenario), claims, unharmed)


LEFT_ALONE = [
    pytest.param(
        combined(pods_are_removed_by_force, taints_stay),
        LEAVE,
        {"monitoring.detection-time", "eviction.toleration-seconds-override", "zones.metrics"},
        marks=falls("partition.terminating", "taints.removed-on-recovery"),
        id="partition",
    ),
    pytest.param(
        combined(nobody_taints, nobody_schedules),
        (CORDON,),
        {"cordon.not-a-condition"},
        marks=falls("cordon.blocks-new-pods", "cordon.taint"),
        id="cordon",
    ),
    pytest.param(
        combined(nobody_taints, nobody_schedules),
        (USER_TAINTS,),
        set(),
        marks=[
            falls("taints.scheduler-avoids", "taints.toleration-allows", "taints.user-noexecute-evicts"),
            falls("taints.user-noexecute-finite", "taints.user-noexecute-not-rate-limited"),
            falls("taints.user-noexecute-shortest"),
        ],
        id="taints",
    ),
    pytest.param(
        combined(nobody_schedules, a_pod_is_bound_where_its_label_is_not),
        (LABELS,),
        set(),
        marks=falls("manual-node.node-selector", "registration.label-change-new-pods"),
        id="labels",
    ),
    pytest.param(
        nobody_taints_a_manual_node,
        (NEVER_REPORTED,),
        set(),
        marks=[
            falls(
                "manual-node.delete-stops-checks",
                "manual-node.never-updated-unknown",
                "manual-node.not-eligible",
            ),
            falls("monitoring.startup-grace"),
        ],
        id="hand-made",
    ),
    pytest.param(
        nobody_taints,
        (ADDED_AGAIN, REFUSED_EVICTION),
        set(),
        marks=falls("manual-node.added-again", "taints.eviction-retried"),
        id="hand-made again",
    ),
    pytest.param(
        nobody_taints, (DAEMONS,), set(), marks=falls("cordon.daemonset-still-scheduled"), id="daemons"
    ),
    pytest.param(
        nobody_taints,
        (NOT_READY,),
        set(),
        marks=falls("daemonset.not-created-on-not-ready", "taints.not-ready-noexecute"),
        id="not ready",
    ),
]
"""Clusters whose controllers are stopped for all nodes."""


@BUGS_TOO
@pytest.mark.parametrize(("alter", "scenario", "unharmed"), LEFT_ALONE)
def test_claim_deviates_on_a_cluster_with_stopped_controllers(
    whole_lab: LabHandle,
    run: Run,
    alter: Alteration,
    scenario: tuple[str, ...],
    unharmed: set[str],
    claims: frozenset[str],
) -> None:
    check_fall(run(whole_lab, alter, *scenario), claims, unharmed)


@BUGS_TOO
@falls(*DEFAULT_CLAIMS)
def test_defaults_deviate_if_compiled_in_differently(altered_lab: LabHandle, run: Run) -> None:
    altered = run(altered_lab, unaltered, *DEFAULTS)

    assert altered.labels("monitoring.grace-period-default") == ["deviates"]
    assert altered.labels("monitoring.period-default") == ["deviates"]
    assert altered.labels("eviction.default-tolerations-injected") == ["conforms", "deviates"]


@BUGS_TOO
@falls("manual-node.create", "naming.dns-subdomain", "naming.unique")
def test_manual_node_claims_deviate_if_node_creation_is_forbidden(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    assert run(whole_lab, nobody_may_make_nodes, NAMES).deviating() >= claims


@BUGS_TOO
@falls("registration.kubeconfig-credentials", "registration.self-register-default")
def test_node_is_not_registered_if_its_creation_is_forbidden(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    assert run(whole_lab, nobody_may_make_nodes, JOINING).deviating() >= claims


@BUGS_TOO
@falls("eviction.admission-flags", "eviction.pod-eviction-timeout-flag", "registration.with-taints-format")
def test_flag_claims_deviate_if_executables_ignore_the_flags(
    altered_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    ended = run(altered_lab, unaltered, FLAGS, JOINING, RESTART, "-k", "flags or rejects")

    assert ended.deviating() >= claims


@BUGS_TOO
@falls("rate-limits.minimum-three")
def test_third_not_ready_node_stops_the_eviction(lab: LabHandle, run: Run, claims: frozenset[str]) -> None:
    assert run(lab, a_stranger_is_in_the_zone, FEW_NODES).deviating() >= claims


@BUGS_TOO
@falls("node-restriction.create-other-denied", "node-restriction.delete-denied", "node-restriction.labels")
@falls("node-restriction.lease-own-only", "node-restriction.modify-own-only")
@falls("node-restriction.read-own-only", "node-restriction.taints")
def test_node_restriction_claims_deviate_if_everything_is_allowed(
    altered_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    assert run(altered_lab, unaltered, RESTRICTION).deviating() >= claims
