"""Configurations of an existing cluster's kubelets, from each itself or through the API server."""

from __future__ import annotations

import copy
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address

import urllib3
from kubernetes.client import ApiClient

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz, sole_configuration
from nodeproof.existing.connection import REQUESTS_PER_S, Access, Pace
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

Node = Mapping[str, Json]
Read = Callable[[Node], Mapping[str, Json]]
"""A way to read the configuration of a node's kubelet. Raises ApiError, Problem."""
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 4.0
_TIMEOUT = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, total=ANSWER_TIMEOUT_S)
_ALL_S = 8.0
"""Time (s) in which the reads of all kubelets begin, or as long as the rate takes for all of them."""
_THREADS = int(CONNECT_TIMEOUT_S * REQUESTS_PER_S)
"""As many as keep the rate while no kubelet answers."""
_MOST_BYTES = 1 << 20
"""A kubelet's configuration has a few KiB."""
_PORT = 10250
_REFUSALS = {
    401: "the kubelet does not accept the user's credentials",
    403: "the kubelet wants get on nodes/configz, before Kubernetes 1.33 on nodes/proxy",
}
_SELF_SIGNED = (18, 19)
"""X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN (openssl/x509_vfy.h)."""


@dataclass(frozen=True)
class Kubelets:
    """The configuration of each node's kubelet as far as it was read, and why the others were not."""

    configurations: Mapping[str, Mapping[str, Json]]
    unread: Mapping[str, str]


def read_kubelets(nodes: Sequence[Node], ways: Sequence[Read]) -> Kubelets:
    """Read the configuration of each node's kubelet by the first way that succeeds, nodes in parallel."""
    most_s = max(_ALL_S, len(nodes) / REQUESTS_PER_S + CONNECT_TIMEOUT_S)
    end_t = time.monotonic() + most_s

    def read(node: Node) -> Mapping[str, Json] | str:
        if time.monotonic() > end_t:
            return f"not read: too many kubelets did not answer in {most_s:g} s"
        reasons = []
        for way in ways:
            try:
                return way(node)
            except (ApiError, Problem, ValueError) as error:
                reasons.append(str(error))
        return "; ".join(reasons)

    names = [str(node["metadata"]["name"]) for node in nodes]
    with ThreadPoolExecutor(_THREADS) as threads:
        results = dict(zip(names, threads.map(read, nodes), strict=True))
    unread = {name: result for name, result in results.items() if isinstance(result, str)}
    read_ones = {name: result for name, result in results.items() if not isinstance(result, str)}
    return Kubelets(read_ones, unread)


def directly(access: Access, user_agent: str, pace: Pace) -> Read:
    """Return the way that connects to the kubelet, with the user's credentials and the cluster's CA.

    A proxy and a server name of the kubeconfig concern the API server only.
    """
    configuration = copy.deepcopy(access.client.configuration)
    configuration.proxy = configuration.tls_server_name = None
    client = ApiClient(configuration)
    headers = {"Accept": "application/json", "User-Agent": user_agent}
    client.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)

    def read(node: Node) -> Mapping[str, Json]:
        if not configuration.ssl_ca_cert:
            # Without it, urllib3 trusts the CAs of the system: another host could get the token.
            raise ApiError(0, "the kubeconfig has no certificate-authority to verify kubelets by")
        url = f"https://{_endpoint(node)}/configz"
        pace.wait()
        try:
            response = client.rest_client.pool_manager.request(
                "GET", url, headers=headers, timeout=_TIMEOUT, retries=False, preload_content=False
            )
            content = json.loads(_content(response)) if response.status == 200 else {}
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ApiError(0, _reason(error)) from error
        if response.status != 200:
            raise ApiError(response.status, _REFUSALS.get(response.status, "an error of the kubelet"))
        return sole_configuration(content, "the kubelet")

    return read


def by_nodes_proxy(api: Api) -> Read:
    """Return the way through the API server, which needs get on nodes/proxy."""
    return lambda node: kubelet_configz(api, str(node["metadata"]["name"]))


def not_allowed(_node: Node) -> Mapping[str, Json]:
    """Read no kubelet. Raises ApiError."""
    raise ApiError(0, "/configz of a kubelet needs --read-kubelets or --allow-nodes-proxy")


def _endpoint(node: Node) -> str:
    """Return the internal address of a node and its kubelet's port. Raises ApiError if it has none."""
    status = node["status"]
    addresses = [entry["address"] for entry in status.get("addresses") or () if entry["type"] == "InternalIP"]
    if not addresses:
        raise ApiError(0, "the Node has no InternalIP")
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or _PORT
    try:
        address = ip_address(addresses[0])
    except ValueError as error:
        # A kubelet writes it, and a name could be another host's.
        raise ApiError(0, "the Node's InternalIP is no IP address") from error
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _content(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return the content of an answer. Raises ValueError if it is too long or slow, HTTPError."""
    end_t, content = time.monotonic() + ANSWER_TIMEOUT_S, b""
    try:
        for part in response.stream(1 << 16):
            content += part
            if len(content) > _MOST_BYTES or time.monotonic() > end_t:
                raise ValueError("too much, or too slow")
        return content
    finally:
        response.close()


def _reason(error: Exception) -> str:
    """Return why a kubelet was not read, in the same words for all kubelets with this reason."""
    cause = error.args[0] if error.args else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code in _SELF_SIGNED:
            return "the certificate is self-signed, as a kubelet's own is without serverTLSBootstrap"
        problem = cause.verify_message.partition(",")[0]
        return f"the certificate is not verified by the cluster's CA: {problem}"
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError | urllib3.exceptions.NewConnectionError):
        return "the kubelet cannot be reached from here"
    return f"the kubelet does not answer /configz: {type(error).__name__}"
