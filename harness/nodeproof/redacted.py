"""Redact secrets in files: logs that go into a run's folder or to Allure."""

from __future__ import annotations

from pathlib import Path

from nodeproof import disk
from nodeproof.model import redact

_LOSSLESS = "utf-8", "surrogateescape"


def cleaned(file: bytes) -> bytes:
    """Return the content of a text file, redacted; what is no UTF-8 stays as it is."""
    return redact.text(file.decode(*_LOSSLESS)).encode(*_LOSSLESS)


def tail(path: Path, length: int) -> str:
    """Return the last `length` bytes of a log, redacted. Raises OSError."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - length - redact.LONGEST_KEY))
        content = log.read()
    clean = cleaned(content)
    return (clean if size <= length else clean[-length:]).decode(errors="replace")


def copy(source: str | Path, target: str | Path) -> str | Path:
    """Copy a text file, redacted; return the target. Raises OSError."""
    Path(target).write_bytes(cleaned(Path(source).read_bytes()))
    return target


def in_place(path: Path) -> None:
    """Redact a text file in place, atomically. Raises OSError."""
    text = path.read_bytes()
    clean = cleaned(text)
    if clean != text:
        disk.replace(path, clean)
