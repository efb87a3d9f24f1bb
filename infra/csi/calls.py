"""What the driver was asked: a line of JSON for each call, on a clock that all of a machine share."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

STARTED = "Started"
"""The first line of each driver: what was asked before it may lack its last call."""


class Calls:
    """Writes calls to a file, or nowhere. A call is written down before it is answered.

    Each line has `method`, `volume`, `node`, `begin` and `end` (s, CLOCK_MONOTONIC) and `code`, the name of a
    gRPC status; volume and node are empty where a call names none.
    """

    def __init__(self, file: Path | None) -> None:
        self._out: int | None = None
        if file is not None:
            # Read-write: opening a pipe must not wait for its reader.
            self._out = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if _is_torn(file):
                self._put(b"\n")
        now = time.monotonic()
        self.write(STARTED, "", "", now, now, "OK")

    def write(self, method: str, volume: str, node: str, begin: float, end: float, code: str) -> None:
        """One call that has ended. Raises OSError."""
        line = {"method": method, "volume": volume, "node": node, "begin": begin, "end": end, "code": code}
        self._put(json.dumps(line).encode() + b"\n")

    def _put(self, line: bytes) -> None:
        """All of the line in one write, so that lines of several threads stay whole."""
        if self._out is not None and os.write(self._out, line) != len(line):
            raise OSError("no space for the calls")


def _is_torn(file: Path) -> bool:
    """Whether a driver was killed, or ran out of space, while it wrote its last line."""
    if not file.is_file() or not file.stat().st_size:
        return False
    with file.open("rb") as read:
        read.seek(-1, os.SEEK_END)
        return read.read(1) != b"\n"
