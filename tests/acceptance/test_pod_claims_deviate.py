"""Scenarios about pods of lost, deleted, drained or powered-off nodes, on altered clusters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, WATCHED, node, pod
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.cluster import OUT_OF_SERVICE, POD_COLLECTOR, UNREACHABLE, condition_status, has_taint
from tests.acceptance.alterations import (
    BUGS_TOO,
    SLACK_S,
    combined,
    on,
    on_the_target,
    pods_are_removed_by_force,
    refused,
    remove,
    somebody_binds_a_pod_by_hand,
    tolerated_s,
)
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Deviate
from tests.markers import falls
from tests.waiting import pause

Json = Any
APPS = "/apis/apps/v1"
LOST, DELETED = shipped("partition/test_workloads.py"), shipped("deletion_gc/test_deleted_node.py")
DRAINED, CONDITIONS = shipped("cordon/test_drain.py"), shipped("taints/test_conditions.py")
SWAPPED, STATIC = shipped("eviction/test_taint_swap.py"), shipped("eviction/test_static_pods.py")
AGAIN, STUCK = shipped("registration/test_reregistration.py"), shipped("partition/test_terminating_pod.py")
POWER_CUT = shipped("nongraceful/test_power_cut.py")


def scale_down(cluster: Cluster, kind: str) -> None:
    """Return all workloads of a kind that the scenario created, in any namespace."""
    for item in cluster.lab.cluster.api.get(f"{APPS}/{kind}")["items"]:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        cluster.lab.cluster.api.patch(
            f"{APPS}/namespaces/{namespace}/{kind}/{name}", {"spec": {"replicas": 0}}
        )


def say_not_ready(cluster: Cluster) -> None:
    """Write an event about the target that its controller did not write."""
    reason = "NodeNotReady"
    body = {
        "metadata": {"name": f"altered-{cluster.target}"},
        "involvedObject": {"kind": "Node", "name": cluster.target, "uid": cluster.target},
        "reason": reason,
        "message": f"Node {cluster.target} status is now: {reason}",
        "type": "Normal",
        "source": {"component": "node-controller"},
    }
    cluster.lab.cluster.api.create("/api/v1/namespaces/default/events", body)


def pods_are_taken_by_others(cluster: Cluster) -> None:
    """Pods that the control plane would delete are deleted before, and the others are deleted, too."""
    cluster.until_unreachable()
    bare = on_the_target(cluster, "")
    for item in bare:
        if tolerated_s(item) is not None:
            remove(cluster, item, grace_s=0)
    scale_down(cluster, "deployments")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    for item in [*on_the_target(cluster, "DaemonSet"), *bare]:
        if tolerated_s(item) is None:
            remove(cluster, item)
    cluster.until(lambda: any("deletionTimestamp" in item["metadata"] for item in ordinals(cluster)))
    for item in ordinals(cluster):
        remove(cluster, item, grace_s=0)


def ordinals(cluster: Cluster) -> list[Json]:
    return on_the_target(cluster, "StatefulSet")


def somebody_else_tells_of_the_node(cluster: Cluster) -> None:
    """Its conditions, an event, and its pod's readiness; its kubelet may report no more."""
    cluster.until_recorded('"step":"injected"')
    cluster.pause(f"kubelet-{cluster.target}")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    conditions = [
        {**entry, "status": "Unknown", "reason": "Altered"} if entry["type"].endswith("Pressure") else entry
        for entry in cluster.node()["status"]["conditions"]
    ]
    api = cluster.lab.cluster.api
    api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": conditions}})
    say_not_ready(cluster)
    for item in on_the_target(cluster, ""):
        unready = [
            {**entry, "status": "False"} if entry["type"] == "Ready" else entry
            for entry in item["status"]["conditions"]
        ]
        status = f"{pod(NAMESPACE, item['metadata']['name'])}/status"
        api.patch(status, {"status": {"conditions": unready}})


