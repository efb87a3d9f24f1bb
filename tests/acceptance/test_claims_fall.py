"""Altered clusters on which claims of several areas deviate; the other areas have files of their own."""

from __future__ import annotations

import pytest

from nodeproof.labs.client.lab import Lab
from tests.acceptance.alterations import (
    BUGS_TOO,
    a_boot_is_forgotten,
    a_cordon_is_a_condition,
    a_cordoned_node_is_not_ready,
    a_kubelet_is_refused,
    a_kubelet_stands_still_until_it_is_lost,
    a_pod_is_bound_to_a_cordoned_node,
    a_pod_is_bound_where_its_label_is_not,
    a_pod_is_told_lost,
    a_renewal_is_late,
    a_stranger_is_in_the_zone,
    each,
    edits_are_undone,
    nobody_may_make_nodes,
    nobody_schedules,
    nobody_taints,
    nobody_taints_a_hand_made_node,
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
)
from tests.acceptance.altered import Alteration, shipped, unaltered
from tests.acceptance.conftest import PARTITION, Run

CORDON, LEASE = shipped("cordon/test_cordon.py"), shipped("heartbeat/test_lease.py")
REBOOT = shipped("naming/test_reboot.py")
NAMES, RESTRICTION = shipped("naming/test_names.py"), shipped("restriction/test_node_restriction.py")
IN_NAMES = ("naming.dns-subdomain", "naming.unique", "manual-node.create")
IN_RESTRICTION = tuple(
    f"node-restriction.{name}"
    for name in (
        *("modify-own-only", "create-other-denied", "delete-denied", "labels", "taints"),
        *("lease-own-only", "read-own-only"),
    )
)
FAST_TOO = pytest.mark.night("the run of all of `fast` has the same scenarios (test_conformance.py)")
FEW_NODES, JOINING = shipped("rate_limits/test_few_nodes.py"), shipped("registration/test_joining.py")
REFUSED = shipped("heartbeat/test_refused.py")
NOT_READY = shipped("eviction/test_not_ready.py")
DAEMONS, FLAGS = shipped("cordon/test_daemons.py"), shipped("eviction/test_admission_flags.py")
LABELS, EDITS = shipped("scheduling/test_labels.py"), shipped("registration/test_edits.py")
NEVER_REPORTED = shipped("manual_node/test_never_reported.py")
GATHERED, USER_TAINTS = shipped("info/test_gathered.py"), shipped("taints/test_user_taints.py")
IN_JOINING = ("self-register-default", "with-taints", "kubeconfig-credentials")
RESTART = shipped("monitoring/test_controller_restart.py")
IN_FLAGS = (
    "eviction.admission-flags",
    "registration.with-taints-format",
    "eviction.pod-eviction-timeout-flag",
)
LEAVE, STAY = (PARTITION,), (shipped("partition/test_recovery.py"),)
DEFAULTS = (
    shipped("monitoring/test_defaults.py"),
    shipped("eviction/test_default.py"),
    *("-k", "without_flags"),
)
IN_DEFAULTS = (
    "monitoring.grace-period-default",
    "monitoring.period-default",
    "eviction.default-tolerations-injected",
)


TOGETHER = {
    "leaving": (
        each(pods_leave_at_once, taints_come_back, a_stranger_is_in_the_zone, a_pod_is_told_lost),
        LEAVE,
        (
            "eviction.toleration-seconds-override",
            "partition.terminating",
            "partition.unknown-state",
            "taints.removed-on-recovery",
            "zones.metrics",
        ),
        ("monitoring.detection-time", "taints.unreachable-noexecute"),
    ),
    "gathered": (
        each(a_kubelet_is_refused, somebody_says_a_phase),
        (GATHERED,),
        (
            "info.gathered-by-kubelet",
            "heartbeat.status-on-change",
            "heartbeat.lease-recreated",
            "conditions.times",
            "conditions.node-phase",
        ),
        (),
    ),
    "recovered": (
        pods_leave_after_recovery,
        STAY,
        ("eviction.cancelled-on-recovery", "partition.heal-early"),
        (),
    ),
    "refused": (
        a_kubelet_stands_still_until_it_is_lost,
        (REFUSED,),
        (
            "heartbeat.lease-independent",
            "heartbeat.status-retries",
            "heartbeat.status-alone-suffices",
            "heartbeat.lease-immediate-retries",
        ),
        (),
    ),
    "heartbeats": (
        each(a_renewal_is_late, somebody_else_writes_a_status),
        (LEASE,),
        ("heartbeat.lease-interval", "heartbeat.kubelet-is-writer"),
        (),
    ),
}
"""What is altered in one run of a scenario, the claims that fall by that, and some that must not."""


