"""Marks of nodes, and whether an inventory and a cluster agree on a node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeproof.existing import marks
from nodeproof.existing.inventory import ClusterAddress, Inventory, ListedNode, Ssh
from nodeproof.existing.marks import ANNOTATION, Mark
from nodeproof.model.pattern import Json

UID, NAME, OWNER = "uid-1", "worker-7", "admin (ann@desk)"
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
VALID = Mark(OWNER, NOW + timedelta(hours=1), "machine-1", UID)
INVENTORY = Inventory(
    Path("cluster.yaml"),
    ClusterAddress("", "staging", UID),
    Ssh(Path("config"), Path("known_hosts")),
    None,
    {NAME: ListedNode(NAME, ("partition",), None, is_control_plane=False)},
)
ROLE = "node-role.kubernetes.io/control-plane"


def node(mark: Mark | str | None = None, machine_id: str = "machine-1", **fields: Json) -> Json:
    """Return a Node with a mark or its text."""
    text = mark.to_text() if isinstance(mark, Mark) else mark
    annotations = {} if text is None else {ANNOTATION: text}
    metadata = {"name": NAME, "annotations": annotations, "labels": fields.get("labels", {})}
    spec = {"taints": fields.get("taints", [])}
    return {"metadata": metadata, "spec": spec, "status": {"nodeInfo": {"machineID": machine_id}}}


def naming_control_plane() -> Inventory:
    listed = {NAME: replace(INVENTORY.nodes[NAME], is_control_plane=True)}
    return replace(INVENTORY, nodes=listed)


def test_mark_is_read_as_written() -> None:
    assert Mark.from_text(VALID.to_text()) == VALID


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", VALID.to_text().replace("+00:00", ""), "[" * 100_000])
def test_malformed_mark_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Mark.from_text(text)


@pytest.mark.parametrize(
    "mark", [None, VALID, replace(VALID, owner="bob", until=NOW)], ids=["no mark", "own", "expired"]
)
def test_listed_node_may_be_marked(mark: Mark | None) -> None:
    assert list(marks.mark_refusals(INVENTORY, NAME, {NAME: node(mark)}, OWNER, NOW)) == []


TARGETS: dict[str, tuple[Json, str]] = {
    "label": (node(VALID, labels={ROLE: ""}), "a control-plane node"),
    "taint": (node(VALID, taints=[{"key": ROLE, "effect": "NoSchedule"}]), "a control-plane node"),
    "no machine id": (node(VALID, ""), "no machineID"),
}


@pytest.mark.parametrize(("target", "message"), TARGETS.values(), ids=list(TARGETS))
def test_unsuitable_node_is_neither_marked_nor_harmed(target: Json, message: str) -> None:
    nodes = {NAME: target}
    assert any(message in reason for reason in marks.mark_refusals(INVENTORY, NAME, nodes, OWNER, NOW))
    assert any(message in reason for reason in marks.harm_refusals(INVENTORY, NAME, nodes, NOW))


def test_control_plane_node_that_the_inventory_names_is_accepted() -> None:
    nodes = {NAME: node(VALID, labels={ROLE: ""})}
    assert list(marks.mark_refusals(naming_control_plane(), NAME, nodes, OWNER, NOW)) == []
    assert list(marks.harm_refusals(naming_control_plane(), NAME, nodes, NOW)) == []


@pytest.mark.parametrize(
    ("mark", "message"), [(replace(VALID, owner="bob"), "bob has marked it"), ("{", "cannot be read")]
)
def test_unexpired_mark_of_another_owner_is_kept(mark: Mark | str, message: str) -> None:
    (reason,) = marks.mark_refusals(INVENTORY, NAME, {NAME: node(mark)}, OWNER, NOW)
    assert message in reason


def test_unlisted_or_absent_node_is_refused() -> None:
    other = {"other": node(VALID)}
    assert list(marks.mark_refusals(INVENTORY, "other", other, OWNER, NOW)) == [
        "the inventory does not list it"
    ]
    assert list(marks.mark_refusals(INVENTORY, NAME, other, OWNER, NOW)) == ["the cluster has no such Node"]
    assert list(marks.harm_refusals(INVENTORY, NAME, other, NOW)) == ["the cluster has no such Node"]


def test_valid_mark_of_any_user_is_consent() -> None:
    nodes = {NAME: node(replace(VALID, owner="bob"))}
    assert list(marks.harm_refusals(INVENTORY, NAME, nodes, NOW)) == []


DISAGREEMENTS: dict[str, tuple[Json, str]] = {
    "no mark": (node(), "it is not marked"),
    "unreadable": (node("{"), "its mark cannot be read"),
    "expired": (node(replace(VALID, until=NOW)), "its mark expired"),
    "machine replaced": (node(VALID, "machine-2"), "its mark is about another machine"),
    "restored elsewhere": (node(replace(VALID, cluster_uid="uid-2")), "its mark is about another cluster"),
}


@pytest.mark.parametrize(("target", "message"), DISAGREEMENTS.values(), ids=list(DISAGREEMENTS))
def test_disagreement_of_inventory_and_cluster_is_refused(target: Json, message: str) -> None:
    (reason,) = marks.harm_refusals(INVENTORY, NAME, {NAME: target}, NOW)
    assert reason.startswith(message)


@pytest.mark.parametrize(("minutes", "count"), [(59, 0), (61, 1)])
def test_mark_must_not_expire_within_a_fault(minutes: int, count: int) -> None:
    reasons = list(marks.expiry_refusals(node(VALID), NOW, timedelta(minutes=minutes)))
    assert [f"may last {60 * minutes} s" in reason for reason in reasons] == [True] * count
