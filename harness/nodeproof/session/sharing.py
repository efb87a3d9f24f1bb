"""The lab that the workers of a run share, a zone each: the first one starts it, the last one ends it."""

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
"""Files in the run's folder of labs: the name of the shared lab, and the lock for changing it."""
_LOCK_LIMIT_S, _LOCK_PERIOD_S = 1800.0, 0.1
"""Longer than a lab start that first builds images and components."""


@dataclass(frozen=True)
class Shared:
    """The shared lab of a run; `labs` is the run's folder of labs, `start` starts a lab."""

    labs: Path
    start: Callable[[], Lab]

    def lease(self) -> tuple[Lab, bool]:
        """Lease a zone, starting the lab if needed; return whether the zone was used before.

        Raises:
            InUse: No zone is free.
            Problem: The lab cannot be started.
        """
        with self._locked():
            try:
                return _lease(registry.attach(self._read_name(), holds=True))
            except InUse:
                raise
            except (Problem, OutsideError, OSError):
                # There is no shared lab, or it is about to end.
                return _lease(self._start())

    def _start(self) -> Lab:
        lab = self.start()
        self._file.write_text(lab.name)
        return lab

    def forget(self, lab: str) -> None:
        """Forget an unusable shared lab: the next worker that needs one starts another."""
        with self._locked():
            if self._read_name() == lab:
                self._file.unlink()

    @classmethod
    def remove_files(cls, labs: Path) -> None:
        """Remove the files of the shared lab, once the run's workers are gone."""
        for name in (_NAME, _LOCK):
            (labs / name).unlink(missing_ok=True)

    def _read_name(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._file.read_text()
        return ""

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Problem(
                "another worker is starting the lab", "shared lab", "see why that takes so long"
            ) from error

    @property
    def _file(self) -> Path:
        return self.labs / _NAME

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, so that no other worker attaches to the shared lab or starts it."""
        self.labs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.labs / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            insist(lambda: self._lock(descriptor), Problem, limit_s=_LOCK_LIMIT_S, period_s=_LOCK_PERIOD_S)
            yield
        finally:
            os.close(descriptor)


def _lease(lab: Lab) -> tuple[Lab, bool]:
    try:
        return lab, lab.lease()
    except BaseException:
        lab.close()
        raise


def give_back(lab: Lab, keep_logs: Callable[[Lab], None]) -> None:
    """Give a zone back; the last worker ends the lab. Raises Problem."""
    if not lab.leases.is_last():
        lab.close()
        return
    try:
        keep_logs(lab)
    finally:
        lab.down()
