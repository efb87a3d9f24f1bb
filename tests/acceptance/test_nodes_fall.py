"""Scenarios about Nodes that are made, join, start anew or are spoken to one way, where somebody meddles."""

from __future__ import annotations

from typing import Any

from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pods
from nodeproof.labs.client.lab import Lab
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from tests.acceptance.alterations import BUGS_TOO, SLACK_S, bind, each, refused, somebody_binds_a_pod_by_hand
from tests.acceptance.altered import Cluster, shipped
from tests.acceptance.conftest import Run
from tests.acceptance.test_pods_fall import on, remove
from tests.waiting import pause

Json = Any
BY_HAND, KEPT = shipped("manual_node/test_made_by_hand.py"), shipped("manual_node/test_never_reported.py")
JOINED, ONE_WAY = shipped("registration/test_joining.py"), shipped("partition/test_one_way.py")
OUT_OF_SERVICE, RESTARTED = (
    shipped("taints/test_out_of_service.py"),
    shipped("monitoring/test_controller_restart.py"),
)
SERVICES = shipped("manual_node/test_services.py")
EDITS, DELETED = shipped("registration/test_edits.py"), shipped("registration/test_deleted.py")
IN_BY_HAND = {
    "manual-node.capacity-required",
    "scheduling.sum-of-requests",
    "manual-node.status-on-create",
    "zones.zone-key",
    "conditions.network-unavailable-untouched",
}
IN_SERVICES = {"manual-node.healthy-means-all-services"}
IN_KEPT = {"manual-node.object-kept", "cloud.none-without-provider", "deletion-gc.manual-needed"}
IN_JOINED = {
    "registration.with-taints",
    "registration.initial-not-ready-taint",
    "capacity.reported-at-registration",
    "conditions.types-present",
    "heartbeat.lease-per-node",
    "heartbeat.lease-interval-configurable",
    "scheduling.max-pods",
}
IN_ONE_WAY = {
    f"monitoring.{name}" for name in ("one-way-to-apiserver", "one-way-from-apiserver", "short-blip")
}
IN_OUT_OF_SERVICE = {"out-of-service.needs-not-ready", "out-of-service.key-spelling"}
IN_RESTARTED = {
    "monitoring.controller-restart-resets",
    "eviction.controller-restart-resets",
    "eviction.metrics",
    "eviction.separate-controller",
    "deletion-gc.terminated-threshold",
}
IN_TAINTED = {f"registration.with-taints-{name}" for name in ("not-reconciled", "noop-without-register")}
IN_STARTED = {*IN_TAINTED, "registration.no-reregister-after-delete", "capacity.max-pods"}
LATE = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
JOINER, JOINER_IS_LATE_S = "joiner", 20.0
"""Later than the grace of a node that starts."""


def deviating(run: Run, lab: Lab, alter: Any, *scenario: str) -> set[str]:
    ended = run(lab, alter, *scenario)
    return {claim for claim in ended.claims() if "deviates" in ended.labels(claim)}


def nodes(cluster: Cluster) -> list[Json]:
    return list(cluster.lab.cluster.api.get(WATCHED["nodes"])["items"])


def say_of(cluster: Cluster, name: str, kind: str, status: str) -> None:
    """A condition that nobody reported; the others are as they were."""
    path = node(name)
    conditions = cluster.lab.cluster.api.get(path)["status"].get("conditions", [])
    others = [entry for entry in conditions if entry["type"] != kind]
    said = {"type": kind, "status": status, "reason": "Altered", "message": ""}
    cluster.lab.cluster.api.patch(f"{path}/status", {"status": {"conditions": [*others, said]}})


def pods_go_where_there_is_no_room(cluster: Cluster) -> None:
    somebody_binds_a_pod_by_hand(cluster)
    somebody_binds_a_pod_by_hand(cluster)


