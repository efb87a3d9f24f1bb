"""The protocol of a lab's supervisor: one JSON line each way over a Unix socket, with a descriptor if any.

`python -m nodeproof.labs.base.wire SOCKET HOST PORT` connects stdin and stdout to a port in a lab.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nodeproof.model.overrides import NO_OVERRIDES, Overrides
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem


@dataclass(frozen=True)
class NodeInfo:
    """One node of a running lab.

    `memory_mib` is 0 for the default of its kind. `pid` is that of its first process in the lab's PID
    namespace, None while it is off. `kubelet` is the path of the kubelet's executable on the host.
    """

    name: str
    slot: int
    zone: str
    is_on: bool
    control_address: str
    data_address: str
    machine_id: str
    memory_mib: int = 0
    cpus: int = 1
    pid: int | None = field(default=None, compare=False)
    kubelet: str = field(default="", compare=False)


@dataclass(frozen=True)
class ServiceStatus:
    """A control plane component: its process id, None while it is off, and its command line."""

    pid: int | None
    argv: Sequence[str]


@dataclass(frozen=True)
class MemoryUsage:
    """The usage of a part of a lab's memory.

    `full_t` is when it was last full (s, monotonic), None if it never was.
    """

    size_bytes: int
    free_bytes: int
    is_full: bool
    full_t: float | None


@dataclass(frozen=True)
class LabStatus:
    """The status of a lab.

    `phase` is `starting`, `ready` or `failed`, then `failure` says why. `components` are process ids by name,
    `died` how components ended unexpectedly, `armed` the seconds that dead-man's switches have left, and
    `not_disarmed` the faults whose switch was never disarmed. `settings` is the folder of the components'
    settings, `received` what the witness at `witness_port` received. `kvm` is None without virtual machines,
    `overrides` are the settings of the user, `upgrade_version` is the version of their `--upgrade-to`.
    """

    lab: str
    kind: str
    features: Sequence[str]
    phase: str
    failure: str
    profile: str
    kubernetes_version: str
    nodes: Sequence[NodeInfo]
    components: Mapping[str, int]
    services: Mapping[str, ServiceStatus]
    settings: str
    died: Mapping[str, str]
    memory: Mapping[str, MemoryUsage]
    armed: Mapping[str, float]
    not_disarmed: Sequence[Mapping[str, Json]]
    control_plane_address: str
    witness_port: int
    received: Sequence[str]
    holders: int
    kvm: bool | None = None
    overrides: Overrides = NO_OVERRIDES
    upgrade_version: str = ""

    def to_json(self) -> dict[str, Json]:
        return {name: value for name, value in asdict(self).items() if name != "kvm" or value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> LabStatus:
        """Parse the output of `to_json`. Raises TypeError or KeyError for anything else."""
        parts = {
            "nodes": [NodeInfo(**node) for node in data["nodes"]],
            "services": {name: ServiceStatus(**entry) for name, entry in data["services"].items()},
            "memory": {name: MemoryUsage(**entry) for name, entry in data["memory"].items()},
            "overrides": Overrides.from_json(data["overrides"]),
        }
        return cls(**{**data, **parts})


_MAX_LINE_BYTES = 32 * 1024 * 1024
_BOOT_TIMEOUT_S = 270.0
"""How long power-on may take: an emulated machine boots for a minute."""
_JOIN_TIMEOUT_S = 500.0
"""How long a join may take: a guest may boot for its snapshot, and again if the snapshot does not work."""
_HOLD_TIMEOUT_S = 60.0
"""How long a supervisor may take to accept a holder: on a busy host, one that starts answers slowly."""
_SEE_STATUS = "see `nodeproof status`"
_DIAL_ERRORS = {"refused": ConnectionRefusedError, "timed-out": TimeoutError}
_RELAY_TIMEOUT_S = 10.0
_PEER = struct.Struct("3i")
"""Process, user and group of a socket's peer."""
Reply = tuple[Mapping[str, Json], int | None]
"""A message, and the descriptor that came with it."""


def folder_of(descriptor: int) -> Path:
    """Return a path to a folder that was received as a descriptor; valid while the descriptor is open."""
    return Path(f"/proc/self/fd/{descriptor}")


def send(sock: socket.socket, message: Mapping[str, Json], descriptor: int | None = None) -> None:
    """Send one message, with `descriptor` attached to its first byte. Raises OSError."""
    line = json.dumps(message).encode() + b"\n"
    if descriptor is not None:
        socket.send_fds(sock, [line[:1]], [descriptor])
        line = line[1:]
    sock.sendall(line)


