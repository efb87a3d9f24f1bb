"""A lab shared by the workers of these tests: the first starts it, the last ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.locks import locked, try_lock, unlock
from nodeproof.model.problem import OutsideError, Problem

_NAME, _LOCK, _USERS = "shared-lab", "shared-lab.lock", "shared-lab.users"


@contextmanager
def by_all(folder: Path, start: Callable[[], LabHandle]) -> Iterator[LabHandle]:
    """Provide the lab that a folder names, restricted to a zone that no other worker has.

    All workers share the folder. The lab is started if there is none.
    """
    users = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with locked(folder / _LOCK):
            lab = _there(folder) or _started(folder, start)
            # The last worker of an ended lab may not have closed its file yet.
            fcntl.flock(users, fcntl.LOCK_SH)
            zone, taken = _free(folder, lab.fleet.zones())
            lab.restrict_to_zone(zone)
        try:
            yield lab
        finally:
            os.close(taken)
            with locked(folder / _LOCK):
                _give_back(lab, users)
    finally:
        os.close(users)


def _there(folder: Path) -> LabHandle | None:
    with contextlib.suppress(FileNotFoundError, Problem, OutsideError):
        return registry.attach((folder / _NAME).read_text(), hold=True)
    return None


def _free(folder: Path, zones: Sequence[str]) -> tuple[str, int]:
    """Return a zone and the descriptor that locks it against other workers while it is open."""
    for zone in zones:
        taken = os.open(folder / f"{_NAME}.{zone}", os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(taken):
            return zone, taken
        os.close(taken)
    raise AssertionError(f"no zone of {', '.join(zones)} is free")


def _started(folder: Path, start: Callable[[], LabHandle]) -> LabHandle:
    lab = start()
    (folder / _NAME).write_text(lab.name)
    return lab


def _give_back(lab: LabHandle, users: int) -> None:
    unlock(users)
    if try_lock(users):
        lab.down()
    else:
        lab.close()
