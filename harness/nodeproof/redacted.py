"""Files without what is secret: logs on their way into a run's folder, and to Allure."""

from __future__ import annotations

from pathlib import Path

from nodeproof.model import redact

_LOSSLESS = "utf-8", "surrogateescape"


def tail(path: Path, length: int) -> str:
    """The last `length` bytes of a log, clean. Raises OSError."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - length - redact.LONGEST_KEY))
        taken = log.read()
    clean = redact.text(taken.decode(*_LOSSLESS)).encode(*_LOSSLESS)
    return (clean if size <= length else clean[-length:]).decode(errors="replace")


def copy(source: str | Path, target: str | Path) -> str | Path:
    """Copy a text file, clean; gives the target. Raises OSError."""
    written = Path(target)
    said = Path(source).read_bytes().decode(*_LOSSLESS)
    written.write_bytes(redact.text(said).encode(*_LOSSLESS))
    return target


def in_place(path: Path) -> None:
    """Clean a text file where it is, in one step. Raises OSError."""
    said = path.read_bytes().decode(*_LOSSLESS)
    clean = redact.text(said)
    if clean != said:
        partial = path.with_name(f".{path.name}.clean")
        partial.write_bytes(clean.encode(*_LOSSLESS))
        partial.replace(path)
