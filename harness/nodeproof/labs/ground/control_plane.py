"""The control plane's command lines, and the wait until it serves."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof.labs.ground.logs import AUDIT_LIMIT_MB
from nodeproof.labs.ground.network import BRIDGES
from nodeproof.labs.ground.pki import Authority, Pair, service_account_key
from nodeproof.labs.ground.profiles import FIXED, profile_named
from nodeproof.labs.ground.spec import API_ADDRESS, API_PORT, LabSpec
from nodeproof.model.needs import ATTACHER
from nodeproof.model.problem import Problem
from nodeproof.waiting import insist

Json = Any
READY_LIMIT_S = 120.0
UID_LIMIT_S = 60.0
ATTACHER_USER = "csi-attacher"
"""The name of the service account to which its manifests bind its role."""
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
_ETCD = "http://127.0.0.1:2379"
_LEASES = {"group": "coordination.k8s.io", "resources": ["leases"]}
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["get"], "resources": [_LEASES]},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class Credentials:
    """The credentials of the control plane's components."""

    authority: Authority
    admin: Pair
    api_server: Pair
    kubelet_client: Pair
    controller_manager: Pair
    scheduler: Pair
    attacher: Pair
    component_server: Pair
    service_account: Pair


def issue_credentials(folder: Path) -> Credentials:
    """Create a lab's authority and the control plane's certificates below `folder`."""
    authority = Authority(folder)
    hosts = [
        "kubernetes",
        "kubernetes.default",
        "localhost",
        "127.0.0.1",
        API_ADDRESS,
        SERVICE_ADDRESS,
        BRIDGES["control"],
    ]
    return Credentials(
        authority,
        authority.issue("admin", "nodeproof-admin", "system:masters"),
        authority.issue("apiserver", "kube-apiserver", hosts=hosts),
        authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
        authority.issue("controller-manager", "system:kube-controller-manager"),
        authority.issue("scheduler", "system:kube-scheduler"),
        authority.issue(ATTACHER, ATTACHER_USER),
        authority.issue("component-server", "component-server", hosts=["localhost", "127.0.0.1"]),
        service_account_key(folder),
    )


def kubeconfig(pair: Pair, authority: Path, user: str) -> str:
    """Return a kubeconfig for one identity (JSON, which is YAML)."""
    cluster = {"server": f"https://{API_ADDRESS}:{API_PORT}", "certificate-authority": str(authority)}
    client = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }
    )


def write_kubeconfigs(credentials: Credentials, folder: Path) -> Mapping[str, Path]:
    """Write a kubeconfig for each client of the API server; return their paths by client."""
    users = {
        "admin": credentials.admin,
        "controller-manager": credentials.controller_manager,
        "scheduler": credentials.scheduler,
        ATTACHER: credentials.attacher,
    }
    for name, pair in users.items():
        (folder / f"{name}.kubeconfig").write_text(kubeconfig(pair, credentials.authority.bundle, name))
    return {name: folder / f"{name}.kubeconfig" for name in users}


def etcd(spec: LabSpec, data: Path) -> list[str]:
    """Return the command of etcd on loopback; its data is in memory, as it need not outlive the lab."""
    peer = "http://127.0.0.1:2380"
    return [
        spec.binary("etcd"),
        f"--data-dir={data}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *_flags(FIXED["etcd"]),
        "--log-level=warn",
    ]


def api_server(spec: LabSpec, credentials: Credentials, logs: Path) -> list[str]:
    """Return the command of kube-apiserver with TLS, RBAC, Node authorizer, NodeRestriction and audit log."""
    policy = credentials.authority.folder / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    flags = {
        "etcd-servers": _ETCD,
        "bind-address": "0.0.0.0",  # noqa: S104  the lab's own network namespace
        "advertise-address": API_ADDRESS,
        "secure-port": str(API_PORT),
        "cert-dir": str(credentials.authority.folder),
        "tls-cert-file": str(credentials.api_server.cert),
        "tls-private-key-file": str(credentials.api_server.key),
        "client-ca-file": str(credentials.authority.bundle),
        "kubelet-certificate-authority": str(credentials.authority.bundle),
        "kubelet-client-certificate": str(credentials.kubelet_client.cert),
        "kubelet-client-key": str(credentials.kubelet_client.key),
        "service-cluster-ip-range": SERVICE_RANGE,
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(credentials.service_account.cert),
        "service-account-signing-key-file": str(credentials.service_account.key),
        "audit-policy-file": str(policy),
        "audit-log-path": str(logs / "audit.jsonl"),
        "audit-log-maxsize": str(AUDIT_LIMIT_MB),
        "audit-log-maxbackup": "1",
        **FIXED["kube-apiserver"],
        **profile_named(spec.profile).api_server,
    }
    return [spec.binary("kube-apiserver"), *_flags(flags)]


