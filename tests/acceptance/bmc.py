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

Json = Any
PASSWORD_ENV, PASSWORD = "NODEPROOF_TEST_BMC", "hunter-2-x"
_CLIENT = f"""#!{sys.executable} -I
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(" ".join([*sys.argv[2:], sys.stdin.read()]).encode())
connection.shutdown(socket.SHUT_WR)
answer = connection.makefile().read()
print(answer)
sys.exit(answer not in ("on", "off"))
"""


@contextmanager
def serving_power(lab: str, folder: Path) -> Iterator[Mapping[str, Json]]:
    """Serve the power of a lab's nodes; yield the entry of an inventory for it, without a switch.

    `bmc.py SOCKET ACTION NODE` in the folder is its client.
    """
    client, path, program = registry.client(lab), folder / "bmc", folder / "bmc.py"
    program.write_text(_CLIENT)
    program.chmod(0o755)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            action, node, password = self.rfile.read().decode().split(" ")
            if password != PASSWORD:
                self.wfile.write(b"bad password")
                return
            if action != "status":
                client.power(node, action)
            is_on = next(entry.is_on for entry in client.status().nodes if entry.name == node)
            self.wfile.write(b"on" if is_on else b"off")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        argv = [str(program), str(path), "{action}", "{node}"]
        yield {"driver": "command", "options": {"argv": argv}, "secret_env": PASSWORD_ENV}
        server.shutdown()
        thread.join()
