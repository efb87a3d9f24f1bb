"""The earliest start of a Node's deletion, given an earlier quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeproof.actions import quarantine
from nodeproof.actions.action import ActionContext
from nodeproof.actions.quarantine import OVER_S, wait_podgc_quarantine
from nodeproof.model.problem import Problem
from tests.fakes import fake_lab

QUEUE = '# TYPE workqueue_retries_total counter\nworkqueue_retries_total{name="%s"} %d\n'
NONE_BEGUN = QUEUE % ("orphaned_pods_nodes", 0)
SOME_BEGUN = QUEUE % ("orphaned_pods_nodes", 3)
ANOTHER = QUEUE % ("deployment", 0)


@dataclass
class Cluster:
    """An API server whose clock advances by a second with each request."""

    metrics: str
    created: Mapping[str, float]
    now: float = 1000.0
    requests: list[float] = field(default_factory=list)

    def text_at(self, _url: str) -> str:
        return self.metrics

    def dry_run(self, _path: str, _body: Any) -> Any:
        self.now += 1.0
        self.requests.append(self.now)
        return node_created_at(self.now)

    def get(self, path: str) -> Any:
        return node_created_at(self.created[path.rpartition("/")[2]])


def node_created_at(t: float) -> Any:
    timestamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"creationTimestamp": timestamp}}


def waited(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *nodes: str) -> Cluster:
    monkeypatch.setattr(quarantine, "_PERIOD_S", 0.001)
    lab = fake_lab({"cluster.api": cluster, "name": "lab-1"})
    wait_podgc_quarantine(*nodes).do(ActionContext(lab, None, lambda _node: None))
    return cluster


def test_nothing_is_waited_for_if_no_quarantine_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = waited(monkeypatch, Cluster(NONE_BEGUN, {"a": 999.0}), "a")
    assert cluster.requests == []


@pytest.mark.parametrize("metrics", [SOME_BEGUN, ANOTHER, ""], ids=["some", "not-told", "no-metrics"])
def test_old_nodes_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    cluster = waited(monkeypatch, Cluster(metrics, {"a": 10.0, "b": 1001.0 - OVER_S}), "a", "b")
    assert cluster.requests == [1001.0]


@pytest.mark.parametrize("metrics", [SOME_BEGUN, ANOTHER, ""], ids=["some", "not-told", "no-metrics"])
def test_youngest_node_is_waited_for(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    cluster = waited(monkeypatch, Cluster(metrics, {"a": 10.0, "b": 990.0}), "a", "b")
    assert cluster.requests[-1] == 990.0 + OVER_S


def test_continually_recreated_node_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anew(Cluster):
        def get(self, _path: str) -> Any:
            return node_created_at(self.now)

    monkeypatch.setattr(quarantine, "_TIMEOUT_S", 0.05)
    with pytest.raises(Problem, match=r"one of a is younger than 71 s after a wait of 0[.]05 s"):
        waited(monkeypatch, Anew(SOME_BEGUN, {}), "a")
