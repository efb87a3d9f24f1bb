"""Nodes that are not fit for a scenario yet, by their Leases and the API server's clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

import pytest

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.workloads import unfit_nodes
from nodeproof.model.pattern import Json

NOW_S, DURATION_S = 1_795_824_000.0, 8
NAMES = ("node-1", "node-2")


class Cluster:
    """An API server with Ready nodes: each renewed its Lease some time ago; its clock may be ahead (s)."""

    def __init__(self, ages_s: Mapping[str, float], ahead_s: Mapping[str, float], dated: bool = True) -> None:
        self._now_s = NOW_S if dated else 0.0
        clocks = {name: (NOW_S - age_s, ahead_s.get(name, 0.0)) for name, age_s in ages_s.items()}
        self._leases = [_lease(name, *clock) for name, clock in clocks.items()]
        self._nodes = [_node(name, *clock) for name, clock in clocks.items()]

    def get(self, path: str) -> Json:
        return {"items": {WATCHED["nodes"]: self._nodes, WATCHED["leases"]: self._leases}[path]}

    def get_dated(self, path: str) -> tuple[Json, float]:
        return self.get(path), self._now_s


def _node(name: str, renewed_s: float, ahead_s: float) -> Json:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _second(renewed_s + ahead_s - 60.0)}
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [ready]}}


def _lease(name: str, renewed_s: float, ahead_s: float) -> Json:
    owned = [
        {"manager": "kubelet", "time": _second(renewed_s), "fieldsV1": {"f:spec": {"f:renewTime": {}}}},
        {"manager": "kubectl", "time": _second(NOW_S), "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]
    return {
        "metadata": {"name": name, "managedFields": owned},
        "spec": {"renewTime": _second(renewed_s + ahead_s), "leaseDurationSeconds": DURATION_S},
    }


def _second(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unfit(*ages_s: float, ahead_s: Mapping[str, float] | None = None, dated: bool = True) -> dict[str, str]:
    cluster = Cluster(dict(zip(NAMES, ages_s, strict=True)), ahead_s or {}, dated)
    return unfit_nodes(cast("Api", cluster), NAMES)


def test_node_whose_lease_has_expired_is_unfit() -> None:
    assert unfit(1.0, 2.0) == {}
    assert unfit(1.0, 30.0) == {"node-2": "Lease renewed 30 s ago"}


def test_nodes_of_which_all_leases_have_expired_are_unfit() -> None:
    assert unfit(30.0, 31.0).keys() == set(NAMES)


@pytest.mark.parametrize("ahead_s", [3600.0, 9.0, -9.0, -3600.0])
def test_wrong_node_clock_makes_no_node_unfit(ahead_s: float) -> None:
    assert unfit(1.0, 2.0, ahead_s={"node-1": ahead_s}) == {}
    assert unfit(1.0, 30.0, ahead_s={"node-2": ahead_s}).keys() == {"node-2"}


def test_lease_without_known_clock_does_not_expire() -> None:
    assert unfit(1.0, 30.0, dated=False) == {}
