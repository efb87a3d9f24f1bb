"""What whoever runs a lab writes down of its machines and components, read as it grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = Any


class MachineEvents:
    """The lines of a file from a place on (bytes); from its present end, where none is told."""

    def __init__(self, path: Path, at: int | None = None) -> None:
        self._path = path
        self._at = events_end(path) if at is None else at

    def read(self) -> Iterator[dict[str, Json]]:
        """What was written since the last look; a line that is not whole yet is left for the next."""
        if not self._path.exists():
            return
        with self._path.open() as lines:
            lines.seek(self._at)
            for line in lines:
                if line.endswith("\n"):
                    self._at += len(line.encode())
                    yield json.loads(line)


def events_end(path: Path) -> int:
    """Where the next line will be written (bytes)."""
    return path.stat().st_size if path.exists() else 0
