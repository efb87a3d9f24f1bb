"""A small API server on loopback, with a kubeconfig and an inventory that lead to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.session.options import Options, resolve
from tests.unit.test_inventory import UID
from tests.unit.test_marks import NAME


class JsonHandler(BaseHTTPRequestHandler):
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

    def log_message(self, *_arguments: object) -> None:
        """Keep the output of the test short."""


@contextmanager
def serving(handler: type[JsonHandler], folder: Path, faults: Sequence[str]) -> Iterator[None]:
    """Serve, and write `config` and `cluster.yaml`, which allows faults on one node, into a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    inventory = {
        "cluster": {"kubeconfig": "config", "context": "x", "uid": UID},
        "ssh": {"config": "config", "known_hosts": "config"},
        "nodes": {NAME: {"may": list(faults)}},
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(inventory))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


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
