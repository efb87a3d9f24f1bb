"""The commands `mark` and `unmark` against a small API server that keeps one Node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof import cli
from nodeproof.existing.marks import ANNOTATION
from nodeproof.model.pattern import Json
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
            self._answer_request(
                status, cluster.node if status == 200 else {"message": "refused by the test"}
            )

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


def test_mark_is_written_again_after_a_conflict(cluster: Cluster) -> None:
    cluster.conflicts = 2
    assert cli.main(["mark", "--cluster", "cluster.yaml", NAME]) == 0
    assert json.loads(cluster.node["metadata"]["annotations"][ANNOTATION])["clusterUID"] == UID
    assert cluster.methods.count("PATCH") == 3


def test_node_that_always_changes_is_not_marked(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.conflicts = 100
    assert cli.main(["mark", "--cluster", "cluster.yaml", NAME]) == 2
    assert "changes at each attempt" in capsys.readouterr().err
    assert cluster.node["metadata"]["annotations"] == {}


def test_refused_write_names_the_rights(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.patch_status = 403
    assert cli.main(["mark", "--cluster", "cluster.yaml", NAME]) == 2
    assert "list and patch on nodes" in capsys.readouterr().err


def test_unreadable_mark_is_listed_and_removed(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.node["metadata"]["annotations"] = {ANNOTATION: "{", "other": "stays"}
    assert cli.main(["mark", "--cluster", "cluster.yaml", "--list"]) == 0
    assert "cannot be read" in capsys.readouterr().out
    assert cli.main(["unmark", "--cluster", "cluster.yaml", NAME]) == 0
    assert cluster.node["metadata"]["annotations"] == {"other": "stays"}


def test_unmark_of_an_absent_node_is_a_problem(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["unmark", "--cluster", "cluster.yaml", "absent"]) == 2
    assert "no Node absent" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], [NAME, "--list"], [NAME, "--until", "soon"], [NAME, "--until", "2001-01-31T18:00"]],
    ids=["no node", "node and list", "no time", "past"],
)
def test_bad_arguments_write_nothing(cluster: Cluster, arguments: list[str]) -> None:
    assert cli.main(["mark", "--cluster", "cluster.yaml", *arguments]) == 2
    assert cluster.methods == []
