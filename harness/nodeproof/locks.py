"""Locks of files (flock(2)). Standard library only.

A lock belongs to an open file: it ends when the last process that has it open closes it or ends, so a child
that inherits the descriptor holds it, too. Many processes may share a lock, and a locked file may contain
something, such as its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any


def lock(file: int | IO[Any]) -> None:
    """Lock an open file against all other processes; wait for them."""
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Lock an open file, unless another process holds it; return whether it is locked."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int | IO[Any]) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a file, created if it is missing; call `on_wait` if another process holds it. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        if not try_lock(descriptor):
            on_wait()
            lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a process holds a file; False if there is no such file. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
