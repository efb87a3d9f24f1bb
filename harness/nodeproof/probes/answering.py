"""Who answers at an address: asked from a node, or from outside of the cluster's network."""

from __future__ import annotations

import ssl

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.spec import KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.probes.probe import COMMAND_LIMIT_S, Probe

ANSWERS = "answers"
_LIMIT_S = 3.0
"""For a connection, and again for what is said over it: within a lab each takes milliseconds."""


def api_at(node: str, address: str, port: int) -> Probe:
    """`answers` where the API, proven by its certificate, answers a node's kubelet at an address, else why it
    does not. Of process nodes only.
    """

    def read(lab: Lab) -> str:
        argv = [
            str(lab.components.path("kubectl")),
            "--kubeconfig=/run/node/kubeconfig",
            f"--server=https://{address}:{port}",
            f"--request-timeout={_LIMIT_S:g}s",
            *("get", "--raw", "/livez"),
        ]
        done = lab.fleet.machine(node).run(argv, deadline_s=COMMAND_LIMIT_S)
        said = done.stderr.strip().splitlines()[-1:] or [f"exit {done.status}"]
        return ANSWERS if done.status == 0 and done.stdout == "ok" else said[0]

    return Probe(f"API at {address}:{port}", node, read)


def kubelet_at(node: str, address: str) -> Probe:
    """`answers` where a Node's kubelet, proven by its certificate, answers at an address, else why it does
    not. It is asked from where the lab's networks meet: the way to a `control` address is not by `data`.
    """
    return Probe(f"kubelet at {address}", node, lambda lab: _answer(lab, node, address, ""))


def kubelet_from_outside(node: str, address: str) -> Probe:
    """`answers` where a Node's kubelet, proven by its certificate, answers at an address to one whose own is
    in no network of the cluster's, else why it does not.
    """
    about = f"kubelet at {address}, from outside"
    return Probe(about, node, lambda lab: _answer(lab, node, address, OUTSIDE_ADDRESS))


def _answer(lab: Lab, node: str, address: str, source: str) -> str:
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    try:
        with registry.client(lab.name).dial(address, KUBELET_PORT, _LIMIT_S, source) as plain:
            plain.settimeout(_LIMIT_S)
            with context.wrap_socket(plain, server_hostname=node):
                return ANSWERS
    except OSError as error:
        return str(error)
