"""Leases of a lab: one process uses all of it, or several processes a zone each.

They are locks of files in the lab's folder, which end with their process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nodeproof.locks import try_lock, unlock
from nodeproof.model.problem import Problem

_UNUSABLE = "out"
"""Content of a zone's file when its nodes cannot be repaired."""


class InUse(Problem):
    """Another process uses the lab, or every zone of it, and heals its own faults."""


class Leases:
    """The lease of one process: nothing, the whole lab, or a zone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lab: int | None = None
        self._zone: int | None = None
        self._is_whole = False

    def take_lab(self) -> None:
        """Lease the whole lab to this process. Raises InUse."""
        descriptor = self._open("in-use")
        if not try_lock(descriptor):
            raise self._in_use(descriptor)
        _write(descriptor, str(os.getpid()))
        self._lab, self._is_whole = descriptor, True

    def take_zone(self, zones: Sequence[str]) -> tuple[str, bool]:
        """Lease the first free, usable zone; return it, and whether it was leased before.

        Raises InUse if there is none.
        """
        shared = self._open("in-use")
        if not try_lock(shared, shared=True):
            raise self._in_use(shared)
        for zone in zones:
            descriptor = self._open(f"in-use-{zone}")
            if try_lock(descriptor) and (holder := _read(descriptor)) != _UNUSABLE:
                _write(descriptor, str(os.getpid()))
                self._lab, self._zone = shared, descriptor
                return zone, bool(holder)
            os.close(descriptor)
        os.close(shared)
        subject = f"zone {zones[0]} is" if len(zones) == 1 else "every zone is"
        raise InUse(f"{subject} in use", f"lab {self._folder.name}", "use fewer workers, or more zones")

    def disable_zone(self) -> None:
        """Mark this process's zone as unusable, so that no process leases it: its nodes are not fit."""
        if self._zone is not None:
            _write(self._zone, _UNUSABLE)

    def is_last(self) -> bool:
        """Return whether no other process has a part of the lab; if so, no other process gets one any more.

        The own zone is released, whatever the answer.
        """
        if self._lab is None:
            return False
        self._close_zone()
        # Unlock first: of two shared holders, neither could get the exclusive lock.
        unlock(self._lab)
        return try_lock(self._lab)

    def close(self) -> None:
        """Release the lease."""
        self._close_zone()
        if self._lab is not None:
            if self._is_whole:
                _write(self._lab, "")
            os.close(self._lab)
            self._lab, self._is_whole = None, False

    def _close_zone(self) -> None:
        if self._zone is not None:
            os.close(self._zone)
            self._zone = None

    def _open(self, name: str) -> int:
        return os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)

    def _in_use(self, descriptor: int) -> InUse:
        pid = _read(descriptor)
        os.close(descriptor)
        message = f"process {pid} is using it" if pid else "others are using its zones"
        return InUse(message, f"lab {self._folder.name}", "wait for it, or start another lab")


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 100, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    # If this process is killed in between, the file has too much content, but is never empty.
    os.pwrite(descriptor, text.encode(), 0)
    os.ftruncate(descriptor, len(text.encode()))
