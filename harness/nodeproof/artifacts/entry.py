"""Cache entries: folders that are built once, completely or not at all, even if many processes ask."""

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
    """Return what `load` reads of `entry`; if that is None, call `make` first, under the entry's lock.

    If another process holds the lock, `meanwhile` is reported. Raises Problem.
    """
    loaded = load(entry)
    if loaded is None:
        make_folder(entry.parent)
        with locked(entry.parent / f".{entry.name}.lock", meanwhile, report):
            loaded = load(entry)
            if loaded is None:
                make()
                loaded = load(entry)
    if loaded is None:
        raise Problem(
            "the new cache entry cannot be read back", str(entry), "remove this folder and try again"
        )
    return loaded


@contextlib.contextmanager
def work_folder(entry: Path) -> Iterator[Path]:
    """Yield a folder to build in; at the end its subfolder `entry` becomes the cache entry.

    The caller holds the lock.
    """
    # A killed build leaves its folder.
    for abandoned in entry.parent.glob(f".{entry.name}.build-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}.build-", dir=entry.parent) as folder:
        yield Path(folder)
        shutil.rmtree(entry, ignore_errors=True)
        Path(folder, "entry").rename(entry)