def controller_manager(spec: LabSpec, credentials: Credentials, config: Path) -> list[str]:
    """Return the command of kube-controller-manager with the profile's timing."""
    flags = {
        **_client_flags(credentials, config),
        "root-ca-file": str(credentials.authority.bundle),
        "service-account-private-key-file": str(credentials.service_account.key),
        **FIXED["kube-controller-manager"],
        **profile_named(spec.profile).controller_manager,
    }
    return [spec.binary("kube-controller-manager"), *_flags(flags)]


def scheduler(spec: LabSpec, credentials: Credentials, config: Path) -> list[str]:
    """Return the command of kube-scheduler with upstream's defaults, except leader election."""
    return [
        spec.binary("kube-scheduler"),
        *_flags({**_client_flags(credentials, config), **FIXED["kube-scheduler"]}),
    ]


def cloud_controller_manager(spec: LabSpec, credentials: Credentials, config: Path) -> list[str]:
    """Return the command of cloud-controller-manager with the node lifecycle controller only.

    It uses kube-controller-manager's identity. Faults set by flags what its cloud answers and whether it
    initializes nodes.
    """
    flags = {
        **_client_flags(credentials, config),
        "cloud-provider": "nodeproof",
        "controllers": "cloud-node-lifecycle-controller",
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        **profile_named(spec.profile).cloud_controller_manager,
    }
    return [spec.binary("cloud-controller-manager"), *_flags(flags)]


def _client_flags(credentials: Credentials, config: Path) -> dict[str, str]:
    """Return the flags of every component that uses the API server."""
    return {
        "kubeconfig": str(config),
        "authentication-kubeconfig": str(config),
        "authorization-kubeconfig": str(config),
        "client-ca-file": str(credentials.authority.bundle),
        "tls-cert-file": str(credentials.component_server.cert),
        "tls-private-key-file": str(credentials.component_server.key),
    }


def get(credentials: Credentials, path: str, timeout_s: float) -> tuple[int, bytes]:
    """GET a path of the API server as the lab's admin. Raises OSError, http.client.HTTPException."""
    context = ssl.create_default_context(cafile=str(credentials.authority.bundle))
    context.load_cert_chain(str(credentials.admin.cert), str(credentials.admin.key))
    connection = http.client.HTTPSConnection(API_ADDRESS, API_PORT, timeout=timeout_s, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def wait_ready(credentials: Credentials, dead: Callable[[], str]) -> None:
    """Wait until /readyz answers 200. Raises Problem if a component has died, or after READY_LIMIT_S."""
    try:
        insist(lambda: _ready(credentials, dead), OSError, http.client.HTTPException, limit_s=READY_LIMIT_S)
    except (OSError, http.client.HTTPException) as error:
        raise Problem(
            f"the API server is not ready after {READY_LIMIT_S:g} s: {error}", "lab", "see its logs"
        ) from error


def kube_system_uid(credentials: Credentials) -> str:
    """Return the UID that identifies the cluster, once its kube-system namespace exists.

    Raises OSError, http.client.HTTPException or KeyError after UID_LIMIT_S.
    """

    def fetch_uid() -> str:
        _status, body = get(credentials, "/api/v1/namespaces/kube-system", 5)
        namespace: Mapping[str, Json] = json.loads(body)
        return str(namespace["metadata"]["uid"])

    # The API server may be slow now: all kubelets of a large lab are starting.
    return insist(fetch_uid, OSError, http.client.HTTPException, KeyError, limit_s=UID_LIMIT_S)


def _ready(credentials: Credentials, dead: Callable[[], str]) -> None:
    died = dead()
    if died:
        name, _newline, last_lines = died.partition("\n")
        raise Problem(f"{name} died while the lab started", "lab", "its last log lines follow", last_lines)
    status, body = get(credentials, "/readyz", 2)
    if status != 200:
        raise OSError(f"/readyz: {status} {body[-200:]!r}")


def _flags(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
