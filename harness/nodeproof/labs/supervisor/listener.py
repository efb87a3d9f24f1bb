"""The control plane's end of the data network: records what probes on nodes send to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque

from nodeproof.labs.ground.spec import API_ADDRESS


class Listener:
    """Accepts connections and remembers what nodes sent."""

    def __init__(self) -> None:
        self._socket = socket.create_server((API_ADDRESS, 0))
        self.port: int = self._socket.getsockname()[1]
        self.heard: deque[str] = deque(maxlen=200)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(1.0)
                self.heard.append(peer.recv(200).decode(errors="replace").strip())
