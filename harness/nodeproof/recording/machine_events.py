"""Reader for the growing file of machine and component events that a lab writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = Any


class MachineEvents:
    """The lines of a file from a position on (bytes); by default from its present end."""

    def __init__(self, path: Path, at: int | None = None) -> None:
        self._path = path
        self._at = events_end(path) if at is None else at

    def read(self) -> Iterator[dict[str, Json]]:
        """Yield new lines; an incomplete line is left for the next call."""
        if not self._path.exists():
            return
        with self._path.open() as lines:
            lines.seek(self._at)
            for line in lines:
                if line.endswith("\n"):
                    self._at += len(line.encode())
                    yield json.loads(line)


def events_end(path: Path) -> int:
    """Return the position of the next line (bytes)."""
    return path.stat().st_size if path.exists() else 0
