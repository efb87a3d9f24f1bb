"""A machine over SSH: strict host key, one warm connection, a deadline on every call."""

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import paramiko
import tenacity

from nodeproof.machines.machine import (
    SILENCING,
    STATE_FOLDER,
    CommandResult,
    MachineError,
    PowerAction,
    Shell,
)
from nodeproof.private import check_private

Json = Any
SSH_PORT = 22
KUBELET_PORT = 10250
CONNECT_LIMIT_S = 10.0
REACH_LIMIT_S = 0.4
"""How long a probe waits for an answer over the lab's own bridge, where a round trip takes well below 1
ms.
"""
_SEND = f"""
exec 3< <(echo dialling; echo "$0" > "$1" && echo sent)
read -r -u 3
read -r -t {REACH_LIMIT_S} -u 3 sent
kill $!
[ "$sent" = sent ]
"""
"""Sends the first argument to the second; the limit is the dial's alone: a busy machine is slow to start a
shell.
"""
_IDLE_CHECK_S = 2.0
"""How often paramiko's thread of a connection looks up while nothing comes. With its own 0.1 s a hundred
connections that wait cost a processor a thousand wakings a second.
"""
_HEARD_LIMIT_S = 0.5
_NO_STATUS = -1
_WINDOW_BYTES = 1 << 30
"""Both output streams share it and one is read after the other: a small one would block who writes much."""

# What fails is raised here; paramiko's own thread would print it once more, with a traceback.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

Dial = Callable[[str, int, float], socket.socket]


class Host(Protocol):
    """The machine's host: power, and the witness at the control plane's end of the data network."""

    def power(self, node: str, action: PowerAction) -> None:
        """Do one of the machine's `PowerAction`s. Raises MachineError."""
        ...

    def is_powered(self, node: str) -> bool:
        """Whether the node's first process runs."""
        ...

    def kubelet_configuration(self, node: str) -> Mapping[str, Json]:
        """What the node's kubelet says of its configuration. Raises MachineError."""
        ...

    def witness_port(self) -> int:
        """The port at which the witness listens."""
        ...

    def heard(self, token: str) -> bool:
        """Whether the witness received `token`."""
        ...


@dataclass(frozen=True)
class SshAccess:
    """How to get in: addresses, the client's key, and the only host key that is accepted."""

    name: str
    control_address: str
    data_address: str
    control_plane_address: str
    key: Path
    host_key: str


