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
"""So many bytes the kernel takes for the path of a socket."""
_GRACE_S = 2.0

Machines = Callable[[str], Machine]


def main(arguments: Sequence[str]) -> int:
    """Serve until told to end. Status 2 and a line on stderr where that cannot begin."""
    asked = _parser().parse_args(arguments)
    try:
        server = _server(asked)
    except (BadCommand, OSError) as error:
        print(f"csi driver: {error}", file=sys.stderr)
        return 2
    ends = _told_to_end()
    server.start()
    os.read(ends, 1)
    server.stop()
    return 0


def _told_to_end() -> int:
    """What can be read once there was a signal to end: a thread that waits for an event may miss it."""
    ends, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)
    return ends


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.csi", description=__doc__)
    add = parser.add_argument
    add("--endpoint", required=True, metavar="unix://PATH", help="where identity and controller are served")
    add("--calls", type=Path, metavar="FILE", help="gets a line of JSON for each call")
    add("--node", action="append", default=[], metavar="NAME=unix://PATH", help="where a node is served")
    opened.add_options(parser)
    return parser


def _server(asked: argparse.Namespace) -> _All:
    hypervisor, machines = _hypervisor(asked)
    calls = Calls(asked.calls)
    # One pool of threads for each endpoint: a node that cannot be reached keeps nobody else waiting.
    controller = _endpoint(asked.endpoint)
    servers = [_listening(controller, {"Identity": Identity(), "Controller": Controller(hypervisor)}, calls)]
    for each in asked.node:
        name, _, endpoint = each.partition("=")
        if not hypervisor.knows(name):
            raise BadCommand(f"no machine {name!r} (--node); name one that {asked.hypervisor} has")
        services = {"Identity": Identity(), "Node": Node(name, machines(name))}
        servers.append(_listening(_endpoint(endpoint), services, calls, name))
    return _All(servers)


def _hypervisor(asked: argparse.Namespace) -> tuple[Hypervisor, Machines]:
    found = opened.hypervisor(asked)
    if not isinstance(found, Table):
        return found, lambda node: opened.commands(asked, node)
    try:
        found.take()
    except BlockingIOError:
        raise BadCommand(f"another driver has {asked.hypervisor} (--hypervisor); end it first") from None
    return found, lambda node: Marked(found, node, Path(asked.root.format(node=node)))


def _endpoint(text: str) -> str:
    path = text.removeprefix("unix://")
    if path == text or not path.startswith("/"):
        raise BadCommand(f"{text!r} is no endpoint; write it like unix:///run/csi.sock")
    if len(path.encode()) > _LONGEST_PATH:
        raise BadCommand(f"{path} is longer than {_LONGEST_PATH} bytes; choose a shorter path")
    return f"unix://{path}"


def _listening(endpoint: str, services: Mapping[str, object], calls: Calls, node: str = "") -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(_THREADS))
    described = csi_pb2.DESCRIPTOR.services_by_name
    handlers = [handler(described[name], served, calls, node) for name, served in services.items()]
    if node:
        kubelet = registration_pb2.DESCRIPTOR.services_by_name["Registration"]
        handlers.append(handler(kubelet, Registration(), calls, node))
    server.add_generic_rpc_handlers(handlers)
    try:
        server.add_insecure_port(endpoint)
    except RuntimeError:
        raise BadCommand(f"nobody can listen at {endpoint}; make its folder, writable") from None
    return server


class _All:
    """Several servers that begin and end together."""

    def __init__(self, servers: Sequence[grpc.Server]) -> None:
        self._servers = servers

    def start(self) -> None:
        for server in self._servers:
            server.start()

    def stop(self) -> None:
        for stopping in [server.stop(_GRACE_S) for server in self._servers]:
            stopping.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
