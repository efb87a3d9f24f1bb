"""A process node's kube-proxy: its credentials and its command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodeproof.labs.ground.control_plane import kubeconfig
from nodeproof.labs.ground.pki import Authority, pair_in
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.process.seed import INSIDE

_USER = "system:kube-proxy"
"""The user whom the API server's default roles let read what kube-proxy needs (system:node-proxier)."""
_FILE = "kube-proxy"
_UNSET: Mapping[str, str] = {
    "conntrack-max-per-core": "0",
    "conntrack-min": "0",
    "conntrack-tcp-timeout-established": "0s",
    "conntrack-tcp-timeout-close-wait": "0s",
    "oom-score-adj": "0",
}
"""Disables settings that would also change the host, whose kernel nodes share."""


def command(binary: str, spec: NodeSpec, inside: Path, authority: Authority) -> list[str]:
    """Return kube-proxy's command line, and create its credentials on its first start.

    It is configured by flags: with a file, kube-proxy watches that file and ends if the machine has no
    inotify instance left (cmd/kube-proxy/app/options.go), as happens beside several labs.

    Args:
        binary: the executable.
        spec: the node.
        inside: the folder that the node sees as `INSIDE`.
        authority: issues the credentials.
    """
    config = inside / f"{_FILE}.kubeconfig"
    if not config.exists():
        authority.issue(_FILE, _USER, folder=inside)
        config.write_text(kubeconfig(pair_in(INSIDE, _FILE), INSIDE / "ca.crt", _USER))
    flags = {
        "kubeconfig": str(INSIDE / config.name),
        "hostname-override": spec.node_name,
        "proxy-mode": "nftables",
        "healthz-bind-address": "127.0.0.1:10256",
        **_UNSET,
    }
    return [binary, *(f"--{name}={value}" for name, value in flags.items())]
