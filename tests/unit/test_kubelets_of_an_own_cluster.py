"""Kubelets that an audit reads itself: TLS servers on loopback, with each kind of credential."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from nodeproof.cluster.api import ApiError
from nodeproof.existing.connection import Pace, load_kubeconfig
from nodeproof.existing.kubelets import Kubelets, directly, read_kubelets
from nodeproof.labs.base.pki import Authority, Pair, pair_in
from nodeproof.model.pattern import Json
from tests.fakes import executable

NAME, TOKEN = "n-1", "of-the-user"
CONFIGURATION = {"maxPods": 110}
CREDENTIAL = {
    "kind": "ExecCredential",
    "apiVersion": "client.authentication.k8s.io/v1",
    "status": {"token": TOKEN},
}


@dataclass
class Kubelet:
    """A kubelet on loopback that admits a token or a certificate of its authority."""

    port: int = 0
    status: int = 200
    configz: Json = field(default_factory=lambda: {"kubeletconfig": CONFIGURATION})
    requests: list[str] = field(default_factory=list)

    def node(self, name: str = NAME, address: str = "127.0.0.1") -> Json:
        addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]
        endpoint = {"kubeletEndpoint": {"Port": self.port}}
        return {"metadata": {"name": name}, "status": {"addresses": addresses, "daemonEndpoints": endpoint}}

    def answer(self, token: str, has_certificate: bool) -> tuple[int, Json]:
        self.requests.append(token)
        if token != f"Bearer {TOKEN}" and not has_certificate:
            return 401, {}
        return self.status, self.configz


def issued(authority: Authority, host: str = "127.0.0.1") -> Pair:
    """Return a certificate for `host` that the authority issued."""
    authority.issue("kubelet", "kubelet", hosts=[host])
    return pair_in(authority.folder, "kubelet")


def self_signed(authority: Authority) -> Pair:
    """Return a certificate as a kubelet makes it for itself."""
    pair, key = pair_in(authority.folder, "own"), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n-1@1795824000")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    certificate = builder.sign(key, hashes.SHA256())
    pair.cert.write_bytes(certificate.public_bytes(Encoding.PEM))
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return pair


@contextmanager
def serving(authority: Authority, pair: Pair | None = None) -> Iterator[Kubelet]:
    """Serve a kubelet with a certificate, by default one of the authority."""
    kubelet, pair = Kubelet(), pair or issued(authority)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert isinstance(self.connection, ssl.SSLSocket)
            has_certificate = bool(self.connection.getpeercert())
            status, body = kubelet.answer(self.headers.get("Authorization", ""), has_certificate)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            pass

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.bundle))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(pair.cert, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    kubelet.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield kubelet
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def read_with(authority: Authority, user: Mapping[str, Json], *nodes: Json, **cluster: str) -> Kubelets:
    """Read kubelets with a user's credentials in a kubeconfig of the authority."""
    fields = {"server": "https://127.0.0.1:1", "certificate-authority": str(authority.bundle), **cluster}
    own = {name: value for name, value in fields.items() if value}
    content = {
        "clusters": [{"name": "prod", "cluster": own}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
        "current-context": "prod",
    }
    path = authority.folder / "config"
    path.write_text(yaml.safe_dump(content))
    way = directly(load_kubeconfig(str(path), ""), "test", Pace(100.0))
    return read_kubelets(nodes, [way])


def user_with(kind: str, authority: Authority) -> Mapping[str, Json]:
    """Return a user of a kubeconfig with a kind of credential."""
    folder = authority.folder
    if kind == "token":
        return {"token": TOKEN}
    if kind == "token file":
        (folder / "token").write_text(f"{TOKEN}\n")
        return {"tokenFile": str(folder / "token")}
    if kind == "exec plugin":
        program = executable(folder / "plugin", f"echo '{json.dumps(CREDENTIAL)}'")
        of_exec = {"command": str(program), "apiVersion": CREDENTIAL["apiVersion"]}
        return {"exec": {**of_exec, "interactiveMode": "Never"}}
    authority.issue("me", "me")
    pair = pair_in(folder, "me")
    return {"client-certificate": str(pair.cert), "client-key": str(pair.key)}


@pytest.mark.parametrize("kind", ["token", "token file", "exec plugin", "client certificate"])
def test_kubelet_admits_each_kind_of_credential(kind: str, authority: Authority) -> None:
    with serving(authority) as kubelet:
        result = read_with(authority, user_with(kind, authority), kubelet.node())
    assert result == Kubelets({NAME: CONFIGURATION}, {})


def test_proxy_and_server_name_of_the_api_server_do_not_concern_kubelets(authority: Authority) -> None:
    of_server = {"proxy-url": "http://127.0.0.1:1", "tls-server-name": "api.example"}
    with serving(authority) as kubelet:
        result = read_with(authority, {"token": TOKEN}, kubelet.node(), **of_server)
    assert result.configurations == {NAME: CONFIGURATION}


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (self_signed, "is self-signed"),
        (lambda authority: issued(authority, "127.0.0.2"), "IP address mismatch"),
    ],
)
def test_kubelet_that_is_not_verified_gets_no_token(
    certificate: Callable[[Authority], Pair], reason: str, authority: Authority
) -> None:
    with serving(authority, certificate(authority)) as kubelet:
        result = read_with(authority, {"token": TOKEN}, kubelet.node())
    assert not result.configurations
    assert reason in result.unread[NAME]
    assert kubelet.requests == []


