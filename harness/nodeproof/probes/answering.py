"""Probes of servers at an address, from a node or from outside of the cluster's network."""

from __future__ import annotations

import ssl

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.spec import KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.probes.probe import COMMAND_LIMIT_S, Probe

ANSWERS = "answers"
_TIMEOUT_S = 3.0
"""For the connection, and again for the TLS handshake: within a lab each takes milliseconds."""


def api_at(node: str, address: str, port: int) -> Probe:
    """Return a probe of the API at an address, called by a node's kubelet: `answers`, or the error.

    The API proves itself by its certificate. Only process nodes have this probe.
    """

    def read(lab: Lab) -> str:
        argv = [
            str(lab.components.path("kubectl")),
            "--kubeconfig=/run/node/kubeconfig",
            f"--server=https://{address}:{port}",
            f"--request-timeout={_TIMEOUT_S:g}s",
            *("get", "--raw", "/livez"),
        ]
        completed = lab.fleet.machine(node).run(argv, deadline_s=COMMAND_LIMIT_S)
        message = completed.stderr.strip().splitlines()[-1:] or [f"exit {completed.status}"]
        return ANSWERS if completed.status == 0 and completed.stdout == "ok" else message[0]

    return Probe(f"API at {address}:{port}", node, read)


def kubelet_at(node: str, address: str) -> Probe:
    """Return a probe of a Node's kubelet at an address: `answers`, or the error.

    The kubelet proves itself by its certificate. The call comes from where the lab's networks meet: the route
    to a `control` address is not by `data`.
    """
    return Probe(f"kubelet at {address}", node, lambda lab: _answer(lab, node, address, ""))


def kubelet_from_outside(node: str, address: str) -> Probe:
    """Return a probe of a Node's kubelet at an address, called from outside: `answers`, or the error.

    The kubelet proves itself by its certificate. The caller's address is in none of the cluster's networks.
    """
    what = f"kubelet at {address}, from outside"
    return Probe(what, node, lambda lab: _answer(lab, node, address, OUTSIDE_ADDRESS))


def _answer(lab: Lab, node: str, address: str, source: str) -> str:
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    try:
        with registry.client(lab.name).dial(address, KUBELET_PORT, _TIMEOUT_S, source) as plain:
            plain.settimeout(_TIMEOUT_S)
            with context.wrap_socket(plain, server_hostname=node):
                return ANSWERS
    except OSError as error:
        return str(error)
