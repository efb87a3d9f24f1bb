"""The driver's calls: a line of JSON for each, timed by a clock that all processes of a machine share."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

STARTED = "Started"
"""The first line of each driver process: the last call before it may be missing."""


class Calls:
    """The file of calls, if there is one. A call is written before it is answered.

    Each line has `method`, `volume`, `node`, `begin` and `end` (s, CLOCK_MONOTONIC) and `code`, the name of a
    gRPC status; volume and node are empty for a call without them.
    """

    def __init__(self, file: Path | None) -> None:
        self._out: int | None = None
        if file is not None:
            # Open it read-write: to open a pipe must not wait for its reader.
            self._out = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if _is_torn(file):
                self._append(b"\n")
        now = time.monotonic()
        self.write(STARTED, "", "", now, now, "OK")

    def write(self, method: str, volume: str, node: str, begin: float, end: float, code: str) -> None:
        """Write a completed call. Raises OSError."""
        line = {"method": method, "volume": volume, "node": node, "begin": begin, "end": end, "code": code}
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        """Append the line with a single write, so that lines of several threads do not mix."""
        if self._out is not None and os.write(self._out, line) != len(line):
            raise OSError("no space for the calls")


def _is_torn(file: Path) -> bool:
    """Return whether the last line is incomplete: its driver was killed, or ran out of space."""
    if not file.is_file() or not file.stat().st_size:
        return False
    with file.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) != b"\n"
