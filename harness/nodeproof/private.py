"""Private keys on disk: one that others can read is no secret. Standard library only."""

from __future__ import annotations

import stat
from pathlib import Path

from nodeproof.model.problem import Problem

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_private(path: Path) -> Path:
    """Refuse a private key that its group or everybody may open, as OpenSSH does. Raises Problem, OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise Problem(f"a private key that others may read (mode {mode:04o})", str(path), "chmod 600 it")
    return path
