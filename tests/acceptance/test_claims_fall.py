"""Every shipped claim has a cluster on which its shipped scenario does not conform."""

from __future__ import annotations

import pytest

from nodeproof import catalogue
from nodeproof.cluster.resources import NAMESPACE, WATCHED, node, pod
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import UNREACHABLE, condition_status, has_taint
from tests.acceptance.altered import Alteration, Cluster, shipped, unaltered
from tests.acceptance.conftest import PARTITION, Run
from tests.acceptance.test_conformance import MACHINES
from tests.waiting import pause

LATE_S = 4.0
SLACK_S = 1.5
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
FEW_NODES, JOINING = shipped("rate_limits/test_few_nodes.py"), shipped("registration/test_joining.py")
REFUSED = shipped("heartbeat/test_refused.py")
NOT_READY = shipped("eviction/test_not_ready.py")
DAEMONS, FLAGS = shipped("cordon/test_daemons.py"), shipped("eviction/test_admission_flags.py")
IN_JOINING = ("self-register-default", "with-taints", "kubeconfig-credentials")
TAINTS_REFUSED = "registration.with-taints-format"
LEAVE, STAY = (PARTITION,), (shipped("partition/test_recovery.py"),)
DEFAULTS = (
    shipped("monitoring/test_defaults.py"),
    shipped("eviction/test_default.py"),
    *("-k", "without_flags"),
)
IN_DEFAULTS = ("monitoring.grace-period-default", "eviction.default-tolerations-injected")


def pods_leave_at_once(cluster: Cluster) -> None:
    cluster.until_unreachable()
    cluster.remove_pod()


def pods_are_removed_by_force(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    cluster.remove_pod(grace_s=0)


def taints_stay(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    # The scenario asks the controller manager for its metrics now.
    cluster.until_recorded("node_collector_zone_health")
    cluster.pause("kube-controller-manager")


def taints_come_back(cluster: Cluster) -> None:
    cluster.until_unreachable()
    cluster.until_ready()
    cluster.until(lambda: not has_taint(cluster.node(), UNREACHABLE, "NoExecute"))
    taint = {"key": UNREACHABLE, "effect": "NoExecute"}
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"taints": [taint]}})


def pods_leave_after_recovery(cluster: Cluster) -> None:
    cluster.until_unreachable()
    cluster.until_ready()
    # What comes within the slack may have come before the node was Ready.
    pause(SLACK_S)
    cluster.remove_pod()


def a_renewal_is_late(cluster: Cluster) -> None:
    cluster.until_recorded()
    pause(LATE_S)
    cluster.pause(f"kubelet-{cluster.target}")
    pause(LATE_S)
    cluster.go_on()


def a_pod_is_bound_to_a_cordoned_node(cluster: Cluster) -> None:
    cluster.until_cordoned()
    name = cluster.pod()["metadata"]["name"]
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": cluster.target},
    }
    cluster.lab.cluster.api.create(f"{pod(NAMESPACE, name)}/binding", body)


def a_cordon_is_a_condition(cluster: Cluster) -> None:
    cluster.until_cordoned()
    conditions = cluster.node()["status"]["conditions"]
    added = {"type": "Cordoned", "status": "True", "reason": "Altered", "message": ""}
    status = f"{node(cluster.target)}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"conditions": [*conditions, added]}})
    cluster.over.wait()
    conditions = [entry for entry in cluster.node()["status"]["conditions"] if entry["type"] != "Cordoned"]
    cluster.lab.cluster.api.patch(status, {"status": {"conditions": conditions}})


def nobody_schedules(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-scheduler")


def nobody_taints(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-controller-manager")


def somebody_else_says_unknown(cluster: Cluster) -> None:
    """The node controller leaves a condition as it is that is Unknown already."""
    cluster.until_recorded('"step":"injected"')
    conditions = [
        {**entry, "status": "Unknown", "reason": "Altered"} if entry["type"] == "Ready" else entry
        for entry in cluster.node()["status"]["conditions"]
    ]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": conditions}})


def a_boot_is_forgotten(cluster: Cluster) -> None:
    """A kubelet that finds no boot id to compare with reports no reboot."""
    cluster.until(lambda: condition_status(cluster.node(), "Ready") == "Unknown")
    forgotten = {"status": {"nodeInfo": {"bootID": ""}}}
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", forgotten)


def somebody_uncordons(cluster: Cluster) -> None:
    cluster.until_cordoned()
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"unschedulable": None}})