@BUGS_TOO
@pytest.mark.parametrize(("alter", "scenario", "fall", "unharmed"), TOGETHER.values(), ids=TOGETHER)
def test_each_claim_falls_by_what_is_altered_of_it(
    lab: Lab,
    run: Run,
    alter: Alteration,
    scenario: tuple[str, ...],
    fall: tuple[str, ...],
    unharmed: tuple[str, ...],
) -> None:
    ended = run(lab, alter, *scenario)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == set(fall)
    assert [set(ended.labels(claim)) for claim in unharmed] == [{"conforms"}] * len(unharmed)
    assert ended.status == 1


@BUGS_TOO
@pytest.mark.parametrize(
    ("claim", "alter", "scenario", "unharmed"),
    [
        ("cordon.blocks-new-pods", a_pod_is_bound_to_a_cordoned_node, (CORDON,), "cordon.not-a-condition"),
        ("cordon.not-a-condition", a_cordon_is_a_condition, (CORDON,), "cordon.blocks-new-pods"),
        ("cordon.not-a-condition", a_cordoned_node_is_not_ready, (CORDON,), ""),
        ("naming.reboot-event", a_boot_is_forgotten, (REBOOT,), "monitoring.detection-time"),
        ("monitoring.unknown-reason", somebody_else_says_unknown, LEAVE, ""),
        ("cordon.display", somebody_uncordons, (CORDON,), ""),
        ("manual-node.edits-survive", edits_are_undone, (EDITS,), ""),
        (
            "conditions.pods-not-marked-on-kubelet-false",
            somebody_marks_the_pod,
            (NOT_READY,),
            "taints.not-ready-noexecute",
        ),
    ],
)
def test_a_claim_falls_on_a_cluster_that_does_otherwise(
    lab: Lab, run: Run, claim: str, alter: Alteration, scenario: tuple[str, ...], unharmed: str
) -> None:
    ended = run(lab, alter, *scenario)

    assert "deviates" in ended.labels(claim)
    assert ended.status == 1
    if unharmed:
        assert set(ended.labels(unharmed)) == {"conforms"}


LEFT_ALONE = {
    "partition": (
        each(pods_are_removed_by_force, taints_stay),
        LEAVE,
        {"partition.terminating", "taints.removed-on-recovery"},
        ("monitoring.detection-time", "eviction.toleration-seconds-override", "zones.metrics"),
    ),
    "cordon": (
        each(nobody_taints, nobody_schedules),
        (CORDON,),
        {"cordon.taint", "cordon.blocks-new-pods"},
        ("cordon.not-a-condition",),
    ),
    "taints": (
        each(nobody_taints, nobody_schedules),
        (USER_TAINTS,),
        {
            "taints.user-noexecute-evicts",
            "taints.user-noexecute-finite",
            "taints.toleration-allows",
            "taints.scheduler-avoids",
            "taints.user-noexecute-not-rate-limited",
        },
        (),
    ),
    "labels": (
        each(nobody_schedules, a_pod_is_bound_where_its_label_is_not),
        (LABELS,),
        {"manual-node.node-selector", "registration.label-change-new-pods"},
        (),
    ),
    "hand-made": (
        nobody_taints_a_hand_made_node,
        (NEVER_REPORTED,),
        {
            "manual-node.never-updated-unknown",
            "monitoring.startup-grace",
            "manual-node.not-eligible",
            "manual-node.delete-stops-checks",
        },
        (),
    ),
    "daemons": (nobody_taints, (DAEMONS,), {"cordon.daemonset-still-scheduled"}, ()),
    "not ready": (
        nobody_taints,
        (NOT_READY,),
        {"taints.not-ready-noexecute", "daemonset.not-created-on-not-ready"},
        (),
    ),
}
"""Clusters whose controllers stand still: for all of their nodes."""


