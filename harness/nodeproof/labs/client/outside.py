"""Access to a lab from outside: a program in its network, its API on loopback, or a shell on a node."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from nodeproof import proc
from nodeproof.disk import write_private
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.ssh import SSH_PORT
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.root import become_root

_DIAL_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16
_PRESERVED_VARIABLES = ("PATH", "HOME", "USER", "LANG", "TERM")
"""Environment variables that sudo would change."""
_SHELL = "command -v bash >/dev/null && exec bash -l; exec sh -l"
"""The login shell of a process node's root is the fastest for commands, not the best for people."""


def run_inside(lab: LabHandle, argv: Sequence[str]) -> int:
    """Run a program with this terminal in the lab's network, with KUBECONFIG set; return its exit status.

    The program runs as the caller; only entering the network needs root. Raises Problem, CommandFailed.
    """
    network = registry.client(lab.name).network()
    try:
        enter = [*become_root(), "nsenter", f"--net=/proc/{os.getpid()}/fd/{network}", "--"]
        if os.geteuid() != 0:
            enter += ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--init-groups", "--"]
        environment = {name: os.environ[name] for name in _PRESERVED_VARIABLES if name in os.environ}
        environment["KUBECONFIG"] = str(lab.dir / "pki" / "admin.kubeconfig")
        return proc.foreground(
            [*enter, "env", *(f"{name}={value}" for name, value in environment.items()), *argv]
        )
    finally:
        os.close(network)


def serve_api(lab: LabHandle, port: int, ready: Callable[[int, Path], None]) -> None:
    """Serve the lab's API on a loopback port (0: any free one) until this process is interrupted.

    The lab's own certificate is valid for 127.0.0.1. `ready` is called with the port and a kubeconfig. Raises
    Problem.
    """
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise Problem(f"port {port}: {error.strerror}", "127.0.0.1", "omit --port") from error
    with listener:
        config = lab.dir / "pki" / f"proxy-{os.getpid()}.kubeconfig"
        write_private(config, _on_loopback(lab, listener.getsockname()[1]))
        try:
            ready(listener.getsockname()[1], config)
            while True:
                client, _peer = listener.accept()
                threading.Thread(target=_relay, args=(lab, client), daemon=True).start()
        finally:
            config.unlink(missing_ok=True)


def _on_loopback(lab: LabHandle, port: int) -> bytes:
    config = yaml.safe_load((lab.dir / "pki" / "admin.kubeconfig").read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = f"https://127.0.0.1:{port}"
    return yaml.safe_dump(config).encode()


def _relay(lab: LabHandle, client: socket.socket) -> None:
    """Copy in both directions until both sides are finished; close the client if the lab is unreachable."""
    with (
        client,
        contextlib.suppress(OSError, OutsideError, Problem),
        registry.client(lab.name).dial(API_ADDRESS, API_PORT, _DIAL_TIMEOUT_S) as server,
    ):
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(_CHUNK_BYTES):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def interactive(lab: LabHandle, node: str) -> int:
    """Open a shell on a node in this terminal and return ssh's exit status.

    ssh connects through a ProxyCommand inside the lab. Raises Problem if the lab has no such node.
    """
    lab.fleet.machine(node)
    address = next(entry.control_address for entry in lab.fleet.nodes() if entry.name == node)
    known_hosts = lab.dir / "pki" / f"{node}.known_hosts"
    known_hosts.write_text(f"{node} {(lab.dir / 'pki' / f'{node}.hostkey').read_text().strip()}\n")
    relay = (
        f"{shlex.quote(sys.executable)} -P -m nodeproof.labs.base.wire {lab.dir / 's'} {address} {SSH_PORT}"
    )
    options = {
        "ProxyCommand": relay,
        "HostKeyAlias": node,
        "UserKnownHostsFile": str(known_hosts),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    terminal = ["-t"] if sys.stdin.isatty() else []
    key = str(lab.dir / "pki" / "ssh")
    return proc.foreground(["ssh", "-F", os.devnull, "-i", key, *flags, *terminal, f"root@{address}", _SHELL])
