"""The power of a lab's nodes behind a password, as a BMC has it; programs in the nodes reach it, too."""

from __future__ import annotations

import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodeproof.labs.client import registry
from tests.waiting import eventually

Json = Any
PASSWORD_ENV, PASSWORD = "NODEPROOF_TEST_BMC_PASSWORD", "hunter-2-x"
_SWITCHED_TIMEOUT_S = 20.0
_CLIENT = f"""#!{sys.executable} -I
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(" ".join([*sys.argv[2:], sys.stdin.read()]).encode() + b"\\n")
answer = connection.makefile().readline().strip()
print(answer)
sys.exit(answer not in ("on", "off"))
"""


@contextmanager
def serving_power(lab: str, folder: Path) -> Iterator[Mapping[str, Json]]:
    """Serve the power of a lab's nodes; yield the entry of an inventory for it, without a switch.

    `bmc.py SOCKET ACTION NODE` in the folder is its client; the socket is `bmc`.
    """
    client, path, program = registry.client(lab), folder / "bmc", folder / "bmc.py"
    program.write_text(_CLIENT)
    program.chmod(0o755)

    def is_on(node: str) -> bool:
        return next(entry.is_on for entry in client.status().nodes if entry.name == node)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            action, node, password = self.rfile.readline().decode().strip().split(" ")
            if password != PASSWORD:
                self.wfile.write(b"bad password\n")
                return
            if action != "status":
                # It does not wait for a boot.
                threading.Thread(target=client.power, args=(node, action), daemon=True).start()
                eventually(lambda: is_on(node) == (action == "on"), _SWITCHED_TIMEOUT_S)
            self.wfile.write(b"on\n" if is_on(node) else b"off\n")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        argv = [str(program), str(path), "{action}", "{node}"]
        yield {"driver": "command", "options": {"argv": argv}, "secret_env": PASSWORD_ENV}
        server.shutdown()
        thread.join()
