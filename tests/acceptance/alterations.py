"""Alterations of a cluster without the harness's knowledge, each of which must make a claim deviate."""

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

from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pod, pods
from nodeproof.cluster.workloads import HOSTNAME_LABEL
from nodeproof.labs.client import registry
from nodeproof.model.cluster import UNREACHABLE, condition_status, has_taint
from tests.acceptance.altered import Alteration, Cluster
from tests.waiting import pause

Json = Any
LATE_S = 4.0
SLACK_S = 1.5
ETCD = ("127.0.0.1", 2379)
ANSWER_TIMEOUT_S = 10.0
BUGS_TOO = pytest.mark.night("the same claims deviate by bugs compiled into Kubernetes: make sensitivity")
"""Every claim that a process lab proves has a bug (tests/unit/test_sensitivity.py). One altered cluster for
each component is in `make test` (test_component_mutations.py).
"""


def pods_leave_at_once(cluster: Cluster) -> None:
    cluster.until_unreachable()
    cluster.remove_pod()


def the_pod_is_marked_lost(cluster: Cluster) -> None:
    """Like controllers that no longer exist (NodeUnreachablePodReason in pkg/util/node/node.go)."""
    cluster.until_unreachable()
    # An event within the slack may precede the anchor.
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
    # An event within the slack may precede the node's Ready.
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
    """To its intended node, although no scheduler runs."""

    def pending() -> list[tuple[str, str]]:
        items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
        wanted = [(item, (item["spec"].get("nodeSelector") or {}).get(HOSTNAME_LABEL)) for item in items]
        return [
            (item["metadata"]["name"], on) for item, on in wanted if on and not item["spec"].get("nodeName")
        ]

    # An event within the slack may precede the anchor.
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
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    bind(cluster, green()[0], cluster.target)


def bind(cluster: Cluster, name: str, on: str) -> None:
    """Bind like the scheduler, whatever the state of the node."""
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
    """Until its kubelet reports otherwise."""
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
    """Delete the scenario's pod in etcd, bypassing the API server."""
    cluster.until_cordoned()
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    key = f"/registry/pods/{NAMESPACE}/{cluster.pod()['metadata']['name']}".encode()
    with closing(HTTPConnection(*ETCD)) as connection:
        connection.sock = registry.client(cluster.lab.name).dial(*ETCD, ANSWER_TIMEOUT_S)
        connection.request("POST", "/v3/kv/deleterange", json.dumps({"key": b64encode(key).decode()}))
        answer = json.load(connection.getresponse())
    assert answer.get("deleted") == "1", answer


def nobody_taints_a_manual_node(cluster: Cluster) -> None:
    """Remove the first taint: the API server adds it, and the controller removes it if it still can."""

    def by_hand() -> list[str]:
        items = cluster.lab.cluster.api.get(WATCHED["nodes"])["items"]
        return [item["metadata"]["name"] for item in items if "by-hand" in item["metadata"]["name"]]

    nobody_taints(cluster)
    cluster.until(by_hand)
    (name,) = by_hand()
    cluster.lab.cluster.api.patch(node(name), {"spec": {"taints": None}})


def somebody_else_says_unknown(cluster: Cluster) -> None:
    """Set Ready to Unknown: the node controller does not change a condition that is already Unknown."""
    cluster.until_recorded('"step":"injected"')
    conditions = [
        {**entry, "status": "Unknown", "reason": "Altered"} if entry["type"] == "Ready" else entry
        for entry in cluster.node()["status"]["conditions"]
    ]
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", {"status": {"conditions": conditions}})


def a_boot_is_forgotten(cluster: Cluster) -> None:
    """Clear the Node's boot id: a kubelet without an earlier one reports no reboot."""
    cluster.until(lambda: condition_status(cluster.node(), "Ready") == "Unknown")
    forgotten = {"status": {"nodeInfo": {"bootID": ""}}}
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", forgotten)


def somebody_uncordons(cluster: Cluster) -> None:
    cluster.until_cordoned()
    cluster.lab.cluster.api.patch(node(cluster.target), {"spec": {"unschedulable": None}})


def edits_are_undone(cluster: Cluster) -> None:
    cluster.until(lambda: cluster.node()["spec"].get("unschedulable"))
    # An event within the slack may precede the anchor.
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
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    wrong = {"status": {"nodeInfo": {"kernelVersion": "altered"}}}
    cluster.lab.cluster.api.patch(f"{node(cluster.target)}/status", wrong)


def somebody_marks_the_pod(cluster: Cluster) -> None:
    cluster.until_recorded('"step":"injected"')
    # An event within the slack may precede the anchor.
    pause(SLACK_S)
    labelled_pod = cluster.pod()
    conditions = [
        {**entry, "status": "False"} if entry["type"] == "Ready" else entry
        for entry in labelled_pod["status"]["conditions"]
    ]
    status = f"{pod(NAMESPACE, labelled_pod['metadata']['name'])}/status"
    cluster.lab.cluster.api.patch(status, {"status": {"conditions": conditions}})


def a_kubelet_stands_still_until_it_is_lost(cluster: Cluster) -> None:
    """On each refused request."""
    for often in (1, 2):
        name = cluster.until_injected("refused", often=often)
        cluster.pause(f"kubelet-{name}")
        until_lost(cluster, name)
        # For half of the counted time, so that its tries are too rare.
        cluster.over.wait(4.0)
        cluster.go_on()


def until_lost(cluster: Cluster, name: str) -> None:
    cluster.until(lambda: condition_status(cluster.lab.cluster.api.get(node(name)), "Ready") == "Unknown")


def a_kubelet_is_refused(cluster: Cluster) -> None:
    """Refuse its status updates and its Lease creation, from before the scenario begins."""
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
    """Make the API server refuse matching requests."""
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


def on_the_target(cluster: Cluster, kind: str) -> list[Json]:
    """Return the pods bound to the target."""
    return on(cluster.target, cluster, kind)


def on(name: str, cluster: Cluster, kind: str) -> list[Json]:
    """Return the scenario's pods on a node with a controller of this kind, or without a controller."""

    def owner(item: Json) -> str:
        (owner,) = item["metadata"].get("ownerReferences") or [{"kind": ""}]
        return str(owner["kind"])

    items = cluster.lab.cluster.api.get(pods(NAMESPACE))["items"]
    here = (item for item in items if item["spec"].get("nodeName") == name)
    return [item for item in here if owner(item) == kind and item["metadata"]["name"] != SENTINEL]


def tolerated_s(item: Json) -> int | None:
    """Return how long a pod tolerates an unreachable node; None means forever."""
    tolerations = {entry["key"]: entry.get("tolerationSeconds") for entry in item["spec"]["tolerations"]}
    seconds: int | None = tolerations[UNREACHABLE]
    return seconds


def remove(cluster: Cluster, item: Json, grace_s: int | None = None) -> None:
    cluster.lab.cluster.api.delete(pod(NAMESPACE, item["metadata"]["name"]), grace_s)


def combined(*alterations: Alteration) -> Alteration:
    """Combine several alterations of one cluster, run in parallel."""

    def all_of_them(cluster: Cluster) -> None:
        with ThreadPoolExecutor(len(alterations)) as pool:
            for altering in [pool.submit(alter, cluster) for alter in alterations]:
                altering.result()

    all_of_them.__name__ = ", ".join(alter.__name__ for alter in alterations)
    return all_of_them