class SshMachine:
    """One node: commands over SSH on `control`, power through its host."""

    state_folder = STATE_FOLDER

    def __init__(self, access: SshAccess, dial: Dial, host: Host) -> None:
        self.name = access.name
        self.data_address = access.data_address
        self.control_plane_address = access.control_plane_address
        self._access = access
        self._dial = dial
        self._host = host
        self._transport: paramiko.Transport | None = None
        self._lock = threading.Lock()

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:
        """Run a command. Raises MachineError when it does not end within `deadline_s`, Problem when the
        client's key is not private.
        """
        until = time.monotonic() + deadline_s
        try:
            transport, channel = self._channel(until)
            with _cut_at(until, transport), channel:
                return _run(transport, channel, argv, until, stdin)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.close()
            why = str(error) or f"no end within {deadline_s:g} s"
            raise MachineError(f"{self.name}: {argv[0]}: {why}") from error

    def power(self, action: PowerAction) -> None:
        """Let its host do something to it. Raises MachineError."""
        if action in SILENCING:
            self.close()
        self._host.power(self.name, action)

    def beside(self, name: str) -> Shell:
        """It knows no other machine. Raises MachineError."""
        raise MachineError(f"{self.name} knows no machine {name}")

    def boot_id(self) -> str:
        """The kernel's boot id. Raises MachineError."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"], deadline_s=CONNECT_LIMIT_S).stdout.strip()

    def is_powered(self) -> bool:
        """Whether the machine's first process runs, as its host sees it."""
        return self._host.is_powered(self.name)

    def answers_on_control(self) -> bool:
        """Whether its SSH port accepts a connection."""
        return self._dialled(self._access.control_address, SSH_PORT) == "accepted"

    def refuses_on_control(self) -> bool:
        """Whether its kernel answers, and nobody listens at its SSH port."""
        return self._dialled(self._access.control_address, SSH_PORT) == "refused"

    def reached_from_control_plane(self) -> bool:
        """Whether the control plane's side gets through to the data address; a refusal is an answer too."""
        return self._dialled(self.data_address, KUBELET_PORT) != "silent"

    def serves_kubelet(self) -> bool:
        """Whether a kubelet accepts the control plane's connections; a refusal is none."""
        return self._dialled(self.data_address, KUBELET_PORT) == "accepted"

    def reaches_control_plane(self) -> bool:
        """Let the node send a token to the witness; only what the witness heard counts."""
        token = uuid.uuid4().hex
        target = f"/dev/tcp/{self.control_plane_address}/{self._host.witness_port()}"
        sent = self.run(["bash", "-c", _SEND, token, target], deadline_s=CONNECT_LIMIT_S)
        if sent.status != 0:
            return self._host.heard(token)
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(_HEARD_LIMIT_S),
            wait=tenacity.wait_fixed(0.02),
            retry=tenacity.retry_if_result(lambda heard: not heard),
            retry_error_callback=lambda _state: False,
        )
        return bool(retry(self._host.heard, token))

    def kubelet_configuration(self) -> Mapping[str, Json]:
        """What its kubelet says of its configuration. Raises MachineError."""
        return self._host.kubelet_configuration(self.name)

    def close(self) -> None:
        """Give up the warm connection."""
        with self._lock:
            transport, self._transport = self._transport, None
        if transport is not None:
            _close(transport)

    def _dialled(self, host: str, port: int) -> Literal["accepted", "refused", "silent"]:
        try:
            self._dial(host, port, REACH_LIMIT_S).close()
        except ConnectionRefusedError:
            return "refused"
        except OSError:
            return "silent"
        return "accepted"

    def _channel(self, until: float) -> tuple[paramiko.Transport, paramiko.Channel]:
        """A channel of the warm connection, or of a new one where the machine has booted since."""
        with self._lock:
            warm = self._transport
        if warm is not None and warm.is_active():
            try:
                return warm, _open(warm, until)
            except (OSError, EOFError, paramiko.SSHException):
                self.close()
        made = self._connected(until)
        return made, _open(made, until)

    def _connected(self, until: float) -> paramiko.Transport:
        """The warm connection, or a new one, made while nobody else is kept waiting."""
        with self._lock:
            if self._transport is not None and self._transport.is_active():
                return self._transport
        made = self._connect(until)
        with self._lock:
            held = self._transport
            if held is None or not held.is_active():
                self._transport = made
                return made
        _close(made)
        return held

    def _connect(self, until: float) -> paramiko.Transport:
        left = min(_left(until), CONNECT_LIMIT_S)
        until = time.monotonic() + left
        key = paramiko.Ed25519Key.from_private_key_file(str(check_private(self._access.key)))
        transport = paramiko.Transport(self._dial(self._access.control_address, SSH_PORT, left))
        transport.banner_timeout = transport.auth_timeout = transport.handshake_timeout = left
        try:
            kind, _space, blob = self._access.host_key.partition(" ")
            transport.get_security_options().key_types = (kind,)
            expected = paramiko.Ed25519Key(data=paramiko.Message(_decoded(blob)).asbytes())
            with _cut_at(until, transport):
                transport.connect(hostkey=expected, username="root", pkey=key)
        except BaseException:
            _close(transport)
            raise
        transport.sock.settimeout(_IDLE_CHECK_S)
        return transport


def _close(transport: paramiko.Transport) -> None:
    """Close it at once: its thread is woken by this, and the peer hears of it."""
    with contextlib.suppress(OSError):
        transport.sock.shutdown(socket.SHUT_RDWR)
    transport.close()
    transport.sock.close()


def _open(transport: paramiko.Transport, until: float) -> paramiko.Channel:
    with _cut_at(until, transport):
        return transport.open_session(window_size=_WINDOW_BYTES, timeout=_left(until))


def _run(
    transport: paramiko.Transport, channel: paramiko.Channel, argv: Sequence[str], until: float, stdin: str
) -> CommandResult:
    channel.settimeout(_left(until))
    channel.exec_command(shlex.join(argv))
    if stdin:
        channel.sendall(stdin.encode())
    channel.shutdown_write()
    stdout, stderr = _read(channel.recv, channel, until), _read(channel.recv_stderr, channel, until)
    if not channel.status_event.wait(_left(until)):
        raise TimeoutError
    if channel.exit_status == _NO_STATUS and not transport.is_active():
        raise EOFError("the connection was cut")
    return CommandResult(channel.exit_status, stdout, stderr)


@contextmanager
def _cut_at(until: float, transport: paramiko.Transport) -> Iterator[None]:
    """Close a connection at a deadline: paramiko waits for some answers without any."""

    def cut() -> None:
        _close(transport)

    timer = threading.Timer(_left(until), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _decoded(blob: str) -> bytes:

    return base64.b64decode(blob.split(maxsplit=1)[0])


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    return left


def _read(receive: Callable[[int], bytes], channel: paramiko.Channel, until: float) -> str:
    chunks: list[bytes] = []
    while True:
        channel.settimeout(_left(until))
        chunk = receive(65536)
        if not chunk:
            return b"".join(chunks).decode(errors="replace")
        chunks.append(chunk)
