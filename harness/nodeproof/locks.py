"""Locks of files (flock(2)), which only their owner can open.

A lock belongs to an open file: it ends when the last process that has it open closes it or ends, so a child
that inherits the descriptor holds it, too. Many processes may share a lock, and a locked file may contain
something, such as its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import tenacity

from nodeproof.model.problem import Problem

_PERIOD_S = 0.05


def open_file(path: Path) -> int:
    """Open a file to lock, created if it is missing. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def lock(file: int, path: Path, timeout_s: float) -> None:
    """Lock the open file at `path` against all other processes; wait up to `timeout_s` for them.

    Raises Problem.
    """
    # Tries instead of a clock: a process that was stopped has not waited.
    tries = tenacity.stop_after_attempt(math.ceil(timeout_s / _PERIOD_S))
    not_locked = tenacity.retry_if_result(lambda is_locked: not is_locked)
    try:
        tenacity.Retrying(stop=tries, wait=tenacity.wait_fixed(_PERIOD_S), retry=not_locked)(try_lock, file)
    except tenacity.RetryError as error:
        message = f"another process still holds this lock after {timeout_s:g} s"
        step = "wait for that process, which fuser(1) shows, or end it"
        raise Problem(message, str(path), step) from error


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
def locked(path: Path, timeout_s: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a file, created if it is missing; call `on_wait` if another process holds it.

    Raises OSError, and Problem if that process holds it for longer than `timeout_s`.
    """
    descriptor = open_file(path)
    try:
        if not try_lock(descriptor):
            on_wait()
            lock(descriptor, path, timeout_s)
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
