"""A small API server on loopback, with a kubeconfig and an inventory that lead to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from nodeproof.existing.marks import Mark
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.session.options import Options, resolve
from tests.small_server import Quiet, served
from tests.unit.test_impact import member, pod
from tests.unit.test_inventory import UID
from tests.unit.test_marks import NAME, NOW, node


class JsonHandler(Quiet):
    """A handler whose requests and answers are JSON."""

    protocol_version = "HTTP/1.1"

    def body(self) -> Json:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, body: Json) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(handler: type[JsonHandler], folder: Path, faults: Sequence[str]) -> Iterator[None]:
    """Serve, and write `config` and `cluster.yaml`, which allows faults on one node, into a folder."""
    config: Json = {
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    inventory = {
        "cluster": {"kubeconfig": "config", "context": "x", "uid": UID},
        "ssh": {"config": "config", "known_hosts": "config"},
        "nodes": {NAME: {"may": list(faults)}},
    }
    with served(handler) as url:
        config["clusters"] = [{"name": "c", "cluster": {"server": url}}]
        (folder / "config").write_text(yaml.safe_dump(config))
        (folder / "cluster.yaml").write_text(yaml.safe_dump(inventory))
        yield


class Cluster:
    """Objects of a cluster with a marked Node and a pod, by path, and the requests other than reads.

    `refused` has the paths that the API server refuses to read, and `status` and `message` are its answer to
    a dry run of an eviction.
    """

    def __init__(self) -> None:
        marked = node(Mark("ann", NOW.replace(year=2999), "machine-1", UID))["metadata"]
        self.nodes: list[Json] = [member(metadata=marked)]
        self.objects: dict[str, Json] = {
            "/version": {"gitVersion": "v1.36.0"},
            "/api/v1/namespaces/kube-system": {"metadata": {"uid": UID}},
            "/api/v1/nodes": {"items": self.nodes},
            "/api/v1/pods": {"items": [pod()]},
            "/apis/policy/v1/poddisruptionbudgets": {"items": []},
            "/apis/apps/v1/deployments": {"items": []},
            "/apis/apps/v1/daemonsets": {"items": None},
        }
        self.refused = set[str]()
        self.status, self.message, self.writes = 201, "", list[tuple[str, Json]]()


def named_like(other: Json, name: str) -> Json:
    """Return a Node like another one."""
    return {**other, "metadata": {**other["metadata"], "name": name}}


def handler_of(cluster: Cluster) -> type[JsonHandler]:
    """Return what serves a cluster."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path in cluster.refused:
                self.answer(403, {"message": "forbidden"})
            else:
                self.answer(200 if path in cluster.objects else 404, cluster.objects.get(path))

        def do_POST(self) -> None:
            cluster.writes.append((self.path, self.body()))
            self.answer(cluster.status, {"message": cluster.message})

    return Handler


def refuse_run(folder: Path, reason: str, **guard: Json) -> None:
    """Assert that a guard refuses a run in one line, before the API server gets a request."""
    requests: list[str] = []

    class Untouched(JsonHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.answer(500, {})

    with serving(Untouched, folder, ["unit-down"]):
        inventory = folder / "cluster.yaml"
        inventory.write_text(yaml.safe_dump(yaml.safe_load(inventory.read_text()) | guard))
        with pytest.raises(Problem, match=reason) as refused:
            resolve(Options(cluster=str(inventory)))
    assert len(str(refused.value).splitlines()) == 1
    assert requests == []