@pytest.mark.parametrize(
    ("status", "token", "reason"),
    [(200, "wrong", "HTTP 401"), (403, TOKEN, "get on nodes/configz"), (302, TOKEN, "HTTP 302")],
)
def test_refusal_leaves_the_reason(status: int, token: str, reason: str, authority: Authority) -> None:
    with serving(authority) as kubelet:
        kubelet.status = status
        unread = read_with(authority, {"token": token}, kubelet.node()).unread[NAME]
    assert reason in unread


@pytest.mark.parametrize("configz", [[1], 5, {}, {"a": 5}, {"kubeletconfig": "x" * (1 << 21)}])
def test_other_answer_leaves_one_kubelet_unread(configz: Json, authority: Authority) -> None:
    with serving(authority) as kubelet, serving(authority) as other:
        kubelet.configz = configz
        result = read_with(authority, {"token": TOKEN}, kubelet.node(), other.node("n-2"))
    assert result.unread.keys() == {NAME}
    assert result.configurations == {"n-2": CONFIGURATION}


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1/x"])
def test_address_that_a_kubelet_invents_gets_no_request(address: str, authority: Authority) -> None:
    with serving(authority, issued(authority, "localhost")) as kubelet:
        result = read_with(authority, {"token": TOKEN}, kubelet.node(address=address))
    assert "no IP address" in result.unread[NAME]
    assert kubelet.requests == []


def test_kubeconfig_without_a_ca_reads_no_kubelet(authority: Authority) -> None:
    """The CAs of the system would verify other hosts."""
    with serving(authority) as kubelet:
        result = read_with(authority, {"token": TOKEN}, kubelet.node(), **{"certificate-authority": ""})
    assert "certificate-authority" in result.unread[NAME]
    assert kubelet.requests == []


def test_kubelets_without_an_answer_delay_an_audit_once(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=20) as silent:
        kubelet = Kubelet(port=silent.getsockname()[1])
        nodes = [kubelet.node(f"n-{number}") for number in range(10)]
        began_t = time.monotonic()
        result = read_with(authority, {"token": TOKEN}, *nodes)
    assert time.monotonic() - began_t < 15.0
    assert set(result.unread) == {node["metadata"]["name"] for node in nodes}


def test_kubelet_that_cannot_be_reached_is_unread(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        kubelet = Kubelet(port=closed.getsockname()[1])
    assert "cannot be reached" in read_with(authority, {"token": TOKEN}, kubelet.node()).unread[NAME]


def test_second_way_is_tried_only_where_the_first_fails() -> None:
    def first(node: Json) -> Json:
        if node["metadata"]["name"] == "n-2":
            raise ApiError(0, "not reached")
        return {"way": 1}

    nodes = [Kubelet().node(name) for name in ("n-1", "n-2")]
    result = read_kubelets(nodes, (first, lambda _node: {"way": 2}))
    assert result.configurations == {"n-1": {"way": 1}, "n-2": {"way": 2}}
