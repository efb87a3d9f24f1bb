"""The commands `mark` and `unmark` against a small API server that keeps one Node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof.existing.marks import ANNOTATION
from nodeproof.model.pattern import Json
from tests.unit.in_process import Call
from tests.unit.own_cluster import JsonHandler, serving
from tests.unit.test_inventory import UID
from tests.unit.test_marks import NAME, node


class Cluster:
    """One Node, which changes before each of the next `conflicts` patches, and the requests' methods."""

    def __init__(self) -> None:
        self.node = node()
        self.node["metadata"] |= {"uid": "node-uid", "resourceVersion": "1"}
        self.conflicts, self.methods, self.patch_status = 0, list[str](), 200

    def patch(self, metadata: Json) -> int:
        """Apply a merge patch of annotations, and return the HTTP status."""
        if self.patch_status != 200:
            return self.patch_status
        if self.conflicts:
            self.conflicts -= 1
            self.node["metadata"]["resourceVersion"] += "0"
        current = self.node["metadata"]
        if any(metadata.get(key, current[key]) != current[key] for key in ("resourceVersion", "uid")):
            return 409
        merged = {**current["annotations"], **metadata["annotations"]}
        current["annotations"] = {key: text for key, text in merged.items() if text is not None}
        return 200


def handler_of(cluster: Cluster) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if self.path.endswith("/kube-system"):
                self._answer_request(200, {"metadata": {"uid": UID}})
            else:
                self._answer_request(200, {"items": [cluster.node]})

        def do_POST(self) -> None:
            self.body()
            self._answer_request(201, {"status": {"userInfo": {"username": "ann"}}})

        def do_PATCH(self) -> None:
            status = cluster.patch(self.body()["metadata"])
            self._answer_request(status, cluster.node if status == 200 else {"message": "refused"})

        def _answer_request(self, status: int, body: Json) -> None:
            cluster.methods.append(self.command)
            self.answer(status, body)

    return Handler


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Serve the cluster, and make the folder of its kubeconfig and inventory the working folder."""
    cluster = Cluster()
    monkeypatch.chdir(tmp_path)
    with serving(handler_of(cluster), tmp_path, ["partition"]):
        yield cluster


MARK, UNMARK = ("mark", "--cluster", "cluster.yaml"), ("unmark", "--cluster", "cluster.yaml")


def test_mark_is_written_again_after_a_conflict(cluster: Cluster, call: Call) -> None:
    cluster.conflicts = 2
    assert call(*MARK, NAME).status == 0
    assert json.loads(cluster.node["metadata"]["annotations"][ANNOTATION])["clusterUID"] == UID
    assert cluster.methods.count("PATCH") == 3


def test_node_that_always_changes_is_not_marked(cluster: Cluster, call: Call) -> None:
    cluster.conflicts = 100
    assert "changes at each attempt" in call(*MARK, NAME).refusal
    assert cluster.node["metadata"]["annotations"] == {}


def test_refused_write_names_the_rights(cluster: Cluster, call: Call) -> None:
    cluster.patch_status = 403
    assert "list and patch on nodes" in call(*MARK, NAME).refusal


def test_unreadable_mark_is_listed_and_removed(cluster: Cluster, call: Call) -> None:
    cluster.node["metadata"]["annotations"] = {ANNOTATION: "{", "other": "stays"}
    assert "cannot be read" in call(*MARK, "--list").out
    assert call(*UNMARK, NAME).status == 0
    assert cluster.node["metadata"]["annotations"] == {"other": "stays"}


def test_node_of_another_cluster_is_not_marked(cluster: Cluster, call: Call, tmp_path: Path) -> None:
    inventory = tmp_path / "cluster.yaml"
    inventory.write_text(inventory.read_text().replace(UID, UID.replace("1", "2")))
    assert "the inventory is about another cluster" in call(*MARK, NAME).refusal
    assert cluster.node["metadata"]["annotations"] == {}


def test_unmark_of_an_absent_node_is_a_problem(cluster: Cluster, call: Call) -> None:
    assert "no Node absent" in call(*UNMARK, "absent").refusal


@pytest.mark.parametrize(
    "arguments",
    [[], [NAME, "--list"], [NAME, "--until", "soon"], [NAME, "--until", "2001-01-31T18:00"]],
    ids=["no node", "node and list", "no time", "past"],
)
def test_bad_arguments_write_nothing(cluster: Cluster, call: Call, arguments: list[str]) -> None:
    assert call(*MARK, *arguments).refusal
    assert cluster.methods == []
