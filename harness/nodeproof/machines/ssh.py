"""A machine over SSH: strict host key, one open connection, a timeout on every call."""

from __future__ import annotations

import base64
import contextlib
import logging
import shlex
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import paramiko

from nodeproof.disk import check_private
from nodeproof.machines.machine import (
    SILENCING,
    STATE_FOLDER,
    CommandResult,
    MachineError,
    PowerAction,
    Shell,
)
from nodeproof.model.pattern import Json
from nodeproof.waiting import wait_until

SSH_PORT = 22
KUBELET_PORT = 10250
CONNECT_TIMEOUT_S = 10.0
REACH_TIMEOUT_S = 0.4
"""How long a probe waits for an answer over the lab's own bridge (s); a round trip takes well below 1 ms."""
_SEND = f"""
exec 3< <(echo dialling; echo "$0" > "$1" && echo sent)
read -r -u 3
read -r -t {REACH_TIMEOUT_S} -u 3 sent
kill $!
[ "$sent" = sent ]
"""
"""Sends the first argument to the second.

The timeout is that of the dial alone: a busy machine is slow to start a shell.
"""
_IDLE_CHECK_S = 2.0
"""How often paramiko's thread of an idle connection wakes up (s).

With its default of 0.1 s a hundred idle connections cost a processor a thousand wakeups a second.
"""
_RECEIVE_TIMEOUT_S = 0.5
_NO_STATUS = -1
_WINDOW_BYTES = 1 << 30
"""Both output streams share it and are read one after the other: a small one would block large output."""

# Failures are raised here; paramiko's own thread would print them again, with a traceback.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

Dial = Callable[[str, int, float], socket.socket]


class Host(Protocol):
    """The machine's host: its power, and the witness at the control plane's end of the data network."""

    def power(self, node: str, action: PowerAction) -> None:
        """Perform one of the machine's `PowerAction`s. Raises MachineError."""

    def is_powered(self, node: str) -> bool:
        """Return whether the node's first process runs."""

    def kubelet_configuration(self, node: str) -> Mapping[str, Json]:
        """Return the running configuration of the node's kubelet. Raises MachineError."""

    def probe_port(self) -> int:
        """Return the port that the witness listens on."""

    def has_received(self, token: str) -> bool:
        """Return whether the witness received `token`."""


@dataclass(frozen=True)
class SshAccess:
    """Access to a machine: addresses, the client's key, and the only host key that is accepted."""

    name: str
    control_address: str
    data_address: str
    control_plane_address: str
    key: Path
    host_key: str


