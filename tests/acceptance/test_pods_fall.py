"""Scenarios about pods of nodes that are lost, deleted or drained, on clusters in which somebody meddles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pod, pods
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import UNREACHABLE, has_taint
from tests.acceptance.alterations import BUGS_TOO, SLACK_S, each, refused, somebody_binds_a_pod_by_hand
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.waiting import pause

Json = Any
APPS = "/apis/apps/v1"
LOST, DELETED = shipped("partition/test_workloads.py"), shipped("deletion_gc/test_deleted_node.py")
DRAINED, CONDITIONS = shipped("cordon/test_drain.py"), shipped("taints/test_conditions.py")
IN_LOST = {
    "conditions.pressure-unknown-when-unreachable",
    "conditions.pods-marked-not-ready",
    "monitoring.not-ready-event",
    "monitoring.recovery",
    "scheduling.unhealthy-node-avoided",
    *(f"eviction.{name}" for name in ("end-to-end-time", "unlimited-toleration", "graceful-delete")),
    *(f"eviction.{name}" for name in ("api-initiated", "disruption-target", "event", "replacement")),
    "daemonset.not-evicted-on-node-failure",
    "partition.statefulset-no-duplicate",
}
IN_DELETED = {
    *(f"deletion-gc.{name}" for name in ("pods-removed", "names-freed", "failed-phase-first")),
    *(f"deletion-gc.{name}" for name in ("force-metric", "event", "lease-removed")),
    "deletion-gc.quarantine-cancel",
    "heartbeat.lease-owner",
}
IN_DRAINED = {
    *(f"cordon.{name}" for name in ("keeps-existing-pods", "direct-binding-bypass", "kubelet-event")),
    "cordon.drain-leaves-daemonset",
}
IN_CONDITIONS = {
    "taints.noschedule-by-condition",
    "taints.mutually-exclusive",
    "conditions.network-unavailable",
}


def on_the_target(cluster: Cluster, kind: str) -> list[Json]:
    """Those `on` the target."""
    return on(cluster.target, cluster, kind)


def on(name: str, cluster: Cluster, kind: str) -> list[Json]:
    """Pods of the scenario's on a node that a controller of this kind made; of no kind, those nobody made."""

    def owner(item: Json) -> str:
        (found,) = item["metadata"].get("ownerReferences") or [{"kind": ""}]
        return str(found["kind"])

    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    here = (item for item in items if item["spec"].get("nodeName") == name)
    return [item for item in here if owner(item) == kind and item["metadata"]["name"] != SENTINEL]


def tolerated_s(item: Json) -> int | None:
    """How long a pod tolerates an unreachable node, None for ever."""
    found = {entry["key"]: entry.get("tolerationSeconds") for entry in item["spec"]["tolerations"]}
    seconds: int | None = found[UNREACHABLE]
    return seconds


def remove(cluster: Cluster, item: Json, grace_s: int | None = None) -> None:
    cluster.lab.cluster.api.delete(pod(NAMESPACE, item["metadata"]["name"]), grace_s)


def scale_down(cluster: Cluster, kind: str) -> None:
    """All of the scenario's workloads of a kind, in whichever namespace."""
    for item in cluster.lab.cluster.api.get(f"{APPS}/{kind}")["items"]:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        cluster.lab.cluster.api.patch(
            f"{APPS}/namespaces/{namespace}/{kind}/{name}", {"spec": {"replicas": 0}}
        )


def say_not_ready(cluster: Cluster) -> None:
    """An event of the target that its controller had no part in."""
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
    """Whom the control plane would delete is gone before, and whom it would leave goes."""
    cluster.until_unreachable()
    bare = on_the_target(cluster, "")
    for item in bare:
        if tolerated_s(item) is not None:
            remove(cluster, item, grace_s=0)
    scale_down(cluster, "deployments")
    # What comes within the slack may have come before.
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
    """Its conditions, an event, and that its pod is not ready; its kubelet is to report no more."""
    cluster.until_recorded('"step":"injected"')
    cluster.pause(f"kubelet-{cluster.target}")
    # What comes within the slack may have come before.
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
    """Its kubelet says so again with each renewal; of two Nodes that are deleted it is the second's."""
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


def nobody_is_told_of_a_deleted_node(cluster: Cluster) -> None:
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
    """Of a lost node they are taken off, and a Node that was made by hand gets none."""
    api = cluster.lab.cluster.api

    def nodes(of: Callable[[Json], bool]) -> list[str]:
        return [str(item["metadata"]["name"]) for item in api.get(WATCHED["nodes"])["items"] if of(item)]

    def by_hand() -> list[str]:
        return nodes(lambda item: "by-hand" in item["metadata"]["name"])

    def lost() -> list[str]:
        return nodes(lambda item: has_taint(item, UNREACHABLE, "NoExecute"))

    # The longer scenario comes first.
    cluster.until(lost)
    # What comes within the slack may have come before.
    pause(SLACK_S)
    for name in lost():
        api.patch(node(name), {"spec": {"taints": None}})
    cluster.until(by_hand)
    cluster.pause("kube-controller-manager")


@BUGS_TOO
def test_claims_about_pods_of_a_lost_node_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(pods_are_taken_by_others, somebody_else_tells_of_the_node, somebody_binds_a_pod_by_hand)
    ended = run(whole_lab, alter, LOST)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_LOST


@BUGS_TOO
def test_claims_about_a_deleted_node_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(
        nobody_owns_the_lease, pods_of_a_deleted_node_are_taken_by_others, nobody_is_told_of_a_deleted_node
    )
    ended = run(whole_lab, alter, DELETED)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_DELETED


@BUGS_TOO
def test_claims_about_a_drain_fall(whole_lab: Lab, run: Run) -> None:
    ended = run(whole_lab, a_kubelet_stands_still_and_others_remove_pods, DRAINED)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_DRAINED


@BUGS_TOO
def test_claims_about_taints_for_conditions_fall(whole_lab: Lab, run: Run) -> None:
    ended = run(whole_lab, taints_for_conditions_do_not_come_or_do_not_stay, CONDITIONS)

    assert {claim for claim in ended.claims() if "deviates" in ended.labels(claim)} == IN_CONDITIONS
