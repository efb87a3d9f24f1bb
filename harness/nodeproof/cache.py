"""The cache that nodeproof keeps for its user between runs: its folder, and entries that are built once.

An entry is a folder that is built completely or not at all, even if many processes need it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from nodeproof import locks
from nodeproof.model.problem import Problem

T = TypeVar("T")
Report = Callable[[str], None]
_BAR = 30
"""Width of the bar (characters)."""
_BUILD_TIMEOUT_S = 14_400.0
"""Longer than all steps of a build of Kubernetes may take."""
_REPORT_EVERY_S, _MILESTONE_EVERY_S = 5.0, 60.0


class ProgressLine(str):
    """A progress line: `completed` of at most `total`, which is 0 if unknown.

    A terminal shows each as a bar that replaces the previous one; a log shows only milestones.
    """

    completed: int
    total: int
    is_milestone: bool

    @classmethod
    def of(cls, line: str, completed: int, total: int, is_milestone: bool = True) -> ProgressLine:
        """Make such a line."""
        progress = cls(line)
        progress.completed, progress.total, progress.is_milestone = completed, total, is_milestone
        return progress

    @property
    def bar(self) -> str:
        """Draw the progress for a terminal."""
        if not self.total:
            return str(self)
        full = _BAR * min(self.completed, self.total) // self.total
        return f"{'█' * full}{'░' * (_BAR - full)} {self}"


def time_left(left_s: float) -> str:
    """Return how long something still takes (s), rounded."""
    if left_s < 5:
        return "almost done"
    return f"about {5 * round(left_s / 5)} s left" if left_s < 90 else f"about {round(left_s / 60)} min left"


_KNOWN_FROM = 1 / 3
"""The part of a step after which the time left is shown."""


class StepProgress:
    """Reports the progress of a step every few seconds, with the time left; once a minute as a milestone."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._began = self._last = self._milestone = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """How long the step takes until now (s)."""
        return time.monotonic() - self._began

    def tick(self, line: str, completed: float, total: float) -> None:
        """Report the line if the last one is old: so much of a total is done, which is 0 if unknown."""
        now = time.monotonic()
        if now - self._last < _REPORT_EVERY_S:
            return
        self._last = now
        elapsed_s = now - self._began
        # The first part of a build is quick: what is left is not known before a third is done.
        is_known = total and completed >= total * _KNOWN_FROM
        rest = f", {time_left(elapsed_s * (total / completed - 1))}" if is_known else ""
        is_milestone = now - self._milestone >= _MILESTONE_EVERY_S
        if is_milestone:
            self._milestone = now
        line = f"{line}, {elapsed_s:.0f} s{rest}"
        self._report(ProgressLine.of(line, int(completed), int(total), is_milestone))


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
        message = f"the cache cannot be written: {error.strerror}"
        raise Problem(message, str(folder), "set XDG_CACHE_HOME to a writable folder") from error


def unfinished(folder: Path) -> list[Path]:
    """Return the unfinished snapshots in a folder (`.KEY.new-*`) whose lock no process holds."""
    lock_of = {path: folder / f"{path.name.rpartition('.new-')[0]}.lock" for path in folder.glob(".*.new-*")}
    return [path for path, lock in lock_of.items() if not locks.is_held(lock)]


def load_or_build(
    entry: Path, load: Callable[[Path], T | None], make: Callable[[], None], wait_message: str, report: Report
) -> T:
    """Return what `load` reads of `entry`; if that is None, call `make` first, under the entry's lock.

    If another process holds the lock, `wait_message` is reported. Raises Problem.
    """
    loaded = load(entry)
    if loaded is None:
        make_folder(entry.parent)
        message = f"{wait_message}: waiting for it ({entry.parent})"
        with locks.locked(entry.parent / f".{entry.name}.lock", _BUILD_TIMEOUT_S, lambda: report(message)):
            loaded = load(entry)
            if loaded is None:
                make()
                loaded = load(entry)
    if loaded is None:
        message = "the new cache entry cannot be read back"
        raise Problem(message, str(entry), "remove this folder and try again")
    return loaded


@contextlib.contextmanager
def work_folder(entry: Path) -> Iterator[Path]:
    """Yield a folder to build in; without an error its subfolder "entry" replaces the cache entry.

    The caller holds the lock.
    """
    # A killed build leaves its folder.
    for abandoned in entry.parent.glob(f".{entry.name}.build-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}.build-", dir=entry.parent) as folder:
        yield Path(folder)
        shutil.rmtree(entry, ignore_errors=True)
        Path(folder, "entry").rename(entry)
