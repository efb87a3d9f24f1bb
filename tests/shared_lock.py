"""A lock on a file that tests of several workers share, or that one test holds alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def beside_others(folder: Path) -> Iterator[None]:
    """Run beside the tests of other workers, once nobody wants to run alone.

    A worker that dies has had its turn: the kernel gives its locks back. Raises OSError.
    """
    with _held(folder / "next", fcntl.LOCK_EX):
        mine = _lock(folder / "runs", fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(mine)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Run once the running tests have ended, and before any other begins.

    Never use it within `beside_others`. Raises OSError.
    """
    with _held(folder / "next", fcntl.LOCK_EX), _held(folder / "runs", fcntl.LOCK_EX):
        yield


@contextmanager
def _held(path: Path, how: int) -> Iterator[None]:
    descriptor = _lock(path, how)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, how: int) -> int:
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, how)
    return descriptor