def receive(sock: socket.socket) -> Reply:
    """Receive one message and the descriptor that came with it.

    Raises:
        OSError: the connection failed.
        EOFError: the peer closed the connection.
    """
    data, descriptors, _flags, _address = socket.recv_fds(sock, 65536, 1)
    while not data.endswith(b"\n"):
        more = sock.recv(65536)
        if not more or len(data) > _MAX_LINE_BYTES:
            raise EOFError("the supervisor closed the connection")
        data += more
    return json.loads(data), next(iter(descriptors), None)


class SupervisorClient:
    """Client of a lab's supervisor: dial, spawn, power, arm, status, logs, network, down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._where = f"lab {path.parent.name}"

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
        self._checked({"verb": "spawn", "what": "node", "node": node}, _JOIN_TIMEOUT_S)

    def power(self, node: str, action: str) -> None:
        """Do a machine's `PowerAction` to a node, or `remove` it."""
        self._checked({"verb": "power", "node": node, "action": action}, _BOOT_TIMEOUT_S)

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm, renew (same id) or, with a `ttl_s` of 0, disarm the dead-man's switch of a fault."""
        self._checked({"verb": "arm", "fault": fault, "ttl_s": ttl_s}, 20)

    def status(self) -> LabStatus:
        """Return the lab's status. Raises Problem, also if another version of nodeproof started the lab."""
        reply = self._checked({"verb": "status"}, 20)
        try:
            return LabStatus.from_json(reply)
        except (KeyError, TypeError) as error:
            message = f"another version of nodeproof started this lab: its status is not readable ({error})"
            next_step = f"use that version, or run `nodeproof down --lab-name {self.path.parent.name}`"
            raise Problem(message, self._where, next_step) from error

    def logs(self) -> int:
        """Return a descriptor of the folder of the lab's logs, which has no path outside of the lab."""
        return self._received_descriptor("logs")

    def network(self) -> int:
        """Return a descriptor of the lab's network namespace."""
        return self._received_descriptor("network")

    def _received_descriptor(self, verb: str) -> int:
        reply, descriptor = self._request({"verb": verb}, 20)
        if descriptor is None:
            raise Problem(str(reply.get("error", f"no {verb}")), self._where, _SEE_STATUS)
        return descriptor

    def hold(self) -> socket.socket:
        """Return a connection that holds the lab: unless it is kept, a lab ends soon after the last one."""
        sock = self._connect(_HOLD_TIMEOUT_S)
        try:
            self._exchange(sock, {"verb": "status", "hold": True})
        except Problem:
            sock.close()
            raise
        return sock

    def down(self) -> None:
        """Tear the lab down; return once it has started to end."""
        self._checked({"verb": "down"}, 20)

    def process(self) -> int:
        """Return a descriptor of the supervisor's process (pidfd_open(2)). Raises Problem."""
        with self._connect(20) as sock:
            # The peer of a client is the process that listens (SO_PEERCRED in unix(7)).
            peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        try:
            return os.pidfd_open(_PEER.unpack(peer)[0])
        except OSError as error:
            raise Problem(f"the supervisor is no process here: {error}", self._where, _SEE_STATUS) from error

    def _checked(self, request: Mapping[str, Json], timeout_s: float) -> Mapping[str, Json]:
        reply, _ = self._request(request, timeout_s)
        if "error" in reply:
            raise Problem(str(reply["error"]), self._where, _SEE_STATUS, str(reply.get("detail", "")))
        return reply

    def _request(self, request: Mapping[str, Json], timeout_s: float) -> Reply:
        with self._connect(timeout_s) as sock:
            return self._exchange(sock, request)

    def _exchange(self, sock: socket.socket, request: Mapping[str, Json]) -> Reply:
        """Send a request and return the reply. Raises Problem if there is none."""
        try:
            send(sock, request)
            return receive(sock)
        except (OSError, EOFError) as error:
            message = f"the supervisor did not answer {request['verb']}: {error}"
            raise Problem(message, self._where, _SEE_STATUS) from error

    def _connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(str(self.path))
        except OSError as error:
            sock.close()
            message = f"the supervisor does not answer: {error}"
            raise Problem(message, self._where, "run `nodeproof down`") from error
        return sock


def relay() -> None:
    """Copy in both directions between stdin and stdout and a port in the lab, until one side ends."""
    peer = SupervisorClient(Path(sys.argv[1])).dial(sys.argv[2], int(sys.argv[3]), _RELAY_TIMEOUT_S)
    threading.Thread(target=_send_stdin, args=(peer,), daemon=True).start()
    while data := peer.recv(65536):
        os.write(1, data)


def _send_stdin(peer: socket.socket) -> None:
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    try:
        relay()
    except (Problem, OSError) as error:
        sys.exit(f"nodeproof: {error}")