def a_node_cannot_be_made(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
    first = {"name": "first", "expression": "object.metadata.name.endsWith('-0')"}
    with refused(cluster, [rule], [first]):
        cluster.over.wait()


def a_silent_nodes_network_is_called_unavailable(cluster: Cluster) -> None:
    def silent() -> list[str]:
        lost = (item for item in nodes(cluster) if condition_status(item, "Ready") == "Unknown")
        return [item["metadata"]["name"] for item in lost if item["metadata"]["name"].endswith("-4")]

    cluster.until(silent)
    # What comes within the slack may have come before.
    pause(SLACK_S)
    say_of(cluster, silent()[0], "NetworkUnavailable", "True")


def somebody_deletes_a_lost_node(cluster: Cluster) -> None:
    def lost() -> list[str]:
        found = (item for item in nodes(cluster) if has_taint(item, UNREACHABLE, "NoSchedule"))
        return [item["metadata"]["name"] for item in found]

    cluster.until(lost)
    pause(SLACK_S)
    cluster.lab.cluster.api.delete(node(lost()[0]))


def a_namesake_is_there(cluster: Cluster) -> None:
    """A Node that has nothing but its labels, which the control plane takes the taint off at once, as nobody
    says that it is not ready; and a kubelet whose status is refused at first, and its Lease for good.
    """
    api, user = cluster.lab.cluster.api, f"request.userInfo.username == 'system:node:{JOINER}'"
    labels = {"kubernetes.io/hostname": JOINER, ZONE_LABEL: cluster.lab.fleet.nodes()[0].zone}
    leases = _rule("coordination.k8s.io", "CREATE", "leases")
    own = [{"name": "own", "expression": user}]
    with refused(cluster, [leases], own):
        with refused(cluster, [_rule("", "UPDATE", "nodes/status")], own):
            cluster.until_recorded('"step":"joining"')
            api.create(WATCHED["nodes"], {"metadata": {"name": JOINER, "labels": labels}})
            pause(JOINER_IS_LATE_S)
        bind_what_waits(cluster)
        cluster.over.wait()


def _rule(group: str, operation: str, resource: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": [operation],
        "resources": [resource],
    }


def bind_what_waits(cluster: Cluster) -> None:
    """The pod that nobody made but the scenario, and that the scheduler finds no room for."""

    def waiting() -> list[str]:
        items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
        bare = (item for item in items if not item["metadata"].get("ownerReferences"))
        names = (item["metadata"]["name"] for item in bare if not item["spec"].get("nodeName"))
        return [name for name in names if name != SENTINEL]

    cluster.until(waiting)
    pause(SLACK_S)
    bind(cluster, waiting()[0], JOINER)


def one_is_called_lost_and_none_is_found_lost(cluster: Cluster) -> None:
    deaf = cluster.until_injected("partition")
    pause(SLACK_S)
    say_of(cluster, deaf, "Ready", "Unknown")
    # Its kubelet may not have said so by the time that the scenario goes on, which it does at once.
    say_of(cluster, deaf, "Ready", "True")
    cluster.until_injected("partition", often=3)
    pause(SLACK_S)
    cluster.pause("kube-controller-manager")
    say_of(cluster, deaf, "Ready", "Unknown")


def nobody_may_try_and_pods_go_by_force(cluster: Cluster) -> None:
    tried = {"name": "tried", "expression": "request.dryRun"}
    with refused(cluster, [_rule("", "UPDATE", "nodes")], [tried]):
        name = cluster.until_injected("taint")
        pause(SLACK_S)
        for item in on(name, cluster, ""):
            remove(cluster, item, grace_s=0)
        cluster.over.wait()


def clocks_go_on(cluster: Cluster) -> None:
    """As if the new manager had remembered."""
    scenario = "all-clocks-anew"
    silent = cluster.until_injected("partition", scenario, often=2)
    lost = cluster.injected("partition", scenario)[0]
    pause(SLACK_S)
    say_of(cluster, silent, "Ready", "Unknown")
    cluster.until_injected("settings", scenario)
    cluster.until(lambda: cluster.pid("kube-controller-manager"))
    pause(SLACK_S)
    for item in on(lost, cluster, ""):
        remove(cluster, item, grace_s=0)


def somebody_else_evicts_and_collects(cluster: Cluster) -> None:
    lost = cluster.until_injected("partition", "does-not-run")
    cluster.until(lambda: has_taint(cluster.lab.cluster.api.get(node(lost)), UNREACHABLE, "NoExecute"))
    pause(SLACK_S)
    for item in cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]:
        if item["status"].get("phase") == "Failed" or item in on(lost, cluster, ""):
            remove(cluster, item, grace_s=0)


def starts_taint(cluster: Cluster) -> None:
    """A kubelet that starts with other settings, and one whose Node somebody makes anew."""
    name = cluster.until_injected("kubelet-settings")
    api, taint = cluster.lab.cluster.api, {"spec": {"taints": [LATE]}}
    pause(SLACK_S)
    api.patch(node(name), taint)
    cluster.until_injected("node-deleted")
    cluster.until(lambda: api.get(node(name)))
    pause(SLACK_S)
    api.patch(node(name), taint)
    cluster.over.wait()
    api.patch(node(name), {"spec": {"taints": None}})


