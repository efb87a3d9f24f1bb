"""When a Node's deletion can be counted from: what an earlier one of its name may have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.actions import quarantine
from nodeproof.actions.action import Doing
from nodeproof.actions.quarantine import OVER_S, wait_out_orphans_quarantine
from nodeproof.model.problem import Problem

QUEUE = '# TYPE workqueue_retries_total counter\nworkqueue_retries_total{name="%s"} %d\n'
NONE_BEGUN = QUEUE % ("orphaned_pods_nodes", 0)
SOME_BEGUN = QUEUE % ("orphaned_pods_nodes", 3)
ANOTHER = QUEUE % ("deployment", 0)


@dataclass
class Cluster:
    """An API server whose clock goes on by a second each time that somebody asks for it."""

    metrics: str
    made: Mapping[str, float]
    now: float = 1000.0
    asked: list[float] = field(default_factory=list)

    def text_at(self, _url: str) -> str:
        return self.metrics

    def dry_run(self, _path: str, _body: Any) -> Any:
        self.now += 1.0
        self.asked.append(self.now)
        return made_at(self.now)

    def get(self, path: str) -> Any:
        return made_at(self.made[path.rpartition("/")[2]])


def made_at(t: float) -> Any:
    told = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"creationTimestamp": told}}


def waited(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *nodes: str) -> Cluster:
    monkeypatch.setattr(quarantine, "_PERIOD_S", 0.001)
    lab = SimpleNamespace(cluster=SimpleNamespace(api=cluster), name="lab-1")
    wait_out_orphans_quarantine(*nodes).do(Doing(cast("Any", lab), None, lambda _node: None))
    return cluster


def test_where_no_quarantine_was_ever_begun_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = waited(monkeypatch, Cluster(NONE_BEGUN, {"a": 999.0}), "a")
    assert cluster.asked == []


@pytest.mark.parametrize("metrics", [SOME_BEGUN, ANOTHER, ""], ids=["some", "not-told", "no-metrics"])
def test_nodes_that_are_old_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    cluster = waited(monkeypatch, Cluster(metrics, {"a": 10.0, "b": 1001.0 - OVER_S}), "a", "b")
    assert cluster.asked == [1001.0]


@pytest.mark.parametrize("metrics", [SOME_BEGUN, ANOTHER, ""], ids=["some", "not-told", "no-metrics"])
def test_the_youngest_node_is_waited_for(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    cluster = waited(monkeypatch, Cluster(metrics, {"a": 10.0, "b": 990.0}), "a", "b")
    assert cluster.asked[-1] == 990.0 + OVER_S


def test_a_node_that_is_made_again_all_the_while_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    class Anew(Cluster):
        def get(self, _path: str) -> Any:
            return made_at(self.now)

    monkeypatch.setattr(quarantine, "_TIMEOUT_S", 0.05)
    with pytest.raises(Problem, match=r"younger than 71 s after 0[.]05 s: one of a"):
        waited(monkeypatch, Anew(SOME_BEGUN, {}), "a")
