"""Limits the size of the logs of a lab's components: /run is mostly memory.

Works like logrotate's `copytruncate`: a process that appends to a file continues at its beginning.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

LIMIT_BYTES = 8 << 20
"""Size limit of a component's log or a guest's console; one earlier part of each is kept."""
AUDIT_LIMIT_MB = 32
"""Size limit of the audit log; one earlier part is kept."""
LOOKED_EACH_S = 1.0
"""How often the size of the logs and the free space are checked."""
_PANIC = "Kernel panic"


def keep_short(
    folder: Path, uid: int, gid: int, look: Callable[[], None], limit_bytes: int = LIMIT_BYTES
) -> None:
    """Truncate the logs in a folder, and give them to their owner, until this process ends.

    `look` is called before logs may be truncated, while a lack of space is still visible.
    """
    threading.Thread(target=_limit_logs, args=(folder, uid, gid, look, limit_bytes), daemon=True).start()


def give(folder: Path, uid: int, gid: int) -> None:
    """Give the logs in a folder to their owner: consoles and audit logs are created for their writer only."""
    for log in folder.iterdir():
        with contextlib.suppress(OSError):
            os.chown(log, uid, gid, follow_symlinks=False)


def _limit_logs(folder: Path, uid: int, gid: int, look: Callable[[], None], limit_bytes: int) -> None:
    never = threading.Event()
    while not never.wait(LOOKED_EACH_S):
        with contextlib.suppress(OSError):
            look()
            give(folder, uid, gid)
        for log in folder.glob("*.log"):
            # Without space for the copy its content is lost: logs must not fill the disk.
            with contextlib.suppress(OSError):
                begin_anew(log, limit_bytes)


def begin_anew(log: Path, limit_bytes: int) -> None:
    """Move the content of a log above its limit to `NAME.log.1`; drop it if there is no space.

    Root follows no link in a folder of another user. Raises OSError.
    """
    with open(log, "r+b", opener=_no_link) as full:
        if os.fstat(full.fileno()).st_size <= limit_bytes:
            return
        earlier = log.with_name(f"{log.name}.1")
        try:
            earlier.unlink(missing_ok=True)
            with open(earlier, "xb", opener=_no_link) as copy:
                shutil.copyfileobj(full, copy)
        except OSError:
            earlier.unlink(missing_ok=True)
            raise
        finally:
            full.truncate(0)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def last_words(console: str, count: int) -> str:
    """Return the last `count` lines of a guest's console, or the first `count` from its kernel panic on."""
    lines = console.splitlines()
    panic = next((at for at, line in enumerate(lines) if _PANIC in line), None)
    return "\n".join(lines[-count:] if panic is None else lines[panic : panic + count])