def a_kubelet_may_not_make_its_node(cluster: Cluster) -> None:
    """Once one is given back: what refuses its kubelet's CREATE keeps that from finding that it is there. The
    next deletion is held until the refusal is in force.
    """
    name, api = cluster.until_injected("node-deleted"), cluster.lab.cluster.api
    cluster.until(lambda: api.get(node(name)))
    api.patch(node(name), {"metadata": {"finalizers": ["nodeproof.dev/held"]}})
    cluster.until_recorded('"step":"healed"')
    itself = {"name": "itself", "expression": "request.userInfo.username.startsWith('system:node:')"}
    with refused(cluster, [_rule("", "CREATE", "nodes")], [itself]):
        cluster.until_injected("unit-down")
        pause(SLACK_S)
        api.patch(node(name), {"metadata": {"finalizers": None}})
        cluster.over.wait()
    # One that could not make its node for 18 s tries its CSINode again two minutes later, not Ready before.
    for name in cluster.lab.fleet.node_names():
        machine = cluster.lab.fleet.machine(name)
        machine.power("kubelet-off")
        machine.power("kubelet-on")


def a_node_without_a_kube_proxy_is_called_not_ready(cluster: Cluster) -> None:
    """For as long as it takes its kubelet to say otherwise."""
    cluster.until_injected("kube-proxy")
    cluster.until_recorded('"step":"healed"')
    # What comes within the slack may have come before.
    pause(SLACK_S)
    say_of(cluster, cluster.target, "Ready", "False")


def other_numbers_are_told(cluster: Cluster) -> None:
    itself = {"name": "itself", "expression": "request.userInfo.username.startsWith('system:node:')"}
    with refused(cluster, [_rule("", "UPDATE", "nodes/status")], [itself]):
        while not cluster.over.wait(0.2):
            for name in cluster.lab.fleet.node_names():
                capacity = {"status": {"capacity": {"pods": "99"}}}
                cluster.lab.cluster.api.patch(f"{node(name)}/status", capacity)


@BUGS_TOO
def test_claims_about_nodes_made_by_hand_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(
        pods_go_where_there_is_no_room, a_node_cannot_be_made, a_silent_nodes_network_is_called_unavailable
    )
    assert deviating(run, whole_lab, alter, BY_HAND) == IN_BY_HAND


@BUGS_TOO
def test_that_a_node_needs_no_kube_proxy_falls(whole_lab: Lab, run: Run) -> None:
    alter = a_node_without_a_kube_proxy_is_called_not_ready
    assert deviating(run, whole_lab, alter, SERVICES) == IN_SERVICES


@BUGS_TOO
def test_claims_about_a_lost_node_that_stays_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, somebody_deletes_a_lost_node, KEPT) >= IN_KEPT


@BUGS_TOO
def test_claims_about_a_node_that_joins_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, a_namesake_is_there, JOINED, "-k", "under_its_own_name") >= IN_JOINED


@BUGS_TOO
def test_claims_about_one_way_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, one_is_called_lost_and_none_is_found_lost, ONE_WAY) == IN_ONE_WAY


@BUGS_TOO
def test_claims_about_a_node_out_of_service_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, nobody_may_try_and_pods_go_by_force, OUT_OF_SERVICE) == IN_OUT_OF_SERVICE


@BUGS_TOO
def test_claims_about_another_controller_manager_fall(whole_lab: Lab, run: Run) -> None:
    alter = each(clocks_go_on, somebody_else_evicts_and_collects)
    assert deviating(run, whole_lab, alter, RESTARTED, "-k", "not timeout") == IN_RESTARTED


def test_claims_about_taints_of_a_kubelet_that_starts_fall(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, starts_taint, EDITS, "-k", "starts_anew") == IN_TAINTED


@BUGS_TOO
def test_how_many_pods_a_kubelet_takes_falls(whole_lab: Lab, run: Run) -> None:
    assert deviating(run, whole_lab, other_numbers_are_told, EDITS, "-k", "110") == {"capacity.max-pods"}


@BUGS_TOO
def test_a_kubelet_that_starts_makes_no_node_where_it_may_not(whole_lab: Lab, run: Run) -> None:
    fallen = deviating(run, whole_lab, a_kubelet_may_not_make_its_node, DELETED)
    assert fallen == {"registration.no-reregister-after-delete"}
