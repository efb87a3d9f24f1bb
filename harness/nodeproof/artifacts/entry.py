"""An entry of the cache: a folder that is made once, whole or not at all, however many ask for it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from nodeproof.kept import Report, locked, make_folder
from nodeproof.model.problem import Problem

T = TypeVar("T")


def entry_made(
    entry: Path, load: Callable[[Path], T | None], make: Callable[[], None], meanwhile: str, report: Report
) -> T:
    """What `load` reads of `entry`; where that is None, after `make`, which runs under the entry's lock.

    Who has to wait for another process's `make` is told `meanwhile`. Raises Problem.
    """
    found = load(entry)
    if found is None:
        make_folder(entry.parent)
        with locked(entry.parent / f".{entry.name}.lock", meanwhile, report):
            found = load(entry)
            if found is None:
                make()
                found = load(entry)
    if found is None:
        raise Problem(
            "what was just made cannot be read back", str(entry), "remove this folder and try again"
        )
    return found


@contextlib.contextmanager
def work_folder(entry: Path) -> Iterator[Path]:
    """A folder to build in, whose `entry` becomes the cache's at the end. The caller holds the lock."""
    for left_by_a_killed_build in entry.parent.glob(f".{entry.name}.build-*"):
        shutil.rmtree(left_by_a_killed_build, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}.build-", dir=entry.parent) as folder:
        yield Path(folder)
        shutil.rmtree(entry, ignore_errors=True)
        Path(folder, "entry").rename(entry)
