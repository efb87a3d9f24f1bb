"""Keeps the logs of a lab's components from growing without end: /run is mostly memory.

As logrotate's `copytruncate` does: whoever appends to a file goes on at its beginning.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

LIMIT_BYTES = 8 << 20
"""How long a component's log, or a guest's console, may get; there is one earlier part of each."""
AUDIT_LIMIT_MB = 32
"""How long the audit log may get, which has one earlier part, too."""
LOOKED_EACH_S = 1.0
"""How often it is looked how long the logs are, and if there is room for them."""
_PANIC = "Kernel panic"


def keep_short(
    folder: Path, uid: int, gid: int, look: Callable[[], None], limit_bytes: int = LIMIT_BYTES
) -> None:
    """Look after the logs in a folder until this process ends; they are the owner's, whoever writes them.

    `look` is called each time before a log may be cut, while it still shows if there was room.
    """
    threading.Thread(target=_keep_short, args=(folder, uid, gid, look, limit_bytes), daemon=True).start()


def give(folder: Path, uid: int, gid: int) -> None:
    """Give the logs in a folder to their owner: consoles and audit logs are made for their writer alone."""
    for log in folder.iterdir():
        with contextlib.suppress(OSError):
            os.chown(log, uid, gid, follow_symlinks=False)


def _keep_short(folder: Path, uid: int, gid: int, look: Callable[[], None], limit_bytes: int) -> None:
    never = threading.Event()
    while not never.wait(LOOKED_EACH_S):
        with contextlib.suppress(OSError):
            look()
            give(folder, uid, gid)
        for log in folder.glob("*.log"):
            # What the disk has no room for is lost: the logs of a lab must not fill it.
            with contextlib.suppress(OSError):
                begin_anew(log, limit_bytes)


def begin_anew(log: Path, limit_bytes: int) -> None:
    """Move what a log beyond its limit holds to `NAME.log.1`, or drop it where there is no room.

    Root follows no link in a folder that is somebody else's. Raises OSError.
    """
    with open(log, "r+b", opener=_no_link) as full:
        if os.fstat(full.fileno()).st_size <= limit_bytes:
            return
        earlier = log.with_name(f"{log.name}.1")
        try:
            earlier.unlink(missing_ok=True)
            with open(earlier, "xb", opener=_no_link) as kept:
                shutil.copyfileobj(full, kept)
        except OSError:
            earlier.unlink(missing_ok=True)
            raise
        finally:
            full.truncate(0)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def last_words(console: str, count: int) -> str:
    """What a guest said last: so many lines from its panic on, or the last ones of all."""
    lines = console.splitlines()
    panic = next((at for at, line in enumerate(lines) if _PANIC in line), None)
    return "\n".join(lines[-count:] if panic is None else lines[panic : panic + count])