def nobody_owns_the_lease(cluster: Cluster) -> None:
    """Its kubelet repeats it with each renewal; of two deleted Nodes it is the second."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    disowned = {"metadata": {"ownerReferences": None}}
    cluster.until_recorded()
    while not cluster.over.is_set() and len(cluster.injected("node-deleted")) < 2:
        with suppress(ApiError):
            cluster.lab.cluster.api.patch(f"{leases}/{cluster.target}", disowned)


def pods_of_a_deleted_node_are_taken_by_others(cluster: Cluster) -> None:
    cluster.until_injected("node-deleted")
    pause(SLACK_S)
    for name in cluster.lab.fleet.node_names():
        for item in on(name, cluster, ""):
            remove(cluster, item, grace_s=0)
    scale_down(cluster, "statefulsets")


def no_event_reports_a_deleted_node(cluster: Cluster) -> None:
    events = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["events"]}
    removing = {"name": "removing", "expression": "object.reason == 'RemovingNode'"}
    with refused(cluster, [events], [removing]):
        cluster.over.wait()


def a_kubelet_stands_still_and_others_remove_pods(cluster: Cluster) -> None:
    """At once, within the slack of the cordon."""
    cluster.until(lambda: cluster.node()["spec"].get("unschedulable"))
    cluster.pause(f"kubelet-{cluster.target}")
    for item in on_the_target(cluster, ""):
        remove(cluster, item)


def taints_for_conditions_do_not_come_or_do_not_stay(cluster: Cluster) -> None:
    """They are removed from a lost node, and a manual Node gets none."""
    api = cluster.lab.cluster.api

    def nodes(of: Callable[[Json], bool]) -> list[str]:
        return [str(item["metadata"]["name"]) for item in api.get(WATCHED["nodes"])["items"] if of(item)]

    def by_hand() -> list[str]:
        return nodes(lambda item: "by-hand" in item["metadata"]["name"])

    def lost() -> list[str]:
        return nodes(lambda item: has_taint(item, UNREACHABLE, "NoExecute"))

    # The longer scenario comes first.
    cluster.until(lost)
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    for name in lost():
        api.patch(node(name), {"spec": {"taints": None}})
    cluster.until(by_hand)
    cluster.pause("kube-controller-manager")


@BUGS_TOO
@falls("conditions.pods-marked-not-ready", "conditions.pressure-unknown-when-unreachable")
@falls("daemonset.not-evicted-on-node-failure")
@falls("eviction.api-initiated", "eviction.disruption-target", "eviction.end-to-end-time", "eviction.event")
@falls("eviction.graceful-delete", "eviction.replacement", "eviction.unlimited-toleration")
@falls("monitoring.not-ready-event", "monitoring.recovery", "partition.statefulset-no-duplicate")
@falls("scheduling.unhealthy-node-avoided")
def test_lost_node_pod_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(pods_are_taken_by_others, somebody_else_tells_of_the_node, somebody_binds_a_pod_by_hand)
    deviate(whole_lab, alter, LOST)


@BUGS_TOO
@falls("deletion-gc.event", "deletion-gc.failed-phase-first", "deletion-gc.force-metric")
@falls("deletion-gc.lease-removed", "deletion-gc.names-freed", "deletion-gc.pods-removed")
@falls("deletion-gc.quarantine-cancel", "heartbeat.lease-owner")
def test_deleted_node_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(
        nobody_owns_the_lease, pods_of_a_deleted_node_are_taken_by_others, no_event_reports_a_deleted_node
    )
    deviate(whole_lab, alter, DELETED)


@BUGS_TOO
@falls("cordon.direct-binding-bypass", "cordon.drain-leaves-daemonset", "cordon.keeps-existing-pods")
@falls("cordon.kubelet-event")
def test_drain_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, a_kubelet_stands_still_and_others_remove_pods, DRAINED)


@BUGS_TOO
@falls("conditions.network-unavailable", "taints.mutually-exclusive", "taints.noschedule-by-condition")
@falls("taints.toleration-allows")
def test_condition_taint_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, taints_for_conditions_do_not_come_or_do_not_stay, CONDITIONS)


def a_swap_of_taints_leaves_none_for_a_moment(cluster: Cluster) -> None:
    """Remove the taints: the node controller adds the second one again in one of its next passes."""
    cluster.until_unreachable()
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"taints": None}})


def somebody_deletes_a_mirror_pod(cluster: Cluster) -> None:
    cluster.until_unreachable()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    for item in on_the_target(cluster, "Node"):
        remove(cluster, item)


def a_node_that_is_back_is_drained(cluster: Cluster) -> None:
    name = cluster.until_injected("unit-down")
    cluster.until_recorded('"step":"healed"')
    cluster.until(lambda: cluster.lab.cluster.api.get(node(name)))
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    for item in on(name, cluster, ""):
        remove(cluster, item)


@BUGS_TOO
@falls("eviction.timer-survives-taint-swap")
def test_taint_swap_clock_claims_deviate_if_the_taint_is_briefly_missing(
    lab: LabHandle, deviate: Deviate
) -> None:
    deviate(lab, a_swap_of_taints_leaves_none_for_a_moment, SWAPPED)


@BUGS_TOO
@falls("eviction.static-pods-stay")
def test_static_pod_claims_deviate_if_a_mirror_pod_is_deleted(lab: LabHandle, deviate: Deviate) -> None:
    deviate(lab, somebody_deletes_a_mirror_pod, STATIC)


@BUGS_TOO
@falls("registration.reregistration-drains")
def test_reregistration_claims_deviate_if_the_node_is_drained(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, a_node_that_is_back_is_drained, AGAIN)


@BUGS_TOO
@falls("partition.no-force-delete")
def test_stuck_pod_claims_deviate_if_pods_are_force_deleted(lab: LabHandle, deviate: Deviate) -> None:
    deviate(lab, pods_are_removed_by_force, STUCK)


def the_collector_removes_nothing(cluster: Cluster) -> None:
    """Refuse all of the collector's deletions, as it retries on each pass."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    itself = {"name": "itself", "expression": f"request.userInfo.username == '{POD_COLLECTOR}'"}
    with refused(cluster, [rule], [itself]):
        cluster.over.wait()


