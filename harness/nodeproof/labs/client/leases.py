"""Who may use a lab: one process the whole of it, or several processes a zone each. Locks of files in the
lab's folder, which go with whoever holds them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from nodeproof.model.problem import Problem

_OUT = "out"
"""What the file of a zone says whose nodes could not be made fit any more."""


class InUse(Problem):
    """Another process has the lab, or every zone of it: its faults are that one's to heal."""


class Leases:
    """What one process holds of a lab: nothing, all of it, or a zone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lab: int | None = None
        self._zone: int | None = None
        self._is_whole = False

    def take_lab(self) -> None:
        """Keep the whole lab to this process. Raises InUse."""
        descriptor = self._open("in-use")
        if not _locked(descriptor, fcntl.LOCK_EX):
            raise self._in_use(descriptor, "wait for it, or start another lab")
        _write(descriptor, str(os.getpid()))
        self._lab, self._is_whole = descriptor, True

    def take_zone(self, zones: Sequence[str]) -> tuple[str, bool]:
        """Keep the first of the zones that nobody has and that is fit; gives it, and whether somebody had it
        before. Raises InUse.
        """
        shared = self._open("in-use")
        if not _locked(shared, fcntl.LOCK_SH):
            raise self._in_use(shared, "wait for it, or start another lab")
        for zone in zones:
            descriptor = self._open(f"in-use-{zone}")
            if _locked(descriptor, fcntl.LOCK_EX) and (said := _read(descriptor)) != _OUT:
                _write(descriptor, str(os.getpid()))
                self._lab, self._zone = shared, descriptor
                return zone, bool(said)
            os.close(descriptor)
        os.close(shared)
        what = f"zone {zones[0]} is" if len(zones) == 1 else "every zone is"
        raise InUse(f"{what} in use", f"lab {self._folder.name}", "use fewer workers, or more zones")

    def give_up_zone(self) -> None:
        """Let nobody have the zone any more that this process has: its nodes are not fit."""
        if self._zone is not None:
            _write(self._zone, _OUT)

    def is_last(self) -> bool:
        """Whether nobody else has a part of the lab; from then on nobody else gets one.

        The own zone is free afterwards, whatever the answer.
        """
        if self._lab is None:
            return False
        self._close_zone()
        # Given back first: of two that hold it shared neither could have it alone.
        fcntl.flock(self._lab, fcntl.LOCK_UN)
        return _locked(self._lab, fcntl.LOCK_EX)

    def close(self) -> None:
        """Give back what this process has."""
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

    def _in_use(self, descriptor: int, next_step: str) -> InUse:
        who = _read(descriptor)
        os.close(descriptor)
        said = f"process {who} is using it" if who else "others are using its zones"
        return InUse(said, f"lab {self._folder.name}", next_step)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 100, 0).decode(errors="replace").strip()


def _write(descriptor: int, text: str) -> None:
    # Whoever is killed in between leaves more, and never nothing.
    os.pwrite(descriptor, text.encode(), 0)
    os.ftruncate(descriptor, len(text.encode()))
