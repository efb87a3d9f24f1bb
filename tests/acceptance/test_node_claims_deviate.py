"""Scenarios about Nodes that are created, join, restart or are cut off, and about clouds and pod ranges."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pods
from nodeproof.cluster.workloads import not_ready
from nodeproof.faults.fault import COMMAND_TIMEOUT_S
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.cluster import UNREACHABLE, ZONE_LABEL, condition_status, has_taint
from tests.acceptance.alterations import (
    BUGS_TOO,
    SLACK_S,
    bind,
    combined,
    on,
    refused,
    remove,
    somebody_binds_a_pod_by_hand,
    until_lost,
)
from tests.acceptance.altered import VISIBLE_TIMEOUT_S, Cluster, shipped
from tests.acceptance.conftest import Deviate, Run
from tests.markers import falls
from tests.waiting import eventually, pause

Json = Any
BY_HAND, NEVER_REPORTED = (
    shipped("manual_node/test_node_fields.py"),
    shipped("manual_node/test_never_reported.py"),
)
JOINED, ONE_WAY = shipped("registration/test_joining.py"), shipped("partition/test_one_way.py")
OUT_OF_SERVICE, RESTARTED = (
    shipped("taints/test_out_of_service.py"),
    shipped("monitoring/test_controller_restart.py"),
)
SERVICES = shipped("manual_node/test_services.py")
EDITS, DELETED = shipped("registration/test_edits.py"), shipped("registration/test_deleted.py")
LATE = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
JOINER, JOINER_IS_LATE_S = "joiner", 20.0
"""Longer than the startup grace period of a node."""
LOST_MACHINES, ADDRESSES = shipped("cloud/test_lost_machines.py"), shipped("cloud/test_external_addresses.py")
NOBODYS = "10.78.254.254"
CONTROLLER = "system:serviceaccount:kube-system:node-controller"
RANGES = shipped("cidr/test_ranges.py")
SAME = "10.244.0.0/24"
"""A controller manager does not start if a Node has a range outside of its own."""
LATER_S = 2.5
"""An event within the slack of the recording's start may precede it."""


def nodes(cluster: Cluster) -> list[Json]:
    return list(cluster.lab.cluster.api.get(WATCHED["nodes"])["items"])


def say_of(cluster: Cluster, name: str, kind: str, status: str) -> None:
    """Return a condition that nobody reported; the others are unchanged."""
    path = node(name)
    conditions = cluster.lab.cluster.api.get(path)["status"].get("conditions", [])
    others = [entry for entry in conditions if entry["type"] != kind]
    condition = {"type": kind, "status": status, "reason": "Altered", "message": ""}
    cluster.lab.cluster.api.patch(f"{path}/status", {"status": {"conditions": [*others, condition]}})


def pods_go_where_there_is_no_room(cluster: Cluster) -> None:
    somebody_binds_a_pod_by_hand(cluster)
    somebody_binds_a_pod_by_hand(cluster)


