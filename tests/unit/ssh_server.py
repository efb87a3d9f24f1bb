"""An SSH server on loopback that runs commands as the tests' user, and forwards as a jump host does."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from nodeproof.machines.openssh import OpenSsh, strict_config

Key = paramiko.PKey


class _Session(paramiko.ServerInterface):
    """What one client may do."""

    def __init__(self, client_key: Key, environment: Mapping[str, str]) -> None:
        self._client_key, self._environment = client_key, environment
        self._forwarded: socket.socket | None = None
        self.channel: paramiko.Channel | None = None
        """The client's channel, which would be closed if nothing referred to it."""

    def get_allowed_auths(self, username: str) -> str:
        del username
        return "publickey"

    def check_auth_publickey(self, username: str, key: Key) -> int:
        is_known = (username, key) == ("admin", self._client_key)
        return AUTH_SUCCESSFUL if is_known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        del kind, chanid
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._execute, args=(channel, command.decode()), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        del chanid, origin
        self._forwarded = socket.create_connection(destination)
        return OPEN_SUCCEEDED

    def forward(self) -> None:
        """Copy both ways between the channel and the connection that it asked for, if any."""
        channel, forwarded = self.channel, self._forwarded
        if channel is not None and forwarded is not None:
            for source, target in ((channel, forwarded), (forwarded, channel)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    def _execute(self, channel: paramiko.Channel, command: str) -> None:
        stdin = b"".join(iter(lambda: channel.recv(65536), b""))
        completed = subprocess.run(
            ["sh", "-c", command], input=stdin, capture_output=True, env=self._environment, check=False
        )
        with contextlib.suppress(OSError):
            channel.sendall(completed.stdout)
            channel.sendall_stderr(completed.stderr)
            channel.send_exit_status(completed.returncode)
        channel.close()


def _copy(source: paramiko.Channel | socket.socket, target: paramiko.Channel | socket.socket) -> None:
    with contextlib.suppress(OSError):
        for chunk in iter(lambda: source.recv(65536), b""):
            target.sendall(chunk)
    target.close()


@dataclass(frozen=True)
class SshServer:
    """A running server, which knows the user admin by the key of its client."""

    port: int
    key: Key

    @property
    def known_host(self) -> str:
        """The server's line of a known_hosts file."""
        return f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"


@contextlib.contextmanager
def ssh_server(host_key: Key, client_key: Key, environment: Mapping[str, str]) -> Iterator[SshServer]:
    """Serve SSH until the context ends."""
    transports: list[paramiko.Transport] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _address = listener.accept()
                transport = paramiko.Transport(connection)
                transports.append(transport)
                transport.add_server_key(host_key)
                threading.Thread(target=_serve_client, args=(transport,), daemon=True).start()

    def _serve_client(transport: paramiko.Transport) -> None:
        session = _Session(client_key, environment)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=session)
            session.channel = transport.accept(10)
            session.forward()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield SshServer(listener.getsockname()[1], host_key)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for transport in transports:
        transport.close()


CONNECTION = "192.0.2.7 50000 192.0.2.8 22"
"""What the node shows of the connection to it."""
_SUDO = """#!/bin/sh
[ "$1 $2" = "-n --" ] || exit 9
shift 2
unset SSH_CONNECTION
NODEPROOF_TEST_UID=0 exec "$@"
"""


@dataclass(frozen=True)
class Hosts:
    """A node and a jump host, and the files by which a client reaches them."""

    node: SshServer
    jump: SshServer
    folder: Path

    @contextlib.contextmanager
    def shell(self, known_hosts: str, *options: str) -> Iterator[OpenSsh]:
        """Yield the node by an ssh_config with options of its own."""
        lines = ["StrictHostKeyChecking no", f"IdentityFile {self.folder / 'key'}", "User admin"]
        lines += ["HostName 127.0.0.1"]
        text = f"Host jump\n  Port {self.jump.port}\nHost worker-7\n  Port {self.node.port}\n"
        text += "".join(f"  {option}\n" for option in options)
        text += "Host *\n" + "".join(f"  {line}\n" for line in lines)
        (self.folder / "my config").write_text(text)
        (self.folder / "my known_hosts").write_text(known_hosts)
        with strict_config(self.folder / "my config", self.folder / "my known_hosts") as config:
            yield OpenSsh("worker-7", config)

    def program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)


@contextlib.contextmanager
def serving_hosts(folder: Path) -> Iterator[Hosts]:
    """Serve both hosts, whose host keys are RSA and ECDSA; the client has an ECDSA key and is not root."""
    client_key = paramiko.ECDSAKey.generate()
    client_key.write_private_key_file(str(folder / "key"))
    (folder / "bin").mkdir()
    environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SSH_CONNECTION": CONNECTION}
    with (
        ssh_server(paramiko.RSAKey.generate(2048), client_key, environment) as node,
        ssh_server(paramiko.ECDSAKey.generate(), client_key, environment) as jump,
    ):
        hosts = Hosts(node, jump, folder)
        hosts.program("id", "#!/bin/sh\necho ${NODEPROOF_TEST_UID:-1000}\n")
        hosts.program("sudo", _SUDO)
        yield hosts
