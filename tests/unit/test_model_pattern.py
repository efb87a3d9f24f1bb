"""Patterns of API objects, and fields that objects have."""

from __future__ import annotations

from typing import Any

import pytest

from nodeproof.checks import checks, moments
from nodeproof.model import window as windows
from nodeproof.model.judgment import Moment
from nodeproof.model.pattern import PRESENT, fault, fields_of, matches, paths, unknown, value_at
from tests.unit.histories import NODE, Story, configuration
from tests.unit.sample_checks import UNKNOWN, run

NODE_OBJECT = {
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
def test_patterns_match_as_expected(pattern: Any, expected: bool) -> None:
    assert matches(pattern, NODE_OBJECT) is expected


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


def test_misspelt_operator_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        matches({"metadata": {"$perfix": "n"}}, NODE_OBJECT)


def test_paths_of_a_pattern_are_listed() -> None:
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
def test_value_at_a_path_is_read(path: str, expected: Any) -> None:
    assert value_at(path, NODE_OBJECT) == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"status": {"phase": "Failed", "reason": {"$prefx": "x"}}}, "unknown operator '$prefx'"),
        ({"spec": {"$not": {"a": {"$contain": "x"}}}}, "unknown operator '$contain'"),
        ({"spec": {"$prefix": "a", "b": 1}}, "must be the only key"),
        ({"spec": {"taints": []}}, "an empty pattern matches everything"),
        ({}, "an empty pattern"),
        ({"$not": {"spec": {}}}, "an empty pattern"),
    ],
)
def test_invalid_pattern_is_found_at_any_depth(pattern: Any, message: str) -> None:
    assert message in fault(pattern)


def test_valid_pattern_has_no_fault() -> None:
    assert fault({"spec": {"taints": [{"key": {"$in": ["a", None]}}], "unschedulable": PRESENT}}) == ""
    assert fault({"$not": {"metadata": {"name": "n"}}}) == ""


SCHEMAS = {
    "Node": {"properties": {"metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                            "spec": {"$ref": "#/components/schemas/Spec"}}},
    "Meta": {"properties": {"name": {"type": "string"},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
    "Spec": {"properties": {"taints": {"type": "array", "items": {"$ref": "#/components/schemas/Taint"}},
                            "child": {"$ref": "#/components/schemas/Spec"}}},
    "Taint": {"properties": {"key": {"type": "string"}}},
}  # fmt: skip
SCHEMA_FIELDS = fields_of(SCHEMAS, "Node")


def test_fields_of_a_type_are_read() -> None:
    assert {
        "metadata.name",
        "metadata.labels",
        "spec.taints",
        "spec.taints[].key",
        "spec.child.taints",
    } <= SCHEMA_FIELDS
    assert len(SCHEMA_FIELDS) < 100


@pytest.mark.parametrize(
    ("path", "is_defined"),
    [
        ("metadata.name", True),
        ("metadata.labels.anybody's", True),
        ("spec.taints[].key", True),
        ("spec.taint[].key", False),
        ("spec.taints.key", False),
        ("metadata.name.first", False),
    ],
)
def test_undefined_field_is_unknown(path: str, is_defined: bool) -> None:
    assert unknown([path], SCHEMA_FIELDS) == ([] if is_defined else [path])


def test_moment_on_an_undefined_field_is_refused() -> None:
    story = Story().condition(20.0, "Unknown")
    settings = configuration(
        fields={"nodes": SCHEMA_FIELDS | {"status.conditions[].type", "status.conditions[].status"}}
    )
    misspelt = moments.became("nodes", NODE, {"spec": {"taint": [{"key": "a"}]}})
    for check in (
        misspelt.never_after(UNKNOWN, windows.absence(5.0)),
        UNKNOWN.after(misspelt, windows.prompt(2)),
    ):
        with pytest.raises(LookupError, match=r"objects of nodes have no field spec.taint\[\].key"):
            checks.refuse(check, story.history(), settings)
    checks.refuse(UNKNOWN.after(UNKNOWN, windows.prompt(2)), story.history(), settings)


def test_fields_are_stored_once_per_run_and_not_per_configuration() -> None:
    settings = configuration(fields={"nodes": SCHEMA_FIELDS})
    assert "fields" not in settings.to_json()
    assert settings.fields == {"nodes": SCHEMA_FIELDS}


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (moments.created("pods", "late"), "pods are namespaced"),
        (moments.became("nodes", NODE, {"metadata": {"name": "x"}}, "default"), "are not namespaced"),
        (moments.removed("nodes", ""), "the name of the object in nodes is missing"),
        (moments.became("nodes", NODE, {"spec": {"taints": []}}), "an empty pattern"),
        (moments.written("nodes", {"metadata": {"name": {"$prefx": "x"}}}), "unknown operator"),
        (moments.changed("nodes", NODE, "metadata.labels.topology.kubernetes.io/zone"), "no field"),
    ],
)
def test_impossible_moment_is_refused(moment: Moment, message: str) -> None:
    story = Story().condition(20.0, "Unknown")
    check = moment.never_after(UNKNOWN, windows.absence(5.0))
    with pytest.raises(LookupError, match=message):
        checks.refuse(check, story.history(), configuration(fields={"nodes": SCHEMA_FIELDS}))


def test_absence_window_cannot_bound_a_time() -> None:
    story = Story().condition(20.0, "Unknown")
    with pytest.raises(ValueError, match="cannot bound the time"):
        run(UNKNOWN.after(UNKNOWN, windows.absence(5.0)), story.fence(40.0))
