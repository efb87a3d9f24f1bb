"""What a scenario may ask of its lab: nothing that is misspelt passes unseen."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.model.needs import FEATURES, Needs
from nodeproof.model.problem import Problem


def test_what_is_asked_is_what_is_needed() -> None:
    asked = {"nodes": 3, "faulted": 1, "zones": 2, "features": ("swap", "systemd"), "profile": "documented"}
    assert Needs.of(asked, "here") == Needs(3, 1, 2, frozenset({"swap", "systemd"}), "documented")
    assert Needs.of({}, "here") == Needs()


def test_zones_may_be_of_different_sizes_and_lose_nodes_each() -> None:
    needs = Needs.of({"nodes": (20, 3), "faulted": (11, 2), "radius": "zone"}, "here")
    assert (needs.nodes, needs.zones, needs.spread) == (23, 2, (20, 3))
    assert (needs.faulted, needs.faulted_in) == (13, (11, 2))


@pytest.mark.parametrize(
    ("asked", "said"),
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
def test_what_nobody_knows_is_refused_in_one_line(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(Problem, match=said) as refused:
        Needs.of(asked, "test_it.py::test_it")
    assert "test_it.py::test_it" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "is_alone"),
    [
        ({}, False),
        ({"nodes": 3, "faulted": 2}, False),
        ({"isolation": "cluster"}, True),
        ({"components": ("etcd",)}, True),
        ({"radius": "zone"}, True),
        ({"zones": 2}, True),
    ],
)
def test_who_harms_more_than_a_zone_shares_its_lab_with_nobody(asked: dict[str, Any], is_alone: bool) -> None:
    assert Needs.of(asked, "here").is_alone is is_alone


def test_every_feature_is_said_in_a_sentence() -> None:
    assert all(sentence.endswith(tuple("abcdefghijklmnopqrstuvwxyz")) for sentence in FEATURES.values())
