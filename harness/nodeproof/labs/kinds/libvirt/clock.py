"""Guests' clocks: a clock chip has whole seconds only, so each seed asks for the lab's own time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from nodeproof.labs.ground.network import BRIDGES
from nodeproof.machines.machine import MachineError, Shell

_COMMAND_LIMIT_S = 20.0


class TimeServer:
    """Sends every client on `control` the host's current time."""

    def __init__(self) -> None:
        self._socket = socket.create_server((BRIDGES["control"], 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def place(self) -> str:
        """Address and port, in the format of a seed."""
        address, port = self._socket.getsockname()
        return f"{address} {port}"

    def set_clock(self, guest: Shell) -> None:
        """Let a thawed guest ask for the time and set its clock; the error is the start time of `date`.

        Raises MachineError.
        """
        address, port = self._socket.getsockname()
        script = f"exec 3<>/dev/tcp/{address}/{port} && read -r now <&3 && date --set=@$now"
        completed = guest.run(["bash", "-c", script], deadline_s=_COMMAND_LIMIT_S)
        if completed.status != 0:
            raise MachineError(f"{guest.name}: its clock cannot be set: {completed.stderr.strip()}")

    def _serve(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(f"{time.time():.6f}\n".encode())
