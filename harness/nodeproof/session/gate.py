"""Labs of a run start one at a time, and nothing is measured before all that slots begin with are up.

A lab that starts takes every processor there is: two that start at once take longer, each of them, and what
is measured beside them is the host's.
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
"""Longer than a lab takes to start, with images and components that have to be built first; longer than all
labs of a run take that are there already.
"""
_IDLE_S = 5.0
"""So long nobody starts a lab only where nobody is to come any more: a worker may have died."""


@dataclass
class Gate:
    """Of the run whose labs' folder is `labs`, with so many `slots` that begin with a lab; without slots
    there is none.
    """

    labs: Path
    slots: int = 0
    limit_s: float = _UP_LIMIT_S
    idle_s: float = _IDLE_S
    _is_open: bool = False
    _busy_t: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the first labs are up, or are not waited for."""
        return self._is_open

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else starts a lab."""
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
        """Once, when the first lab is up: until those of all the other slots are."""
        if self._is_open or not self.slots:
            return
        self._is_open, self._busy_t = True, time.monotonic()
        self.labs.mkdir(parents=True, exist_ok=True)
        (self.labs / f"{_UP}{uuid.uuid4().hex}").touch()
        if not wait_for(self._may_begin, self.limit_s, _PERIOD_S):
            report(f"labs of other slots are not up after {self.limit_s:g} s: beginning without them")

    def _may_begin(self) -> bool:
        """Whether all labs are up, or nobody has started one for a while."""
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
        """Remove what it keeps, once the run's workers are gone."""
        for path in (labs / _LOCK, *labs.glob(f"{_UP}*")):
            path.unlink(missing_ok=True)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Problem("another worker is starting one", "lab", "see why that takes so long") from error
