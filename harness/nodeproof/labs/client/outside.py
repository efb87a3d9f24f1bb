"""Access to a lab from outside: run a program in its network, or serve its API on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from nodeproof import proc
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.pki import write_private
from nodeproof.labs.ground.spec import API_ADDRESS, API_PORT
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.root import become_root

_DIAL_LIMIT_S = 10.0
_CHUNK_BYTES = 1 << 16
_PRESERVED_VARIABLES = ("PATH", "HOME", "USER", "LANG", "TERM")
"""Environment variables that sudo would change."""


def run_inside(lab: Lab, argv: Sequence[str]) -> int:
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


def serve_api(lab: Lab, port: int, ready: Callable[[int, Path], None]) -> None:
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


def _on_loopback(lab: Lab, port: int) -> bytes:
    config = yaml.safe_load((lab.dir / "pki" / "admin.kubeconfig").read_text())
    for entry in config["clusters"]:
        entry["cluster"]["server"] = f"https://127.0.0.1:{port}"
    return yaml.safe_dump(config).encode()


def _relay(lab: Lab, client: socket.socket) -> None:
    """Copy in both directions until both sides are finished; close the client if the lab is unreachable."""
    with (
        client,
        contextlib.suppress(OSError, OutsideError, Problem),
        registry.client(lab.name).dial(API_ADDRESS, API_PORT, _DIAL_LIMIT_S) as server,
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
