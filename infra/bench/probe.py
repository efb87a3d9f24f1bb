"""One UDP packet a millisecond from the control plane's side to a node; which ones arrive is what a cut does.

`python probe.py send ADDRESS NODE_PID STOP` in a lab's outer namespaces: sends until the file STOP is there
and prints `{"sent": [t, ...], "arrived": [number, ...]}`, times on CLOCK_MONOTONIC. It starts `probe.py
receive` inside the node's network namespace. Standard library only.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, cast

PERIOD_S = 0.001
TIMEOUT_S = 240.0
_PAUSE = threading.Event()


def send(address: str, node: str, stop: str) -> None:
    """Start the receiver, send until told to stop, and print what became of each packet."""
    enter = ["nsenter", f"--net=/proc/{node}/ns/net", "--"]
    argv = [*enter, sys.executable, "-I", __file__, "receive", address]
    receiver = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    port = int(cast("IO[str]", receiver.stdout).readline())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((address, port))
        sent = _stream(sock, Path(stop))
    arrived = json.loads(receiver.communicate(timeout=20)[0])
    print(json.dumps({"sent": [round(t, 6) for t in sent], "arrived": arrived}))


def receive(address: str) -> None:
    """Print the port, then the numbers of all packets once none has come for a while after the last one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        print(sock.getsockname()[1], flush=True)
        arrived = []
        sock.settimeout(15)
        while (number := _take(sock)) >= 0:
            arrived.append(number)
    print(json.dumps(arrived))


def _take(sock: socket.socket) -> int:
    """Return the number of the next packet, -1 at the end of the stream."""
    try:
        return int(sock.recv(64))
    except TimeoutError:
        return -1


def _stream(sock: socket.socket, stop: Path) -> list[float]:
    sent: list[float] = []
    due = time.monotonic()
    until = due + TIMEOUT_S
    while time.monotonic() < until:
        if len(sent) % 100 == 0 and stop.exists():
            break
        sent.append(time.monotonic())
        _put(sock, len(sent) - 1)
        due = max(due + PERIOD_S, time.monotonic() - PERIOD_S)
        _PAUSE.wait(max(0.0, due - time.monotonic()))
    for _ in range(3):
        _put(sock, -1)
    return sent


def _put(sock: socket.socket, number: int) -> None:
    """Send; a refusal that an earlier packet met is of no interest."""
    try:
        sock.send(str(number).encode())
    except OSError:
        return


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(*sys.argv[2:])
    else:
        receive(sys.argv[2])
