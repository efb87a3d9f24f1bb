"""What of somebody else's objects is written into a history."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED, recorded
from nodeproof.model.cluster import CLUSTER_WIDE
from nodeproof.recording.watching import follow

Json = Any
SECRET = "hunter2"  # noqa: S105  looked for, never used


def pod(namespace: str) -> dict[str, Json]:
    container = {"name": "c", "env": [{"name": "PASSWORD", "value": SECRET}], "args": [f"--token={SECRET}"]}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET})}
    return {
        "metadata": {
            **{"name": "p", "namespace": namespace, "uid": "u", "resourceVersion": "7"},
            **{"annotations": applied, "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": []},
        },
        "spec": {"nodeName": "node-1", "containers": [container], "initContainers": [container]},
        "status": {
            "phase": "Running",
            "conditions": [],
            "containerStatuses": [{"state": {"message": SECRET}}],
        },
    }


def event(kind: str, namespace: str) -> dict[str, Json]:
    about = {"kind": kind, "name": "p", "namespace": namespace}
    return {"metadata": {"namespace": namespace}, "involvedObject": about, "reason": "Why", "message": SECRET}


@pytest.mark.parametrize(
    ("resource", "theirs"),
    [("pods", pod("shop")), ("events", event("Pod", "shop")), ("pods", pod("kube-system"))],
)
def test_of_other_peoples_objects_only_what_claims_are_about(resource: str, theirs: dict[str, Json]) -> None:
    assert SECRET not in json.dumps(recorded(resource, theirs))


def test_what_is_kept_of_a_pod_tells_where_it_is_and_when_it_goes() -> None:
    kept = recorded("pods", pod("shop"))
    assert kept["spec"] == {"nodeName": "node-1"}
    assert kept["status"] == {"phase": "Running", "conditions": []}
    assert kept["metadata"]["resourceVersion"] == "7"
    assert kept["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("resource", "ours"),
    [("pods", pod(NAMESPACE)), ("events", event("Pod", NAMESPACE)), ("events", event("Node", "default"))],
)
def test_the_harnesss_own_and_what_nodes_are_told_stay_whole(resource: str, ours: dict[str, Json]) -> None:
    assert recorded(resource, ours) == ours


class TwoPods:
    """An API server with a listed and a watched pod of somebody's."""

    def get(self, _path: str) -> Mapping[str, Json]:
        return {"metadata": {"resourceVersion": "7"}, "items": [pod("shop")]}

    @contextmanager
    def watch(self, _path: str, _rv: str, _silence_limit_s: float) -> Iterator[list[bytes]]:
        yield [json.dumps({"type": "MODIFIED", "object": pod("shop")}).encode()]


def test_nothing_else_comes_by_list_or_by_watch() -> None:
    stopping, told = threading.Event(), []

    def receive(kind: str, _t: float, data: Mapping[str, Json]) -> None:
        told.append((kind, data))
        if kind == "watch":
            stopping.set()

    follow(TwoPods(), "pods", WATCHED["pods"], receive, lambda: None, stopping, 1.0)  # type: ignore[arg-type]
    assert [kind for kind, _data in told] == ["listed", "watch"]
    assert SECRET not in json.dumps(told)


@pytest.mark.parametrize("name", RESOURCES)
def test_moments_know_which_resources_are_in_namespaces(name: str) -> None:
    resource = RESOURCES[name]
    assert (name in CLUSTER_WIDE) == ("/namespaces/" not in resource.home)


@pytest.mark.parametrize("name", ["daemonsets", "deployments", "replicasets", "services", "statefulsets"])
def test_of_other_peoples_objects_no_specification_is_kept(name: str) -> None:
    secret = {"spec": {"template": {"spec": {"containers": [{"env": [{"value": "secret"}]}]}}}}
    meta = {"name": "theirs", "namespace": "theirs", "annotations": {"last-applied": "secret"}}
    kept = recorded(name, {"metadata": meta, **secret, "status": {"replicas": 1}})
    assert "secret" not in str(kept)
    assert kept["status"] == {"replicas": 1}
