"""What somebody does to a cluster behind the harness's back, so that a claim must fall on it."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

from nodeproof.cluster.resources import NAMESPACE, WATCHED, node, pod, pods
from nodeproof.cluster.workloads import HOSTNAME_LABEL
from nodeproof.labs.client import registry
from nodeproof.model.cluster import UNREACHABLE, condition_status, has_taint
from tests.acceptance.altered import Alteration, Cluster
from tests.waiting import pause

Json = Any
LATE_S = 4.0
SLACK_S = 1.5
ETCD = ("127.0.0.1", 2379)
ANSWER_LIMIT_S = 10.0
BUGS_TOO = pytest.mark.night("the same claims deviate by bugs compiled into Kubernetes: make sensitivity")
"""Every claim that a process lab proves has a bug (tests/unit/test_bugs.py). One altered cluster for each
component is in `make test` (test_component_falls.py).
"""


def pods_leave_at_once(cluster: Cluster) -> None:
    cluster.until_unreachable()
    cluster.remove_pod()


def a_pod_is_told_lost(cluster: Cluster) -> None:
    """As controllers did that are gone (NodeUnreachablePodReason in pkg/util/node/node.go)."""
    cluster.until_unreachable()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    status = f"{pod(NAMESPACE, cluster.pod()['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"reason": "NodeLost"}})


def pods_are_removed_by_force(cluster: Cluster) -> None:
    cluster.until_pod_leaves()
    cluster.remove_pod(grace_s=0)


def taints_stay(cluster: Cluster) -> None:
    # Once pods leave, the scenario asks the controller manager for its metrics.
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
    bind(cluster, cluster.pod()["metadata"]["name"], cluster.target)


def somebody_binds_a_pod_by_hand(cluster: Cluster) -> None:
    """To the node that it is to be on, which nobody runs."""

    def pending() -> list[tuple[str, str]]:
        items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
        wanted = [(item, (item["spec"].get("nodeSelector") or {}).get(HOSTNAME_LABEL)) for item in items]
        return [
            (item["metadata"]["name"], on) for item, on in wanted if on and not item["spec"].get("nodeName")
        ]

    # What comes within the slack may have come before.
    cluster.until(pending)
    pause(SLACK_S)
    ((name, on),) = pending()
    bind(cluster, name, on)


def a_pod_is_bound_where_its_label_is_not(cluster: Cluster) -> None:
    def green() -> list[str]:
        items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
        wanted = ((item, (item["spec"].get("nodeSelector") or {}).values()) for item in items)
        return [item["metadata"]["name"] for item, labels in wanted if "green" in labels]

    cluster.until(green)
    # What comes within the slack may have come before.
    pause(SLACK_S)
    bind(cluster, green()[0], cluster.target)


def bind(cluster: Cluster, name: str, on: str) -> None:
    """Do what the scheduler does, whatever it thinks of the node."""
    target = {"kind": "Node", "name": on}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
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


def a_cordoned_node_is_not_ready(cluster: Cluster) -> None:
    """Until its kubelet says otherwise."""
    cluster.until_cordoned()
    conditions = [
        {**entry, "status": "False"} if entry["type"] == "Ready" else entry
        for entry in cluster.node()["status"]["conditions"]
    ]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": conditions}})


def nobody_schedules(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-scheduler")


def nobody_taints(cluster: Cluster) -> None:
    cluster.until_recorded()
    cluster.pause("kube-controller-manager")


def etcd_loses_a_pod(cluster: Cluster) -> None:
    """Delete the scenario's pod in etcd, so that the API server has no part in it."""
    cluster.until_cordoned()
    # What comes within the slack may have come before.
    pause(SLACK_S)
    key = f"/registry/pods/{NAMESPACE}/{cluster.pod()['metadata']['name']}".encode()
    with closing(HTTPConnection(*ETCD)) as connection:
        connection.sock = registry.client(cluster.lab.name).dial(*ETCD, ANSWER_LIMIT_S)
        connection.request("POST", "/v3/kv/deleterange", json.dumps({"key": b64encode(key).decode()}))
        answer = json.load(connection.getresponse())
    assert answer.get("deleted") == "1", answer


