"""A lab that the workers of these tests share: whoever comes first starts it, the last ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.model.problem import OutsideError, Problem

_NAME, _LOCK, _USERS = "shared-lab", "shared-lab.lock", "shared-lab.users"


@contextmanager
def by_all(folder: Path, start: Callable[[], Lab]) -> Iterator[Lab]:
    """A zone that no other worker has of the lab whose name is in a folder that all know, which is started
    where there is none.
    """
    users = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with _locked(folder):
            lab = _there(folder) or _started(folder, start)
            fcntl.flock(users, fcntl.LOCK_SH)
            zone, taken = _free(folder, lab.fleet.zones())
            lab.narrow(zone)
        try:
            yield lab
        finally:
            os.close(taken)
            with _locked(folder):
                _give_back(lab, users)
    finally:
        os.close(users)


def _there(folder: Path) -> Lab | None:
    with contextlib.suppress(FileNotFoundError, Problem, OutsideError):
        return registry.attach((folder / _NAME).read_text(), holds=True)
    return None


def _free(folder: Path, zones: Sequence[str]) -> tuple[str, int]:
    """A zone, and what keeps others from it as long as it is open."""
    for zone in zones:
        taken = os.open(folder / f"{_NAME}.{zone}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(taken)
        else:
            return zone, taken
    raise AssertionError(f"no zone of {', '.join(zones)} is free")


def _started(folder: Path, start: Callable[[], Lab]) -> Lab:
    lab = start()
    (folder / _NAME).write_text(lab.name)
    return lab


def _give_back(lab: Lab, users: int) -> None:
    fcntl.flock(users, fcntl.LOCK_UN)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lab.close()
    else:
        lab.down()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
