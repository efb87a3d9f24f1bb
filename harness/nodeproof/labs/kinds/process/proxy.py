"""A process node's kube-proxy: who it is to the API, and how it is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nodeproof.labs.ground.control_plane import kubeconfig
from nodeproof.labs.ground.pki import Authority, pair_in
from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.kinds.process.seed import INSIDE

_USER = "system:kube-proxy"
"""Whom the API server's own roles allow what a kube-proxy reads (system:node-proxier)."""
_FILE = "kube-proxy"
_UNSET: Mapping[str, str] = {
    "conntrack-max-per-core": "0",
    "conntrack-min": "0",
    "conntrack-tcp-timeout-established": "0s",
    "conntrack-tcp-timeout-close-wait": "0s",
    "oom-score-adj": "0",
}
"""What would be set for the host, too, whose kernel nodes share."""


def command(binary: str, spec: NodeSpec, inside: Path, authority: Authority) -> list[str]:
    """Its command line; `inside` is the node's folder, where its credential is made at its first start.

    It is told by flags: a kube-proxy with a file watches it, and ends where the machine gives it no inotify
    instance for that (cmd/kube-proxy/app/options.go), as beside several labs.
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
