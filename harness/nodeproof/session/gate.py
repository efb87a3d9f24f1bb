"""Start the labs of a run one at a time, and measure nothing until the first lab of every slot is up.

A starting lab uses all processors: two that start together both take longer, and disturb measurements.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.waiting import insist, wait_for

_LOCK, _UP = "starting.lock", "up-"
_LOCK_LIMIT_S, _UP_LIMIT_S, _PERIOD_S = 1800.0, 240.0, 0.1
"""The first is longer than a lab start that also builds images and components, the second is longer than all
lab starts of a run where these are built.
"""
_IDLE_S = 5.0
"""If no lab starts for this long, no other slot will start one: its worker may have died."""


@dataclass
class Gate:
    """The startup lock of a run.

    Args:
        labs: the run's folder of labs.
        slots: number of slots that begin with a lab start; 0 turns the lock off.
        limit_s: longest wait for the first labs of the other slots.
        idle_s: time without a lab start after which no more are expected.
    """

    labs: Path
    slots: int = 0
    limit_s: float = _UP_LIMIT_S
    idle_s: float = _IDLE_S
    _is_open: bool = False
    _busy_t: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether this worker's wait for the first labs has begun or is over."""
        return self._is_open

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock, so that no other worker starts a lab."""
        if not self.slots:
            yield
            return
        self.labs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.labs / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            insist(lambda: _lock(descriptor), Problem, limit_s=_LOCK_LIMIT_S, period_s=_PERIOD_S)
            yield
        finally:
            os.close(descriptor)

    def wait(self, report: Callable[[str], None]) -> None:
        """Wait until the first labs of all slots are up; return at once if called again."""
        if self._is_open or not self.slots:
            return
        self._is_open, self._busy_t = True, time.monotonic()
        self.labs.mkdir(parents=True, exist_ok=True)
        (self.labs / f"{_UP}{uuid.uuid4().hex}").touch()
        if not wait_for(self._may_begin, self.limit_s, _PERIOD_S):
            report(f"labs of other slots are not up after {self.limit_s:g} s: starting without them")

    def _may_begin(self) -> bool:
        """Return whether all labs are up, or no lab has started for `idle_s`."""
        if len(list(self.labs.glob(f"{_UP}*"))) >= self.slots:
            return True
        descriptor = os.open(self.labs / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
        except Problem:
            self._busy_t = time.monotonic()
        finally:
            os.close(descriptor)
        return time.monotonic() - self._busy_t > self.idle_s

    @classmethod
    def remove_files(cls, labs: Path) -> None:
        """Remove the lock's files, once the run's workers are gone."""
        for path in (labs / _LOCK, *labs.glob(f"{_UP}*")):
            path.unlink(missing_ok=True)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Problem("another worker is starting a lab", "lab", "see why that takes so long") from error
