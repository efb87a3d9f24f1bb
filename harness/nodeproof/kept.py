"""The cache folder that nodeproof keeps for its user between runs, and its locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeproof.model.problem import Problem

Report = Callable[[str], None]
_BAR = 30
"""Width of the bar (characters)."""


class Counted(str):
    """A progress line: `done` of at most `total`, which is 0 if unknown.

    A terminal shows each as a bar that replaces the previous one; a log shows only milestones.
    """

    done: int
    total: int
    is_milestone: bool

    @classmethod
    def of(cls, line: str, done: int, total: int, is_milestone: bool = True) -> Counted:
        """Make such a line."""
        counted = cls(line)
        counted.done, counted.total, counted.is_milestone = done, total, is_milestone
        return counted

    @property
    def bar(self) -> str:
        """Draw the progress for a terminal."""
        if not self.total:
            return str(self)
        full = _BAR * min(self.done, self.total) // self.total
        return f"{'█' * full}{'░' * (_BAR - full)} {self}"


class Detail(str):
    """A line that a run shows on a terminal, or with -v, but not in a log."""


def cache_dir() -> Path:
    """Return the cache folder of the user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeproof"


def make_folder(folder: Path) -> None:
    """Make a folder of the cache. Raises Problem."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            f"the cache cannot be written: {error.strerror}",
            str(folder),
            "set XDG_CACHE_HOME to a folder that can",
        ) from error


@contextlib.contextmanager
def locked(file: Path, meanwhile: str, report: Report) -> Iterator[None]:
    """Hold `file` locked against other processes; report `meanwhile` if the lock is not free."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{meanwhile}: waiting for it ({file.parent})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def half_made(folder: Path) -> list[Path]:
    """Return the partial files and folders of killed processes, i.e. those whose lock is free."""
    partial = folder.glob(".*.new-*")
    return [path for path in partial if is_free(folder / f"{path.name.rpartition('.new-')[0]}.lock")]


def is_free(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
