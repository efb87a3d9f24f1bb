"""The command `audit` against a small API server: output, exit codes, and the requests that it sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import cli
from nodeproof.audit import running
from nodeproof.report import rundir
from tests.unit.test_audit import node

Json = Any
NAME, RENEWAL_S, BOOKMARK_S = "node-1", 1.0, 0.2
FINGERPRINT = "nodeproof-audit"


class Cluster:
    """One Node whose Lease is renewed each second, and what was requested."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.node = node()
        self.node["metadata"] |= {"resourceVersion": "10"}
        self.over = threading.Event()
        self._rv, self._lock = 20, threading.Lock()
        self.renewals: list[Json] = []
        self.renew()

    def renew(self) -> Json:
        """Renew the Lease, and return it."""
        with self._lock:
            self._rv += 1
            meta = {
                "name": NAME,
                "namespace": "kube-node-lease",
                "uid": "l",
                "resourceVersion": str(self._rv),
            }
            spec = {"holderIdentity": NAME, "leaseDurationSeconds": 4 * RENEWAL_S}
            spec["renewTime"] = datetime.now(UTC).isoformat()
            self.renewals.append({"metadata": meta, "spec": spec})
            return self.renewals[-1]

    def listed(self, resource: str) -> Json:
        """Return a list as it is now."""
        with self._lock:
            items = [self.node] if resource == "nodes" else self.renewals[-1:]
            return {"metadata": {"resourceVersion": str(self._rv)}, "items": items}

    def events(self, resource: str, since_rv: int) -> Iterator[Json]:
        """Yield the events of a watch, with bookmarks."""
        while not self.over.wait(BOOKMARK_S):
            with self._lock:
                current = self._rv
                fresh = [
                    lease for lease in self.renewals if int(lease["metadata"]["resourceVersion"]) > since_rv
                ]
            for lease in fresh if resource == "leases" else ():
                yield {"type": "MODIFIED", "object": lease}
            since_rv = current
            yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(current)}}}


def handler_of(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _mark, query = self.path.partition("?")
            cluster.requests.append(("GET", self.path, self.headers["User-Agent"]))
            resource = path.rpartition("/")[2]
            if "watch=true" in query:
                self._stream(resource, int(query.partition("resourceVersion=")[2].partition("&")[0]))
            elif resource == "version":
                self._answer(200, {"gitVersion": "v1.36.3"})
            elif resource in ("nodes", "leases"):
                self._answer(200, cluster.listed(resource))
            else:
                self._answer(403, {"message": f"{path} is forbidden"})

        def do_POST(self) -> None:
            cluster.requests.append(("POST", self.path, self.headers["User-Agent"]))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            keys = (f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable"))
            body["spec"]["tolerations"] = [{"key": key, "tolerationSeconds": 300} for key in keys]
            self._answer(201, body)

        def _answer(self, status: int, body: Json) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, resource: str, since_rv: int) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            lines = (f"{json.dumps(event)}\n".encode() for event in cluster.events(resource, since_rv))
            for chunk in chain(lines, [b""]):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()

        def log_message(self, *_arguments: object) -> None:
            """Keep the output of the test short."""

    return Handler


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    """Serve a cluster on loopback, and write its kubeconfig; its Lease is renewed without delay."""
    monkeypatch.setattr(running, "_WRITE_S", 0.0)
    cluster = Cluster()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(cluster))
    threads = [
        threading.Thread(target=server.serve_forever),
        threading.Thread(target=_renewing, args=(cluster,)),
    ]
    for thread in threads:
        thread.start()
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    yield cluster
    cluster.over.set()
    server.shutdown()
    server.server_close()
    for thread in threads:
        thread.join(10)


def _renewing(cluster: Cluster) -> None:
    while not cluster.over.wait(RENEWAL_S):
        cluster.renew()


def test_healthy_cluster_conforms_and_gets_no_write_but_a_dry_run(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    arguments = ["audit", "--kubeconfig", str(tmp_path / "config"), "--format", "json", "--run", str(run)]
    status = cli.main(arguments)
    output = capsys.readouterr()
    content = json.loads(output.out)
    labels = {row["claim"]: row["code"] or row["verdict"] for row in content["verdicts"]}
    assert status == 0, content
    assert labels.pop("capacity.max-pods") == "settings-unknown"
    assert {"heartbeat.lease-interval", "eviction.default-tolerations-injected"} <= labels.keys()
    assert set(labels.values()) == {"conforms"}
    assert "context x, server http://127.0.0.1" in output.err.splitlines()[0]
    assert {path for method, path, _agent in cluster.requests if method != "GET"} == {
        "/api/v1/namespaces/default/pods?dryRun=All"
    }
    assert {agent for _method, _path, agent in cluster.requests} == {FINGERPRINT}
    assert not any("proxy" in path for _method, path, _agent in cluster.requests)
    (node_scenario,) = (entry for entry in rundir.read_scenarios(run) if entry.nodeid.endswith(NAME))
    assert node_scenario.history().of_kind("fence")


def test_altered_node_deviates_in_the_table(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MAX_OBSERVED_S", 0.5)
    cluster.node["status"]["phase"] = "Running"
    claims = ["--claim", "conditions.node-phase", "--claim", "capacity.fields"]
    status = cli.main(["audit", "--kubeconfig", str(tmp_path / "config"), *claims])
    assert status == 1
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if "deviates  " in line and "Running" in line
    ]
    assert line.startswith("conditions.node-phase")
    assert not any(method == "POST" for method, _path, _agent in cluster.requests)