class SshMachine:
    """A node (a `Machine`): commands over SSH on `control`, power through its host."""

    state_folder = STATE_FOLDER

    def __init__(self, access: SshAccess, dial: Dial, host: Host) -> None:
        self.name = access.name
        self.data_address = access.data_address
        self.control_plane_addresses = (access.control_plane_address,)
        self._access = access
        self._dial = dial
        self._host = host
        self._transport: paramiko.Transport | None = None
        self._lock = threading.Lock()

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command.

        Raises:
            MachineError: It does not end within `timeout_s`.
            Problem: The client's key is not private.
        """
        deadline_t = time.monotonic() + timeout_s
        try:
            transport, channel = self._channel(deadline_t)
            with _cut_at(deadline_t, transport), channel:
                return _run(transport, channel, argv, deadline_t, stdin)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.close()
            reason = str(error) or f"no end within {timeout_s:g} s"
            raise MachineError(f"{self.name}: {argv[0]}: {reason}") from error

    def power(self, action: PowerAction) -> None:
        if action in SILENCING:
            self.close()
        self._host.power(self.name, action)

    def beside(self, name: str) -> Shell:
        """Raise MachineError: a node knows no other machine."""
        raise MachineError(f"{self.name} knows no machine {name}")

    def boot_id(self) -> str:
        read = ["cat", "/proc/sys/kernel/random/boot_id"]
        return self.run(read, timeout_s=CONNECT_TIMEOUT_S).stdout.strip()

    def is_powered(self) -> bool:
        return self._host.is_powered(self.name)

    def answers_on_control(self) -> bool:
        return self._dial_outcome(self._access.control_address, SSH_PORT) == "accepted"

    def refuses_on_control(self) -> bool:
        return self._dial_outcome(self._access.control_address, SSH_PORT) == "refused"

    def reached_from_control_plane(self) -> bool:
        return self._dial_outcome(self.data_address, KUBELET_PORT) != "silent"

    def serves_kubelet(self) -> bool:
        return self._dial_outcome(self.data_address, KUBELET_PORT) == "accepted"

    def reaches_control_plane(self) -> bool:
        """Send a token from the node to the witness, and return whether the witness received it."""
        token = uuid.uuid4().hex
        target = f"/dev/tcp/{self._access.control_plane_address}/{self._host.probe_port()}"
        sent = self.run(["bash", "-c", _SEND, token, target], timeout_s=CONNECT_TIMEOUT_S)
        if sent.status != 0:
            return self._host.has_received(token)
        return wait_until(lambda: self._host.has_received(token), _RECEIVE_TIMEOUT_S, 0.02)

    def kubelet_configuration(self) -> Mapping[str, Json]:
        return self._host.kubelet_configuration(self.name)

    def close(self) -> None:
        with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None:
            _close(transport)

    def _dial_outcome(self, host: str, port: int) -> Literal["accepted", "refused", "silent"]:
        try:
            self._dial(host, port, REACH_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return "refused"
        except OSError:
            return "silent"
        return "accepted"

    def _channel(self, deadline_t: float) -> tuple[paramiko.Transport, paramiko.Channel]:
        """Open a channel of the open connection, or of a new one if the machine has booted since."""
        with self._lock:
            transport = self._transport
        if transport is not None and transport.is_active():
            try:
                return transport, _open(transport, deadline_t)
            except (OSError, EOFError, paramiko.SSHException):
                self.close()
        fresh = self._connect(deadline_t)
        with self._lock:
            # Another thread may have connected meanwhile.
            if self._transport is None or not self._transport.is_active():
                self._transport = fresh
            transport = self._transport
        if transport is not fresh:
            _close(fresh)
        return transport, _open(transport, deadline_t)

    def _connect(self, deadline_t: float) -> paramiko.Transport:
        timeout_s = min(_remaining_s(deadline_t), CONNECT_TIMEOUT_S)
        deadline_t = time.monotonic() + timeout_s
        key = paramiko.Ed25519Key.from_private_key_file(str(check_private(self._access.key)))
        transport = paramiko.Transport(self._dial(self._access.control_address, SSH_PORT, timeout_s))
        transport.banner_timeout = transport.auth_timeout = transport.handshake_timeout = timeout_s
        try:
            kind, encoded, *_comment = self._access.host_key.split()
            transport.get_security_options().key_types = (kind,)
            expected = paramiko.Ed25519Key(data=base64.b64decode(encoded))
            with _cut_at(deadline_t, transport):
                transport.connect(hostkey=expected, username="root", pkey=key)
        except BaseException:
            _close(transport)
            raise
        transport.sock.settimeout(_IDLE_CHECK_S)
        return transport


def _close(transport: paramiko.Transport) -> None:
    """Close the connection at once: its thread wakes up, and the peer is notified."""
    with contextlib.suppress(OSError):
        transport.sock.shutdown(socket.SHUT_RDWR)
    transport.close()
    transport.sock.close()


def _open(transport: paramiko.Transport, deadline_t: float) -> paramiko.Channel:
    with _cut_at(deadline_t, transport):
        return transport.open_session(window_size=_WINDOW_BYTES, timeout=_remaining_s(deadline_t))


def _run(
    transport: paramiko.Transport,
    channel: paramiko.Channel,
    argv: Sequence[str],
    deadline_t: float,
    stdin: str,
) -> CommandResult:
    channel.settimeout(_remaining_s(deadline_t))
    channel.exec_command(shlex.join(argv))
    if stdin:
        channel.sendall(stdin.encode())
    channel.shutdown_write()
    stdout, stderr = _read(channel.recv, channel, deadline_t), _read(channel.recv_stderr, channel, deadline_t)
    if not channel.status_event.wait(_remaining_s(deadline_t)):
        raise TimeoutError
    if channel.exit_status == _NO_STATUS and not transport.is_active():
        raise EOFError("the connection was cut")
    return CommandResult(channel.exit_status, stdout, stderr)


@contextlib.contextmanager
def _cut_at(deadline_t: float, transport: paramiko.Transport) -> Iterator[None]:
    """Close a connection at a deadline: paramiko waits for some answers without a timeout."""
    timer = threading.Timer(_remaining_s(deadline_t), _close, [transport])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _remaining_s(deadline_t: float) -> float:
    left_s = deadline_t - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("deadline passed")
    return left_s


def _read(receive: Callable[[int], bytes], channel: paramiko.Channel, deadline_t: float) -> str:
    chunks: list[bytes] = []
    while True:
        channel.settimeout(_remaining_s(deadline_t))
        chunk = receive(65536)
        if not chunk:
            return b"".join(chunks).decode(errors="replace")
        chunks.append(chunk)
