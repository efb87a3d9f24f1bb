"""Atomic replacement of files, and private keys. Standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path

from nodeproof.model.problem import Problem

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def replace(path: Path, content: bytes) -> Path:
    """Replace a file atomically; a link at `path` is replaced, not followed. Raises OSError."""
    # The name is random, so that no other process can put a link there beforehand.
    partial = path.with_name(f".{path.name[:100]}-{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:
            file.write(content)
        return partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def write_private(path: Path, content: bytes) -> None:
    """Write a secret to a file that only its owner can read, from the first byte on."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
        out.write(content)


def check_private(path: Path) -> Path:
    """Check that only the owner may read a private key, as OpenSSH does. Raises Problem, OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise Problem(f"others may read this private key (mode {mode:04o})", str(path), "run chmod 600 on it")
    return path
