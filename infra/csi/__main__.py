"""One driver for a lab: `python -m infra.csi --endpoint unix:///run/c.sock --hypervisor table:DIR ...`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from infra.csi import opened
from infra.csi.calls import Calls
from infra.csi.controller import Controller
from infra.csi.hypervisor import Hypervisor
from infra.csi.identity import Identity, Registration
from infra.csi.machine import Machine, Marked
from infra.csi.node import Node
from infra.csi.opened import BadCommand
from infra.csi.protocol import csi_pb2, registration_pb2
from infra.csi.service import handler
from infra.csi.table import Table

_THREADS = 16
_LONGEST_PATH = 107
"""Longest path of a socket that the kernel accepts (bytes)."""
_GRACE_S = 2.0

Machines = Callable[[str], Machine]


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return 2, with a line on stderr, if the server cannot start."""
    options = _parser().parse_args(arguments)
    try:
        server = _server(options)
    except (BadCommand, OSError) as error:
        print(f"csi driver: {error}", file=sys.stderr)
        return 2
    end_signal = _end_signal_pipe()
    server.start()
    os.read(end_signal, 1)
    server.stop()
    return 0


def _end_signal_pipe() -> int:
    """Return a descriptor that becomes readable at SIGTERM or SIGINT, which an event could miss."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reader


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.csi", description=__doc__)
    add = parser.add_argument
    add("--endpoint", required=True, metavar="unix://PATH", help="socket of identity and controller")
    add("--calls", type=Path, metavar="FILE", help="file for a line of JSON per call")
    add("--node", action="append", default=[], metavar="NAME=unix://PATH", help="socket of a node's service")
    opened.add_options(parser)
    return parser


def _server(options: argparse.Namespace) -> _Servers:
    hypervisor, machines = _hypervisor(options)
    calls = Calls(options.calls)
    # Each endpoint has its own thread pool, so that an unreachable node does not block the others.
    controller = _endpoint(options.endpoint)
    servers = [_listen(controller, {"Identity": Identity(), "Controller": Controller(hypervisor)}, calls)]
    for node in options.node:
        name, _, endpoint = node.partition("=")
        if not hypervisor.has(name):
            raise BadCommand(f"no machine {name!r} (--node); use a machine of {options.hypervisor}")
        services = {"Identity": Identity(), "Node": Node(name, machines(name))}
        servers.append(_listen(_endpoint(endpoint), services, calls, name))
    return _Servers(servers)


def _hypervisor(options: argparse.Namespace) -> tuple[Hypervisor, Machines]:
    hypervisor = opened.hypervisor(options)
    if not isinstance(hypervisor, Table):
        return hypervisor, lambda node: opened.commands(options, node)
    try:
        hypervisor.take()
    except BlockingIOError:
        raise BadCommand(f"another driver uses {options.hypervisor} (--hypervisor); end it first") from None
    return hypervisor, lambda node: Marked(hypervisor, node, Path(options.root.format(node=node)))


def _endpoint(text: str) -> str:
    path = text.removeprefix("unix://")
    if path == text or not path.startswith("/"):
        raise BadCommand(f"{text!r} is not an endpoint; write it like unix:///run/csi.sock")
    if len(path.encode()) > _LONGEST_PATH:
        raise BadCommand(f"{path} is longer than {_LONGEST_PATH} bytes; choose a shorter path")
    return f"unix://{path}"


def _listen(endpoint: str, services: Mapping[str, object], calls: Calls, node: str = "") -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(_THREADS))
    descriptors = csi_pb2.DESCRIPTOR.services_by_name
    handlers = [handler(descriptors[name], service, calls, node) for name, service in services.items()]
    if node:
        kubelet = registration_pb2.DESCRIPTOR.services_by_name["Registration"]
        handlers.append(handler(kubelet, Registration(), calls, node))
    server.add_generic_rpc_handlers(handlers)
    try:
        server.add_insecure_port(endpoint)
    except RuntimeError:
        raise BadCommand(f"cannot listen at {endpoint}; create its folder, writable") from None
    return server


class _Servers:
    """Several servers that start and stop together."""

    def __init__(self, servers: Sequence[grpc.Server]) -> None:
        self._servers = servers

    def start(self) -> None:
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        for stopped in [server.stop(_GRACE_S) for server in self._servers]:
            stopped.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
