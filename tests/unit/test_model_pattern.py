"""Patterns: what an object must hold, as data."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.model.pattern import PRESENT, fault, matches, paths, value_at

NODE = {
    "metadata": {"name": "node-1"},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting"}]},
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({}, True),
        ({"metadata": {"name": "node-1"}}, True),
        ({"metadata": {"name": "node-2"}}, False),
        ({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, True),
        ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, False),
        ({"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}, True),
        ({"$not": {"spec": {"taints": [{"key": "c"}]}}}, True),
        ({"status": {"conditions": [{"message": {"$contains": "posting"}}]}}, True),
        ({"status": {"conditions": [{"message": {"$prefix": "posting"}}]}}, False),
        ({"spec": {"unschedulable": {"$in": [None, False]}}}, True),
        ({"spec": {"unschedulable": PRESENT}}, False),
        ({"spec": {"unschedulable": {"$present": False}}}, True),
        ({"absent": {"deep": {"field": 1}}}, False),
        ({"absent": [{"type": "x"}]}, False),
        ({"metadata": [{"name": "node-1"}]}, False),
        ({"metadata": {"name": {"deeper": 1}}}, False),
    ],
)
def test_what_matches(pattern: Any, expected: bool) -> None:
    assert matches(pattern, NODE) is expected


FIELDS = {
    "exitCode": 0,
    "ready": False,
    "name": "",
    "list": [],
    "one": 1,
    "yes": True,
    "text": "abc",
    "null": None,
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *(({name: PRESENT}, name != "null") for name in FIELDS),
        *(({name: {"$present": False}}, name == "null") for name in FIELDS),
        ({"absent": PRESENT}, False),
        ({"one": True}, False),
        ({"yes": 1}, False),
        ({"yes": True}, True),
        ({"exitCode": False}, False),
        ({"ready": 0}, False),
        ({"exitCode": 0.0}, True),
        ({"one": {"$in": [True, None]}}, False),
        ({"one": {"$in": [2, 1]}}, True),
        ({"list": {"$in": [[]]}}, True),
        ({"one": {"$not": True}}, True),
        ({"text": ["a"]}, False),
        ({"text": {"$not": ["z"]}}, False),
        ({"text": {"x": None}}, False),
        ({"text": {"$not": {"x": 1}}}, False),
        ({"text": {"x": {"$present": False}}}, False),
        ({"list": {"x": None}}, False),
        ({"list": {"$not": {"x": 1}}}, False),
        ({"list": {"$not": [1]}}, True),
        ({"absent": {"$not": [1]}}, True),
        ({"absent": {"$not": {"x": 1}}}, True),
        ({"absent": {"x": {"$present": False}}}, True),
        ({"absent": {"x": {"$in": [None, 0]}}}, True),
        ({"text": {"$not": {"$contains": "z"}}}, True),
        ({"one": {"$not": {"$not": [1]}}}, False),
    ],
)
def test_values_keep_their_types(pattern: Any, expected: bool) -> None:
    assert matches(pattern, FIELDS) is expected


def test_an_operator_that_is_misspelt_is_no_pattern() -> None:
    with pytest.raises(KeyError):
        matches({"metadata": {"$perfix": "n"}}, NODE)


def test_the_paths_of_a_pattern() -> None:
    pattern = {
        "$not": {"spec": {"taints": [{"key": "a", "effect": {"$in": ["x"]}}]}, "metadata": {"name": "n"}}
    }
    assert paths(pattern) == {"spec.taints[].key", "spec.taints[].effect", "metadata.name"}
    assert paths({"spec": PRESENT}) == {"spec"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "node-1"),
        ("status.conditions[].type", ["Ready"]),
        ("spec.taints[].key", ["a", "b"]),
        ("spec.absent[].key", []),
        ("spec.absent", None),
        ("spec.absent.deeper", None),
    ],
)
def test_what_stands_at_a_path(path: str, expected: Any) -> None:
    assert value_at(path, NODE) == expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ({"status": {"phase": "Failed", "reason": {"$prefx": "x"}}}, "unknown operator '$prefx'"),
        ({"spec": {"$not": {"a": {"$contain": "x"}}}}, "unknown operator '$contain'"),
        ({"spec": {"$prefix": "a", "b": 1}}, "must be the only key"),
        ({"spec": {"taints": []}}, "an empty pattern matches everything"),
        ({}, "an empty pattern"),
        ({"$not": {"spec": {}}}, "an empty pattern"),
    ],
)
def test_what_is_no_pattern_is_found_wherever_it_stands(pattern: Any, said: str) -> None:
    assert said in fault(pattern)


def test_what_is_a_pattern_has_no_fault() -> None:
    assert fault({"spec": {"taints": [{"key": {"$in": ["a", None]}}], "unschedulable": PRESENT}}) == ""
    assert fault({"$not": {"metadata": {"name": "n"}}}) == ""
