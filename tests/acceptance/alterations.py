"""Alterations of a cluster without the harness's knowledge, each of which must make a claim deviate."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection

from nodeproof.cluster.resources import NAMESPACE, node
from nodeproof.labs.client import registry
from nodeproof.model.pattern import Json
from tests.acceptance.altered import Alteration, Cluster
from tests.waiting import pause

LATE_S = 4.0
LATE_TAINT = {"key": "nodeproof.dev/late", "value": "yes", "effect": "NoSchedule"}
SLACK_S = 1.5
ETCD = ("127.0.0.1", 2379)
ANSWER_TIMEOUT_S = 10.0


def a_renewal_is_late(cluster: Cluster) -> None:
    cluster.until_recorded()
    pause(LATE_S)
    cluster.pause(f"kubelet-{cluster.target}")
    pause(LATE_S)
    cluster.go_on()


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


def startup_taints_are_reconciled(cluster: Cluster) -> None:
    """Taint two nodes as if their kubelets reconciled it: one restarts with it, and one Node is recreated."""
    api, taint = cluster.lab.cluster.api, {"spec": {"taints": [LATE_TAINT]}}
    name = cluster.until_injected("kubelet-settings")
    pause(SLACK_S)
    api.patch(node(name), taint)
    cluster.until_injected("node-deleted")
    cluster.until(lambda: api.get(node(name)))
    # One watch delivers the creation and the taint: their order is known.
    api.patch(node(name), taint)
    cluster.over.wait()
    api.patch(node(name), {"spec": {"taints": None}})


def combined(*alterations: Alteration) -> Alteration:
    """Combine several alterations of one cluster, run in parallel."""

    def all_of_them(cluster: Cluster) -> None:
        with ThreadPoolExecutor(len(alterations)) as pool:
            for altering in [pool.submit(alter, cluster) for alter in alterations]:
                altering.result()

    all_of_them.__name__ = ", ".join(alter.__name__ for alter in alterations)
    return all_of_them
