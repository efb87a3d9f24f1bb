"""The protocol of a lab's supervisor: one JSON line each way over a Unix socket, with a descriptor if any."""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof.model.problem import Problem

Json = Any
_MAX_LINE_BYTES = 32 * 1024 * 1024
_BOOT_LIMIT_S = 270.0
"""How long power-on may take: an emulated machine boots for a minute."""
_JOIN_LIMIT_S = 500.0
"""How long a join may take: a guest may boot for its snapshot, and again if the snapshot does not work."""
_SEE_STATUS = "see `nodeproof status`"
_DIAL_ERRORS = {"refused": ConnectionRefusedError, "timed-out": TimeoutError}


def folder_of(descriptor: int) -> Path:
    """Return a path to a folder that was received as a descriptor; valid while the descriptor is open."""
    return Path(f"/proc/self/fd/{descriptor}")


def send(sock: socket.socket, message: Mapping[str, Json], descriptor: int | None = None) -> None:
    """Send one message, with `descriptor` attached to its first byte. Raises OSError."""
    line = json.dumps(message).encode() + b"\n"
    if descriptor is None:
        sock.sendall(line)
        return
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    sock.sendmsg([line[:1]], rights)
    sock.sendall(line[1:])


def receive(sock: socket.socket) -> tuple[Mapping[str, Json], int | None]:
    """Receive one message and the descriptor that came with it.

    Raises:
        OSError: the connection failed.
        EOFError: the peer closed the connection.
    """
    data, ancillary, _flags, _address = sock.recvmsg(65536, socket.CMSG_SPACE(4))
    descriptor = _descriptor(ancillary)
    while not data.endswith(b"\n"):
        more = sock.recv(65536)
        if not more or len(data) > _MAX_LINE_BYTES:
            raise EOFError("the supervisor closed the connection")
        data += more
    return json.loads(data), descriptor


def _descriptor(ancillary: list[Any]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            return int(array.array("i", data[:4])[0])
    return None


class SupervisorClient:
    """Client of a lab's supervisor: dial, spawn, power, arm, status, logs, network, down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def dial(self, host: str, port: int, timeout_s: float, source: str = "") -> socket.socket:
        """Return a connected TCP socket inside the lab; `source` is an address of its outer namespace.

        The socket has TCP_NODELAY: otherwise an HTTP body, or the end of a command's input over SSH, waits 40
        ms for the other side's delayed acknowledgement. Raises ConnectionError, TimeoutError as `connect`
        would.
        """
        request = {"verb": "dial", "host": host, "port": port, "timeout_s": timeout_s, "source": source}
        reply, descriptor = self._request(request, timeout_s + 5)
        if descriptor is None:
            kind = _DIAL_ERRORS.get(str(reply.get("failure")), ConnectionError)
            raise kind(f"dial {host}:{port}: {reply.get('error', 'no descriptor')}")
        sock = socket.socket(fileno=descriptor)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def spawn_command(self, argv: list[str], timeout_s: float, stdin: str = "") -> Mapping[str, Json]:
        """Run a command in the lab's outer namespaces; return its status, stdout and stderr."""
        request = {"verb": "spawn", "what": "command", "argv": argv, "timeout_s": timeout_s, "stdin": stdin}
        return self._checked(request, timeout_s + 10)

    def spawn_node(self, node: Mapping[str, Json]) -> None:
        """Let a node join the running lab."""
        self._checked({"verb": "spawn", "what": "node", "node": node}, _JOIN_LIMIT_S)

    def power(self, node: str, action: str) -> None:
        """Do a machine's `PowerAction` to a node, or `remove` it."""
        self._checked({"verb": "power", "node": node, "action": action}, _BOOT_LIMIT_S)

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm, renew (same id) or, with a `ttl_s` of 0, disarm the dead-man's switch of a fault."""
        self._checked({"verb": "arm", "fault": fault, "ttl_s": ttl_s}, 20)

    def status(self) -> Mapping[str, Json]:
        """Return the lab's status."""
        return self._checked({"verb": "status"}, 20)

    def logs(self) -> int:
        """Return a descriptor of the folder of the lab's logs, which has no path outside of the lab."""
        return self._received_descriptor("logs")

    def network(self) -> int:
        """Return a descriptor of the lab's network namespace."""
        return self._received_descriptor("network")

    def _received_descriptor(self, verb: str) -> int:
        reply, descriptor = self._request({"verb": verb}, 20)
        if descriptor is None:
            message = str(reply.get("error", f"no {verb}"))
            raise Problem(message, f"lab {self.path.parent.name}", _SEE_STATUS)
        return descriptor

    def hold(self) -> socket.socket:
        """Return a connection that holds the lab: unless it is kept, a lab ends soon after the last one."""
        sock = self._connect(20)
        send(sock, {"verb": "status", "hold": True})
        receive(sock)
        return sock

    def down(self) -> None:
        """Tear the lab down; return once it has started to end."""
        self._checked({"verb": "down"}, 20)

    def _checked(self, request: Mapping[str, Json], timeout_s: float) -> Mapping[str, Json]:
        reply, _ = self._request(request, timeout_s)
        if "error" in reply:
            where, detail = f"lab {self.path.parent.name}", str(reply.get("detail", ""))
            raise Problem(str(reply["error"]), where, _SEE_STATUS, detail)
        return reply

    def _request(
        self, request: Mapping[str, Json], timeout_s: float
    ) -> tuple[Mapping[str, Json], int | None]:
        with self._connect(timeout_s) as sock:
            try:
                send(sock, request)
                return receive(sock)
            except (OSError, EOFError) as error:
                message = f"its supervisor did not answer {request['verb']}: {error}"
                raise Problem(message, f"lab {self.path.parent.name}", _SEE_STATUS) from error

    def _connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(str(self.path))
        except OSError as error:
            sock.close()
            where = f"lab {self.path.parent.name}"
            raise Problem(
                f"its supervisor does not answer: {error}", where, "run `nodeproof down`"
            ) from error
        return sock