def node_creation_is_forbidden(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
    first = {"name": "first", "expression": "object.metadata.name.endsWith('-0')"}
    with refused(cluster, [rule], [first]):
        cluster.over.wait()


def a_silent_nodes_network_is_called_unavailable(cluster: Cluster) -> None:
    def silent() -> list[str]:
        lost = (item for item in nodes(cluster) if condition_status(item, "Ready") == "Unknown")
        return [item["metadata"]["name"] for item in lost if item["metadata"]["name"].endswith("-4")]

    cluster.until(silent)
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    say_of(cluster, silent()[0], "NetworkUnavailable", "True")


def somebody_deletes_a_lost_node(cluster: Cluster) -> None:
    def lost() -> list[str]:
        lost = (item for item in nodes(cluster) if has_taint(item, UNREACHABLE, "NoSchedule"))
        return [item["metadata"]["name"] for item in lost]

    cluster.until(lost)
    pause(SLACK_S)
    cluster.lab.cluster.api.delete(node(lost()[0]))


def a_namesake_is_there(cluster: Cluster) -> None:
    """Create a Node that has nothing but its labels, and refuse its kubelet's requests.

    The control plane removes the Node's taint at once, as nobody reports that it is not ready. The kubelet's
    status is refused at first, and its Lease for good.
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
    """Return the pod that only the scenario created and the scheduler cannot place."""

    def waiting() -> list[str]:
        items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
        bare = (item for item in items if not item["metadata"].get("ownerReferences"))
        names = (item["metadata"]["name"] for item in bare if not item["spec"].get("nodeName"))
        return [name for name in names if name != SENTINEL]

    cluster.until(waiting)
    pause(SLACK_S)
    bind(cluster, waiting()[0], JOINER)


def one_node_is_marked_lost_and_none_is_detected(cluster: Cluster) -> None:
    deaf = cluster.until_injected("partition")
    pause(SLACK_S)
    say_of(cluster, deaf, "Ready", "Unknown")
    # The scenario continues at once, possibly before its kubelet has reported it.
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
    """As if the new manager had kept its timers."""
    scenario = "restart-resets"
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
    lost = cluster.until_injected("partition", "taint-eviction-controller")
    cluster.until(lambda: has_taint(cluster.lab.cluster.api.get(node(lost)), UNREACHABLE, "NoExecute"))
    pause(SLACK_S)
    for item in cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]:
        if item["status"].get("phase") == "Failed" or item in on(lost, cluster, ""):
            remove(cluster, item, grace_s=0)


def starts_taint(cluster: Cluster) -> None:
    """Restart a kubelet with other settings, and recreate the Node of another."""
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
    """Refuse that kubelets create Nodes, once one Node was given back.

    An earlier refusal keeps that Node's kubelet from finding that it exists. The next deletion is held until
    the refusal is in force.
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
        machine.run(["systemctl", "restart", "kubelet.service"], timeout_s=COMMAND_TIMEOUT_S)


def a_node_without_a_kube_proxy_is_called_not_ready(cluster: Cluster) -> None:
    """Until the kubelet reports otherwise."""
    cluster.until_injected("kube-proxy")
    cluster.until_recorded('"step":"healed"')
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    say_of(cluster, cluster.target, "Ready", "False")


def other_numbers_are_reported(cluster: Cluster) -> None:
    itself = {"name": "itself", "expression": "request.userInfo.username.startsWith('system:node:')"}
    with refused(cluster, [_rule("", "UPDATE", "nodes/status")], [itself]):
        while not cluster.over.wait(0.2):
            for name in cluster.lab.fleet.node_names():
                capacity = {"status": {"capacity": {"pods": "99"}}}
                cluster.lab.cluster.api.patch(f"{node(name)}/status", capacity)


@BUGS_TOO
@falls("conditions.network-unavailable-untouched")
@falls("manual-node.capacity-required", "manual-node.status-on-create", "scheduling.sum-of-requests")
@falls("zones.zone-key")
def test_manual_node_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(
        pods_go_where_there_is_no_room,
        node_creation_is_forbidden,
        a_silent_nodes_network_is_called_unavailable,
    )
    deviate(whole_lab, alter, BY_HAND)


@BUGS_TOO
@falls("manual-node.healthy-means-all-services")
def test_kube_proxy_claims_deviate_if_nodes_without_it_fail(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, a_node_without_a_kube_proxy_is_called_not_ready, SERVICES)


@BUGS_TOO
@falls("cloud.none-without-provider", "deletion-gc.manual-needed", "manual-node.object-kept")
def test_lost_node_claims_deviate_if_the_node_is_deleted(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    assert run(whole_lab, somebody_deletes_a_lost_node, NEVER_REPORTED).deviating() >= claims


@BUGS_TOO
@falls("capacity.reported-at-registration", "conditions.types-present")
@falls("heartbeat.lease-interval-configurable", "heartbeat.lease-per-node")
@falls("registration.initial-not-ready-taint", "registration.with-taints", "scheduling.max-pods")
def test_joining_node_claims_deviate_if_its_name_is_taken(
    whole_lab: LabHandle, run: Run, claims: frozenset[str]
) -> None:
    assert run(whole_lab, a_namesake_is_there, JOINED, "-k", "registers_node").deviating() >= claims


@BUGS_TOO
@falls("monitoring.one-way-from-apiserver", "monitoring.one-way-to-apiserver", "monitoring.short-blip")
def test_one_way_partition_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, one_node_is_marked_lost_and_none_is_detected, ONE_WAY)


@BUGS_TOO
@falls("out-of-service.key-spelling", "out-of-service.needs-not-ready")
def test_out_of_service_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, nobody_may_try_and_pods_go_by_force, OUT_OF_SERVICE)


@BUGS_TOO
@falls("deletion-gc.terminated-threshold")
@falls("eviction.metrics", "eviction.separate-controller", "eviction.toleration-survives-restart")
@falls("monitoring.controller-restart-resets")
def test_controller_manager_restart_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(clocks_go_on, somebody_else_evicts_and_collects)
    deviate(whole_lab, alter, RESTARTED, "-k", "not timeout")


@falls("registration.with-taints-noop-without-register", "registration.with-taints-not-reconciled")
def test_startup_taint_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, starts_taint, EDITS, "-k", "keeps_taints")


