"""Guests' clocks: their clock chip knows whole seconds only, so each seed asks for the lab's own time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from nodeproof.labs.ground.network import BRIDGES
from nodeproof.machines.machine import MachineError, Shell

_COMMAND_LIMIT_S = 20.0


class TimeServer:
    """Tells everybody who connects on `control` the host's time, at that moment."""

    def __init__(self) -> None:
        self._socket = socket.create_server((BRIDGES["control"], 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def place(self) -> str:
        """Address and port, as a seed tells them."""
        address, port = self._socket.getsockname()
        return f"{address} {port}"

    def set_clock(self, guest: Shell) -> None:
        """Let a guest that stood still ask and set its clock, to within what starting `date` takes there.

        Raises MachineError.
        """
        address, port = self._socket.getsockname()
        script = f"exec 3<>/dev/tcp/{address}/{port} && read -r now <&3 && date --set=@$now"
        done = guest.run(["bash", "-c", script], deadline_s=_COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{guest.name}: its clock cannot be set: {done.stderr.strip()}")

    def _serve(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(f"{time.time():.6f}\n".encode())
