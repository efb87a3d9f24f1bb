"""Permissions of private keys on disk. Standard library only."""

from __future__ import annotations

import stat
from pathlib import Path

from nodeproof.model.problem import Problem

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_private(path: Path) -> Path:
    """Check that only the owner may read a private key, as OpenSSH does. Raises Problem, OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise Problem(f"others may read this private key (mode {mode:04o})", str(path), "run chmod 600 on it")
    return path
