"""Redact secrets in files: logs that go into a run's folder or to Allure."""

from __future__ import annotations

from pathlib import Path

from nodeproof import disk
from nodeproof.model import redact

_LOSSLESS = "utf-8", "surrogateescape"


def tail(path: Path, length: int) -> str:
    """Return the last `length` bytes of a log, redacted. Raises OSError."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - length - redact.LONGEST_KEY))
        content = log.read()
    clean = redact.text(content.decode(*_LOSSLESS)).encode(*_LOSSLESS)
    return (clean if size <= length else clean[-length:]).decode(errors="replace")


def copy(source: str | Path, target: str | Path) -> str | Path:
    """Copy a text file, redacted; return the target. Raises OSError."""
    text = Path(source).read_bytes().decode(*_LOSSLESS)
    Path(target).write_bytes(redact.text(text).encode(*_LOSSLESS))
    return target


def in_place(path: Path) -> None:
    """Redact a text file in place, atomically. Raises OSError."""
    text = path.read_bytes().decode(*_LOSSLESS)
    clean = redact.text(text)
    if clean != text:
        disk.replace(path, clean.encode(*_LOSSLESS))
