"""Needs of a scenario: a misspelt one is never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.model.needs import Needs
from nodeproof.model.problem import Problem


def test_needs_are_parsed() -> None:
    options = {"nodes": 3, "faulted": 1, "zones": 2, "features": ("swap", "systemd"), "profile": "documented"}
    assert Needs.of(options, "here") == Needs(3, 1, 2, frozenset({"swap", "systemd"}), "documented")
    assert Needs.of({}, "here") == Needs()


def test_zones_may_differ_in_size_and_each_lose_nodes() -> None:
    needs = Needs.of({"nodes": (20, 3), "faulted": (11, 2), "radius": "zone"}, "here")
    assert (needs.nodes, needs.zones, needs.spread) == (23, 2, (20, 3))
    assert (needs.faulted, needs.faulted_in) == (13, (11, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faultd": 1}, "has no argument 'faultd'"),
        ({"capabilities": ("systemd",)}, "has no argument 'capabilities'"),
        ({"features": ("sytemd",)}, "unknown feature 'sytemd'"),
        ({"features": "systemd"}, "features is 'systemd'"),
        ({"features": 1}, "features is 1"),
        ({"features": ([],)}, "unknown feature"),
        ({"nodes": "2"}, "nodes is '2'"),
        ({"nodes": 0}, "nodes is 0"),
        ({"faulted": True}, "faulted is True"),
        ({"faulted": -1}, "faulted is -1"),
        ({"profile": 1}, "profile is 1"),
        ({"lasts": "2G +"}, "lasts is '2G \\+'"),
        ({"lasts": "2X"}, "no symbol X"),
        ({"lasts": 20}, "lasts is 20"),
        ({"nodes": (20, 0)}, "nodes is 0"),
        ({"nodes": (20, 3), "zones": 3}, "zones is 3"),
        ({"nodes": 4, "faulted": (1, 1)}, "zones is 1"),
        ({"spread": (20, 3)}, "has no argument 'spread'"),
        ({"isolation": "node"}, "isolation is 'node'"),
    ],
)
def test_unknown_need_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message) as refused:
        Needs.of(options, "test_it.py::test_it")
    assert "test_it.py::test_it" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "is_alone"),
    [
        ({}, False),
        ({"nodes": 3, "faulted": 2}, False),
        ({"isolation": "cluster"}, True),
        ({"components": ("etcd",)}, True),
        ({"radius": "zone"}, True),
        ({"zones": 2}, True),
    ],
)
def test_scenario_that_affects_more_than_a_zone_runs_alone(options: dict[str, Any], is_alone: bool) -> None:
    assert Needs.of(options, "here").is_alone is is_alone
