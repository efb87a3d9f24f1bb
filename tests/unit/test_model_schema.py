"""The fields of the API's objects, and what names none of them."""

from __future__ import annotations

import pytest

from nodeproof.checks import checks, moments
from nodeproof.model import window as windows
from nodeproof.model.judgment import Moment
from nodeproof.model.schema import fields_of, unknown
from tests.unit.given import UNKNOWN, run
from tests.unit.histories import NODE, Story, configuration

SCHEMAS = {
    "Node": {"properties": {"metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                            "spec": {"$ref": "#/components/schemas/Spec"}}},
    "Meta": {"properties": {"name": {"type": "string"},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
    "Spec": {"properties": {"taints": {"type": "array", "items": {"$ref": "#/components/schemas/Taint"}},
                            "child": {"$ref": "#/components/schemas/Spec"}}},
    "Taint": {"properties": {"key": {"type": "string"}}},
}  # fmt: skip
FIELDS = fields_of(SCHEMAS, "Node")


def test_the_fields_of_a_type() -> None:
    assert {
        "metadata.name",
        "metadata.labels",
        "spec.taints",
        "spec.taints[].key",
        "spec.child.taints",
    } <= FIELDS
    assert len(FIELDS) < 100


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("metadata.name", True),
        ("metadata.labels.anybody's", True),
        ("spec.taints[].key", True),
        ("spec.taint[].key", False),
        ("spec.taints.key", False),
        ("metadata.name.first", False),
    ],
)
def test_what_an_object_has_not_is_unknown(path: str, known: bool) -> None:
    assert unknown([path], FIELDS) == ([] if known else [path])


def test_a_moment_on_a_field_that_there_is_none_of_is_refused() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    known = configuration(
        fields={"nodes": FIELDS | {"status.conditions[].type", "status.conditions[].status"}}
    )
    misspelt = moments.became("nodes", NODE, {"spec": {"taint": [{"key": "a"}]}})
    for check in (
        misspelt.never_after(UNKNOWN, windows.absence(5.0)),
        UNKNOWN.after(misspelt, windows.prompt(2)),
    ):
        with pytest.raises(LookupError, match=r"objects of nodes have no field spec.taint\[\].key"):
            checks.refuse(check, story.history(), known)
    checks.refuse(UNKNOWN.after(UNKNOWN, windows.prompt(2)), story.history(), known)


def test_fields_are_kept_once_a_run_and_not_in_each_configuration() -> None:
    known = configuration(fields={"nodes": FIELDS})
    assert "fields" not in known.to_json()
    assert known.fields == {"nodes": FIELDS}


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (moments.made("pods", "late"), "pods are namespaced"),
        (moments.became("nodes", NODE, {"metadata": {"name": "x"}}, "default"), "are not namespaced"),
        (moments.removed("nodes", ""), "the name of the object in nodes is missing"),
        (moments.became("nodes", NODE, {"spec": {"taints": []}}), "an empty pattern"),
        (moments.written("nodes", {"metadata": {"name": {"$prefx": "x"}}}), "unknown operator"),
        (moments.changed("nodes", NODE, "metadata.labels.topology.kubernetes.io/zone"), "no field"),
    ],
)
def test_a_moment_that_could_never_come_is_refused(moment: Moment, said: str) -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    check = moment.never_after(UNKNOWN, windows.absence(5.0))
    with pytest.raises(LookupError, match=said):
        checks.refuse(check, story.history(), configuration(fields={"nodes": FIELDS}))


def test_the_window_of_an_absence_judges_no_time() -> None:
    story = Story()
    story.condition(20.0, "Unknown")
    with pytest.raises(ValueError, match="cannot bound the time"):
        run(UNKNOWN.after(UNKNOWN, windows.absence(5.0)), story.fence(40.0))
