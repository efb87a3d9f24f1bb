"""A small API server on loopback, with a kubeconfig and an inventory that lead to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.session.options import Options, resolve
from tests.small_server import Quiet, served
from tests.unit.test_inventory import UID
from tests.unit.test_marks import NAME


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
