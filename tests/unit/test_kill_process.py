"""A killed kubelet leaves its port to the next one."""

from __future__ import annotations

import socket
import subprocess
import sys

from nodeproof.labs.ground.processes import kill_and_wait

LISTEN = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
# Memory that has to be freed makes its end take longer than a signal.
held = bytearray(400 << 20)
threading.Event().wait()
"""


def test_port_of_a_killed_process_is_free_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        port = int(output.readline())
    kill_and_wait(process.pid)
    with socket.create_server(("127.0.0.1", port)):
        pass
    process.wait()


def test_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    kill_and_wait(process.pid)