def nobody_taints_a_hand_made_node(cluster: Cluster) -> None:
    """Its first taint is the API server's, and the controller takes it off if it still can."""

    def by_hand() -> list[str]:
        items = cluster.lab.cluster.api.get(WATCHED["nodes"])["items"]
        return [item["metadata"]["name"] for item in items if "by-hand" in item["metadata"]["name"]]

    nobody_taints(cluster)
    cluster.until(by_hand)
    (name,) = by_hand()
    cluster.lab.cluster.api.patch(node(name), {"spec": {"taints": None}})


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


def edits_are_undone(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.node()["spec"].get("unschedulable"))
    # What comes within the slack may have come before.
    pause(SLACK_S)
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"unschedulable": None}})


def a_stranger_is_in_the_zone(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    zone = cluster.lab.fleet.nodes()[0].zone
    stranger = {"metadata": {"name": f"stranger-{zone}", "labels": {"topology.kubernetes.io/zone": zone}}}
    cluster.lab.cluster.api.create(WATCHED["nodes"], stranger)
    cluster.over.wait()
    cluster.lab.cluster.api.delete(node(f"stranger-{zone}"))


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


def a_kubelet_stands_still_until_it_is_lost(cluster: Cluster) -> None:
    """Each time that something is refused it."""
    for often in (1, 2):
        name = cluster.until_injected("refused", often=often)
        cluster.pause(f"kubelet-{name}")
        until_lost(cluster, name)
        # Half of the time that is counted, or its tries were still often enough.
        cluster.over.wait(4.0)
        cluster.go_on()


def until_lost(cluster: Cluster, name: str) -> None:
    cluster.until(lambda: condition_status(cluster.lab.cluster.api.get(node(name)), "Ready") == "Unknown")


def a_kubelet_is_refused(cluster: Cluster) -> None:
    """Its updates of the status, and a Lease of its making, from before the scenario begins."""
    user = f"system:node:{cluster.target}"
    own = {"name": "own", "expression": f"request.userInfo.username == '{user}'"}
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
        for group, operation, resource in (
            ("", "UPDATE", "nodes/status"),
            ("coordination.k8s.io", "CREATE", "leases"),
        )
    ]
    with refused(cluster, rules, [own]):
        cluster.over.wait()


def somebody_says_a_phase(cluster: Cluster) -> None:
    cluster.until_recorded()
    status = f"{node(cluster.target)}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"phase": "Running"}})
    cluster.over.wait()
    cluster.lab.cluster.api.patch(status, {"status": {"phase": None}})


@contextmanager
def refused(cluster: Cluster, rules: Sequence[Json], conditions: Sequence[Json] = ()) -> Iterator[None]:
    """The API server refuses requests that match."""
    api, policies = cluster.lab.cluster.api, "/apis/admissionregistration.k8s.io/v1"
    name = f"altered-{uuid.uuid4().hex[:8]}"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": list(rules)},
            "matchConditions": list(conditions),
            "validations": [{"expression": "false", "message": "altered"}],
        },
    }
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    api.create(f"{policies}/validatingadmissionpolicies", policy)
    api.create(f"{policies}/validatingadmissionpolicybindings", binding)
    try:
        yield
    finally:
        api.delete(f"{policies}/validatingadmissionpolicybindings/{name}")
        api.delete(f"{policies}/validatingadmissionpolicies/{name}")


def nobody_may_make_nodes(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
    with refused(cluster, [rule]):
        cluster.over.wait()


def each(*alterations: Alteration) -> Alteration:
    """Several alterations of one cluster, each beside the others."""

    def all_of_them(cluster: Cluster) -> None:
        with ThreadPoolExecutor(len(alterations)) as pool:
            for altering in [pool.submit(alter, cluster) for alter in alterations]:
                altering.result()

    all_of_them.__name__ = ", ".join(alter.__name__ for alter in alterations)
    return all_of_them