def a_stranger_is_in_the_zone(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    labels = {"topology.kubernetes.io/zone": cluster.lab.fleet.nodes()[0].zone}
    stranger = {"metadata": {"name": "stranger", "labels": labels}}
    cluster.lab.cluster.api.create(WATCHED["nodes"], stranger)
    cluster.over.wait()
    cluster.lab.cluster.api.delete(node("stranger"))


def somebody_else_writes_a_status(cluster: Cluster) -> None:
    cluster.until_recorded()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    wrong = {"status": {"nodeInfo": {"kernelVersion": "altered"}}}
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", wrong)


def somebody_marks_the_pod(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    # What comes within the slack may have come before.
    pause(SLACK_S)
    found = cluster.pod()
    conditions = [
        {**entry, "status": "False"} if entry["type"] == "Ready" else entry
        for entry in found["status"]["conditions"]
    ]
    status = f"{pod(NAMESPACE, found['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"conditions": conditions}})


def nobody_renews(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    cluster.pause(f"kubelet-{cluster.target}")


def nobody_may_make_nodes(cluster: Cluster) -> None:
    api, policies = cluster.lab.cluster.api, "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
    policy = {
        "metadata": {"name": "altered"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "altered"}],
        },
    }
    binding = {
        "metadata": {"name": "altered"},
        "spec": {"policyName": "altered", "validationActions": ["Deny"]},
    }
    api.create(f"{policies}/validatingadmissionpolicies", policy)
    api.create(f"{policies}/validatingadmissionpolicybindings", binding)
    cluster.over.wait()
    api.delete(f"{policies}/validatingadmissionpolicybindings/altered")
    api.delete(f"{policies}/validatingadmissionpolicies/altered")


@pytest.mark.parametrize(
    ("claim", "alter", "scenario", "unharmed"),
    [
        ("eviction.toleration-seconds-override", pods_leave_at_once, LEAVE, "taints.unreachable-noexecute"),
        ("partition.terminating", pods_are_removed_by_force, LEAVE, "eviction.toleration-seconds-override"),
        ("taints.removed-on-recovery", taints_stay, LEAVE, "monitoring.detection-time"),
        ("taints.removed-on-recovery", taints_come_back, LEAVE, "monitoring.detection-time"),
        ("eviction.cancelled-on-recovery", pods_leave_after_recovery, STAY, ""),
        ("heartbeat.lease-interval", a_renewal_is_late, (LEASE,), ""),
        ("cordon.blocks-new-pods", a_pod_is_bound_to_a_cordoned_node, (CORDON,), "cordon.not-a-condition"),
        ("cordon.not-a-condition", a_cordon_is_a_condition, (CORDON,), "cordon.blocks-new-pods"),
        ("naming.reboot-event", a_boot_is_forgotten, (REBOOT,), "monitoring.detection-time"),
        ("cordon.taint", nobody_taints, (CORDON,), "cordon.not-a-condition"),
        ("monitoring.unknown-reason", somebody_else_says_unknown, LEAVE, ""),
        ("cordon.blocks-new-pods", nobody_schedules, (CORDON,), "cordon.not-a-condition"),
        ("cordon.display", somebody_uncordons, (CORDON,), ""),
        ("zones.metrics", a_stranger_is_in_the_zone, LEAVE, "monitoring.detection-time"),
        ("heartbeat.kubelet-is-writer", somebody_else_writes_a_status, (LEASE,), ""),
        ("heartbeat.lease-independent", nobody_renews, (REFUSED,), ""),
        ("cordon.daemonset-still-scheduled", nobody_taints, (DAEMONS,), ""),
        ("taints.not-ready-noexecute", nobody_taints, (NOT_READY,), ""),
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


def test_defaults_conform_where_nobody_set_them(documented_lab: Lab, run: Run) -> None:
    as_it_is = run(documented_lab, unaltered, *DEFAULTS)

    assert [set(as_it_is.labels(claim)) for claim in IN_DEFAULTS] == [{"conforms"}] * 2


def test_defaults_deviate_where_other_ones_are_compiled_in(altered_lab: Lab, run: Run) -> None:
    altered = run(altered_lab, unaltered, *DEFAULTS)

    assert altered.labels("monitoring.grace-period-default") == ["deviates"]
    assert altered.labels("eviction.default-tolerations-injected") == ["conforms", "deviates"]


def test_claims_about_hand_made_nodes_fall_where_nobody_may_make_them(lab: Lab, run: Run) -> None:
    ended = run(lab, nobody_may_make_nodes, NAMES)

    assert ["deviates" in ended.labels(claim) for claim in IN_NAMES] == [True] * len(IN_NAMES)


def test_a_node_that_cannot_be_made_is_not_registered(lab: Lab, run: Run) -> None:
    ended = run(lab, nobody_may_make_nodes, JOINING)

    labels = {name: ended.labels(f"registration.{name}") for name in IN_JOINING}
    assert "deviates" in labels["self-register-default"], labels
    assert "deviates" in labels["kubeconfig-credentials"], labels


def test_what_flags_say_falls_where_executables_do_not_care(altered_lab: Lab, run: Run) -> None:
    ended = run(altered_lab, unaltered, FLAGS, JOINING)

    assert ended.labels("eviction.admission-flags") == ["deviates"]
    assert "deviates" in ended.labels(TAINTS_REFUSED)
    assert ended.labels("registration.with-taints") == ["deviates"]


def test_two_lost_nodes_of_three_are_no_disruption(three_nodes: Lab, run: Run) -> None:
    as_it_is = run(three_nodes, unaltered, FEW_NODES)
    assert set(as_it_is.labels("rate-limits.minimum-three")) == {"conforms"}


def test_a_third_node_that_is_not_ready_stops_the_eviction(three_nodes: Lab, run: Run) -> None:
    altered = run(three_nodes, a_stranger_is_in_the_zone, FEW_NODES)
    assert "deviates" in altered.labels("rate-limits.minimum-three")


def test_node_restriction_falls_where_everybody_may_do_everything(altered_lab: Lab, run: Run) -> None:
    ended = run(altered_lab, unaltered, RESTRICTION)

    assert ["deviates" in ended.labels(claim) for claim in IN_RESTRICTION] == [True] * len(IN_RESTRICTION)


def test_a_scaled_profile_proves_no_default(lab: Lab, run: Run) -> None:
    ended = run(lab, unaltered, *DEFAULTS)

    assert {label for claim in IN_DEFAULTS for label in ended.labels(claim)} == {"unproven: scaled"}
    assert ended.status == 0


def test_every_shipped_claim_is_made_to_fall() -> None:
    """Those that fall in other files are named; the five minutes fall with the defaults they are made of.

    What only real machines can prove falls in tests/vm.
    """
    marks = test_a_claim_falls_on_a_cluster_that_does_otherwise.pytestmark  # type: ignore[attr-defined]
    fall = {case[0] for mark in marks if mark.name == "parametrize" for case in mark.args[1]}
    elsewhere = {"monitoring.detection-time", "taints.unreachable-noexecute"}
    five_minutes = {"eviction.after-five-minutes-unreachable"}

    judged = catalogue.judged(catalogue.load())
    on_machines = {claim for claim in judged if claim.startswith(MACHINES)}

    together = {*IN_DEFAULTS, *IN_NAMES, *IN_RESTRICTION, TAINTS_REFUSED}
    together |= {f"registration.{name}" for name in IN_JOINING}
    together |= {"eviction.admission-flags", "rate-limits.minimum-three"}
    assert fall | elsewhere | five_minutes | on_machines | together >= judged.keys()