@BUGS_TOO
@falls("capacity.max-pods")
def test_max_pods_claim_deviates_if_another_capacity_is_reported(
    whole_lab: LabHandle, deviate: Deviate
) -> None:
    deviate(whole_lab, other_numbers_are_reported, EDITS, "-k", "110")


@BUGS_TOO
@falls("registration.no-reregister-after-delete")
def test_reregistration_claim_deviates_if_creation_is_denied(whole_lab: LabHandle, deviate: Deviate) -> None:
    deviate(whole_lab, a_kubelet_may_not_make_its_node, DELETED)


def nobody_may_taint(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    its = {"name": "its", "expression": f"request.userInfo.username == '{CONTROLLER}'"}
    with refused(cluster, [rule], [its]):
        cluster.over.wait()
    # The controller retries the removal of a condition taint when the Node changes, after 5 min.
    assert eventually(lambda: not unready_after_a_change(cluster), VISIBLE_TIMEOUT_S)


def unready_after_a_change(cluster: Cluster) -> list[str]:
    """Return nodes that are not Ready, have no taints yet and have just changed."""
    api, names = cluster.lab.cluster.api, cluster.lab.fleet.node_names()
    for name in names:
        api.patch(node(name), {"metadata": {"annotations": {"nodeproof.dev/changed": uuid.uuid4().hex}}})
    return list(not_ready(api, names))


def somebody_deletes_a_lost_node_that_exists(cluster: Cluster) -> None:
    lost = cluster.until_injected("power-off")
    until_lost(cluster, lost)
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    cluster.lab.cluster.api.delete(node(lost))


def the_cloud_is_queried_about_a_healthy_node(cluster: Cluster) -> None:
    well = cluster.until_injected("power-off", often=2)
    cluster.until_recorded(f"the cloud says {well}: gone")
    pause(SLACK_S)
    call = {"time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "method": "InstanceExists"}
    folder = registry.client(cluster.lab.name).status().settings
    append = 'cat >>"$(ls "$0"/cloud-controller-manager/*.calls)"'
    cluster.command("sh", "-c", append, folder, stdin=f"{json.dumps({**call, 'node': well})}\n")


def an_address_that_nobody_answers_at_is_taken_away(cluster: Cluster) -> None:
    """Until the cloud reports it again."""
    cluster.until_recorded(f"kubelet at {NOBODYS}")
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    api, path = cluster.lab.cluster.api, node("cloud-node")
    others = [address for address in api.get(path)["status"]["addresses"] if address["address"] != NOBODYS]
    api.patch(f"{path}/status", {"status": {"addresses": others}})


@BUGS_TOO
@falls("cloud.node-deleted-when-vm-gone", "cloud.only-unhealthy-checked", "cloud.shutdown-taint")
@falls("cloud.vm-exists-kept")
def test_cloud_claims_deviate(whole_lab: LabHandle, deviate: Deviate) -> None:
    alter = combined(
        nobody_may_taint,
        somebody_deletes_a_lost_node_that_exists,
        the_cloud_is_queried_about_a_healthy_node,
    )
    deviate(whole_lab, alter, LOST_MACHINES)


@BUGS_TOO
@falls("addresses.external-ip-routable")
def test_cloud_address_claims_deviate_if_an_address_is_removed(
    whole_lab: LabHandle, deviate: Deviate
) -> None:
    deviate(whole_lab, an_address_that_nobody_answers_at_is_taken_away, ADDRESSES)


def ranges_are_anothers(cluster: Cluster) -> None:
    """Deny the node controller all Node updates; all manual nodes have the same range at once."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    # The controller first removes its taint from the nodes of a new lab.
    cluster.until_recorded()
    controller = "request.userInfo.username == 'system:serviceaccount:kube-system:node-controller'"
    with refused(cluster, [rule], [{"name": "controller", "expression": controller}]):
        while not cluster.over.wait(LATER_S):
            for item in cluster.lab.cluster.api.get(WATCHED["nodes"])["items"]:
                name, spec = item["metadata"]["name"], item["spec"]
                if name.startswith("by-hand-") and "podCIDR" not in spec:
                    cluster.lab.cluster.api.patch(node(name), {"spec": {"podCIDR": SAME, "podCIDRs": [SAME]}})


@BUGS_TOO
@falls("cidr.assigned", "cidr.exhausted", "cidr.immutable", "cidr.mask-size", "cidr.off-by-default")
@falls("cidr.released", "cidr.unique")
def test_pod_range_claims_deviate(own_lab: LabHandle, deviate: Deviate) -> None:
    deviate(own_lab, ranges_are_anothers, RANGES)