def pods_of_a_node_that_nobody_tells_of_go(cluster: Cluster) -> None:
    """By force, and the StatefulSet creates no new ones; its first pod waits for the node."""
    cluster.until_injected("power-off", often=2)
    other = cluster.injected("power-off")[0]

    def leaving(kind: str) -> list[Json]:
        return [item for item in on(other, cluster, kind) if "deletionTimestamp" in item["metadata"]]

    cluster.until(lambda: len(leaving("StatefulSet")) == 2 and leaving(""))
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    (owner,) = {item["metadata"]["ownerReferences"][0]["name"] for item in leaving("StatefulSet")}
    path = f"{APPS}/namespaces/{NAMESPACE}/statefulsets/{owner}"
    cluster.lab.cluster.api.patch(path, {"spec": {"replicas": 0}})
    for item in [*leaving(""), *leaving("StatefulSet")]:
        if not item["metadata"]["name"].endswith("-0"):
            remove(cluster, item, grace_s=0)


def somebody_deletes_pods_that_may_stay(cluster: Cluster) -> None:
    """One per effect, which tolerates the earlier taints or all of them."""

    def unlimited(tolerates_it: bool) -> list[Json]:
        items = [item for item in on_the_target(cluster, "") if tolerated_s(item) is None]
        keys = [{entry["key"] for entry in item["spec"]["tolerations"]} for item in items]
        return [
            item
            for item, taints in zip(items, keys, strict=True)
            if (OUT_OF_SERVICE in taints) is tolerates_it
        ]

    for often, tolerates_it in ((1, False), (2, True)):
        cluster.until_injected("taint", often=often)
        # An event within the slack may precede the anchor.
        pause(SLACK_S)
        for item in unlimited(tolerates_it):
            remove(cluster, item)


def somebody_takes_the_taint_off_for_a_moment(cluster: Cluster) -> None:
    cluster.until_injected("taint", often=2)
    cluster.until(lambda: condition_status(cluster.node(), "Ready") == "True")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    api, taints = cluster.lab.cluster.api, cluster.node()["spec"]["taints"]
    others = [entry for entry in taints if entry["key"] != OUT_OF_SERVICE]
    for left in (others, taints):
        api.patch(node(cluster.target), {"spec": {"taints": left}})


@BUGS_TOO
@falls("non-graceful.never-returns", "non-graceful.node-returns", "non-graceful.statefulset-stuck")
@falls("out-of-service.effect-noexecute", "out-of-service.effect-noschedule", "out-of-service.force-deletes")
@falls("out-of-service.gate", "out-of-service.manual-removal", "out-of-service.metric")
@falls("out-of-service.needs-terminating", "out-of-service.toleration")
def test_power_cut_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(
        the_collector_removes_nothing,
        pods_of_a_node_that_nobody_tells_of_go,
        somebody_deletes_pods_that_may_stay,
        somebody_takes_the_taint_off_for_a_moment,
    )
    deviate(whole_lab, alter, POWER_CUT)
