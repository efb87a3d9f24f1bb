"""`python -m nodeproof.labs.client.relay SOCKET HOST PORT` connects stdin and stdout to a port in a lab."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

from nodeproof.labs.ground.wire import SupervisorClient

_DIAL_LIMIT_S = 10.0


def main() -> None:
    """Copy in both directions until one side ends."""
    peer = SupervisorClient(Path(sys.argv[1])).dial(sys.argv[2], int(sys.argv[3]), _DIAL_LIMIT_S)
    threading.Thread(target=_send, args=(peer,), daemon=True).start()
    while data := peer.recv(65536):
        os.write(1, data)


def _send(peer: socket.socket) -> None:
    while data := os.read(0, 65536):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
