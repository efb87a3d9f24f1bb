"""The lab that the workers of a run share, a zone each: whoever comes first starts it, all hold it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.leases import InUse
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import insist

_NAME, _LOCK = "shared", "shared.lock"
"""The files in the run's folder of labs that hold the shared one's name, and the right to change it."""
_LOCK_LIMIT_S, _LOCK_PERIOD_S = 1800.0, 0.1
"""Longer than any lab takes to start, with images and components that have to be built first."""


@dataclass(frozen=True)
class Shared:
    """The shared lab of the run whose labs' folder is `labs`; `start` starts one."""

    labs: Path
    start: Callable[[], Lab]

    def lease(self) -> tuple[Lab, bool]:
        """The lab with one zone of it, and whether somebody had that before.

        Raises InUse where no zone is free, Problem.
        """
        with self._alone():
            try:
                return _leased(registry.attach(self._name(), holds=True))
            except InUse:
                raise
            except (Problem, OutsideError, OSError):
                # There is none, or it is about to end.
                return _leased(self._started())

    def _started(self) -> Lab:
        lab = self.start()
        self._file.write_text(lab.name)
        return lab

    def forget(self, lab: str) -> None:
        """Let nobody else come to a lab that can't be trusted any more: whoever needs one starts another."""
        with self._alone():
            if self._name() == lab:
                self._file.unlink()

    @classmethod
    def remove_files(cls, labs: Path) -> None:
        """Remove what a run keeps of its shared lab, once its workers are gone."""
        for name in (_NAME, _LOCK):
            (labs / name).unlink(missing_ok=True)

    def _name(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._file.read_text()
        return ""

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Problem(
                "another worker is starting it", "shared lab", "see why that takes so long"
            ) from error

    @property
    def _file(self) -> Path:
        return self.labs / _NAME

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other worker looks for the lab, or starts it."""
        self.labs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.labs / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            insist(lambda: self._lock(descriptor), Problem, limit_s=_LOCK_LIMIT_S, period_s=_LOCK_PERIOD_S)
            yield
        finally:
            os.close(descriptor)


def _leased(lab: Lab) -> tuple[Lab, bool]:
    try:
        return lab, lab.lease()
    except BaseException:
        lab.close()
        raise


def give_back(lab: Lab, keep_logs: Callable[[Lab], None]) -> None:
    """Give a zone back; the last who does ends the lab. Raises Problem."""
    if not lab.leases.is_last():
        lab.close()
        return
    try:
        keep_logs(lab)
    finally:
        lab.down()
