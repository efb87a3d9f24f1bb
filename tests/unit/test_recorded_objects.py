"""Recorded parts of foreign objects."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED, recorded
from nodeproof.model.cluster import CLUSTER_WIDE
from nodeproof.recording.recorder import follow

Json = Any
TIMEOUT_S = 30.0
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
def test_foreign_objects_are_recorded_without_secrets(resource: str, theirs: dict[str, Json]) -> None:
    assert SECRET not in json.dumps(recorded(resource, theirs))


def test_recorded_foreign_pod_has_its_node_and_lifecycle() -> None:
    reduced = recorded("pods", pod("shop"))
    assert reduced["spec"] == {"nodeName": "node-1"}
    assert reduced["status"] == {"phase": "Running", "conditions": []}
    assert reduced["metadata"]["resourceVersion"] == "7"
    assert reduced["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("resource", "ours"),
    [("pods", pod(NAMESPACE)), ("events", event("Pod", NAMESPACE)), ("events", event("Node", "default"))],
)
def test_own_objects_and_node_objects_are_recorded_in_full(resource: str, ours: dict[str, Json]) -> None:
    assert recorded(resource, ours) == ours


class TwoPods:
    """An API server with a listed and a watched foreign pod."""

    def get(self, _path: str) -> Mapping[str, Json]:
        return {"metadata": {"resourceVersion": "7"}, "items": [pod("shop")]}

    @contextmanager
    def watch(self, _path: str, _rv: str, _silence_limit_s: float) -> Iterator[list[bytes]]:
        yield [json.dumps({"type": "MODIFIED", "object": pod("shop")}).encode()]


def test_lists_and_watches_are_reduced_alike() -> None:
    stopping, messages = threading.Event(), []

    def receive(kind: str, _t: float, data: Mapping[str, Json]) -> None:
        messages.append((kind, data))
        if kind == "watch":
            stopping.set()

    follow(TwoPods(), "pods", WATCHED["pods"], receive, lambda: None, stopping, 1.0)  # type: ignore[arg-type]
    assert [kind for kind, _data in messages] == ["listed", "watch"]
    assert SECRET not in json.dumps(messages)


@pytest.mark.parametrize("name", RESOURCES)
def test_moments_and_resources_agree_on_namespaces(name: str) -> None:
    resource = RESOURCES[name]
    assert (name in CLUSTER_WIDE) == ("/namespaces/" not in resource.home)


@pytest.mark.parametrize("name", ["daemonsets", "deployments", "replicasets", "services", "statefulsets"])
def test_specifications_of_foreign_objects_are_not_recorded(name: str) -> None:
    secret = {"spec": {"template": {"spec": {"containers": [{"env": [{"value": "secret"}]}]}}}}
    meta = {"name": "theirs", "namespace": "theirs", "annotations": {"last-applied": "secret"}}
    stored = recorded(name, {"metadata": meta, **secret, "status": {"replicas": 1}})
    assert "secret" not in str(stored)
    assert stored["status"] == {"replicas": 1}


class Refusing:
    """An API server whose watch expires, and which then refuses every watch."""

    def __init__(self) -> None:
        self.refused = threading.Event()
        self._watches = 0

    def get(self, _path: str) -> Mapping[str, object]:
        return {"metadata": {"resourceVersion": "7"}, "items": []}

    def watch(self, _path: str, _rv: str, _silence_timeout_s: float) -> NoReturn:
        self._watches += 1
        if self._watches == 1:
            raise ApiError(410, "too old resource version")
        self.refused.set()
        raise ApiError(503, "shutting down")


def test_watch_that_is_not_back_at_the_end_is_a_gap() -> None:
    api, stopping, kinds = Refusing(), threading.Event(), list[str]()

    def receive(kind: str, _t: float, _data: Mapping[str, object]) -> None:
        kinds.append(kind)

    arguments = (api, "nodes", WATCHED["nodes"], receive, lambda: None, stopping, 1.0)
    thread = threading.Thread(target=follow, args=arguments)
    thread.start()
    assert api.refused.wait(TIMEOUT_S)
    stopping.set()
    thread.join(TIMEOUT_S)
    assert kinds == ["listed", "listed", "gap"]
