"""What nodeproof keeps for its user between runs: one folder, and locks in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeproof.model.problem import Problem

Report = Callable[[str], None]
_BAR = 30
"""So many characters wide."""


class Counted(str):
    """A line about the progress of work: `done` of at most `total`, which is 0 if nobody knows the total.

    A terminal shows each as a bar that replaces the one before; a log shows only milestones.
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
    """The folder of everything that nodeproof keeps for the user."""
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
    """Hold `file` locked against other processes; say `meanwhile` when that means waiting."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{meanwhile}: waiting for it ({file.parent})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def half_made(folder: Path) -> list[Path]:
    """What killed processes left of what they were making: only what nobody holds the lock of."""
    found = folder.glob(".*.new-*")
    return [path for path in found if is_free(folder / f"{path.name.rpartition('.new-')[0]}.lock")]


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