@BUGS_TOO
@pytest.mark.parametrize(("alter", "scenario", "fall", "unharmed"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_claim_falls_on_a_cluster_whose_controllers_stand_still(
    whole_lab: Lab,
    run: Run,
    alter: Alteration,
    scenario: tuple[str, ...],
    fall: set[str],
    unharmed: tuple[str, ...],
) -> None:
    ended = run(whole_lab, alter, *scenario)

    assert fall <= {claim for claim in ended.claims() if "deviates" in ended.labels(claim)}
    assert [set(ended.labels(claim)) for claim in unharmed] == [{"conforms"}] * len(unharmed)
    assert ended.status == 1


@pytest.mark.night("`make documented` runs the same scenarios on an unaltered cluster")
def test_defaults_conform_where_nobody_set_them(documented_lab: Lab, run: Run) -> None:
    as_it_is = run(documented_lab, unaltered, *DEFAULTS)

    assert [set(as_it_is.labels(claim)) for claim in IN_DEFAULTS] == [{"conforms"}] * len(IN_DEFAULTS)


@BUGS_TOO
def test_defaults_deviate_where_other_ones_are_compiled_in(altered_lab: Lab, run: Run) -> None:
    altered = run(altered_lab, unaltered, *DEFAULTS)

    assert altered.labels("monitoring.grace-period-default") == ["deviates"]
    assert altered.labels("monitoring.period-default") == ["deviates"]
    assert altered.labels("eviction.default-tolerations-injected") == ["conforms", "deviates"]


@BUGS_TOO
def test_claims_about_hand_made_nodes_fall_where_nobody_may_make_them(whole_lab: Lab, run: Run) -> None:
    ended = run(whole_lab, nobody_may_make_nodes, NAMES)

    assert ["deviates" in ended.labels(claim) for claim in IN_NAMES] == [True] * len(IN_NAMES)


@BUGS_TOO
def test_a_node_that_cannot_be_made_is_not_registered(whole_lab: Lab, run: Run) -> None:
    ended = run(whole_lab, nobody_may_make_nodes, JOINING)

    labels = {name: ended.labels(f"registration.{name}") for name in IN_JOINING}
    assert "deviates" in labels["self-register-default"], labels
    assert "deviates" in labels["kubeconfig-credentials"], labels


@BUGS_TOO
def test_what_flags_say_falls_where_executables_do_not_care(altered_lab: Lab, run: Run) -> None:
    ended = run(altered_lab, unaltered, FLAGS, JOINING, RESTART, "-k", "flags or refuses_taints or timeout")

    assert ["deviates" in ended.labels(claim) for claim in IN_FLAGS] == [True] * len(IN_FLAGS)


@FAST_TOO
def test_two_lost_nodes_of_three_are_no_disruption(lab: Lab, run: Run) -> None:
    as_it_is = run(lab, unaltered, FEW_NODES)
    assert set(as_it_is.labels("rate-limits.minimum-three")) == {"conforms"}


@BUGS_TOO
def test_a_third_node_that_is_not_ready_stops_the_eviction(lab: Lab, run: Run) -> None:
    altered = run(lab, a_stranger_is_in_the_zone, FEW_NODES)
    assert "deviates" in altered.labels("rate-limits.minimum-three")


@BUGS_TOO
def test_node_restriction_falls_where_everybody_may_do_everything(altered_lab: Lab, run: Run) -> None:
    ended = run(altered_lab, unaltered, RESTRICTION)

    assert ["deviates" in ended.labels(claim) for claim in IN_RESTRICTION] == [True] * len(IN_RESTRICTION)


@FAST_TOO
def test_a_scaled_profile_proves_no_default(lab: Lab, run: Run) -> None:
    ended = run(lab, unaltered, *DEFAULTS)

    assert {label for claim in IN_DEFAULTS for label in ended.labels(claim)} == {"unproven: scaled"}
    assert ended.status == 0
