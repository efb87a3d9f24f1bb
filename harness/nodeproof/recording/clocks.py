"""Clocks during a recording: offsets of the nodes' clocks, steps of the host's, and late wake-ups."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Protocol

from nodeproof.model.clocks import Reading
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.model.slack import LEAST_STEP_S

TICK_S, NOTABLE_S = 0.05, 0.05
"""Period of the measurement of stalls, and the delay that is written down at once (s)."""
_PERIOD_S = 0.5
_LOOKS = 5


class NodeClocks:
    """Reads the clocks of nodes, and records the offsets."""

    def __init__(
        self,
        nodes: Sequence[str],
        read: Callable[[str], Reading],
        append: Callable[..., None],
        stopping: threading.Event,
    ) -> None:
        self._read = read
        self._append = append
        self._stopping = stopping
        self._locks = {node: threading.Lock() for node in nodes}

    def read_all(self) -> None:
        """Read all nodes' clocks at once; a node that does not answer is read again after its next boot."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.read, self._locks))

    def read(self, node: str) -> bool:
        """Read and record a node's clock, one request at a time, and return whether it answered."""
        with self._locks[node]:
            try:
                reading = self._read(node)
            except (OutsideError, Problem):
                return False
        self._append("clock", **asdict(reading))
        return True

    def retry_read(self, node: str) -> None:
        """Read a node's clock that was set, until the node answers or the recording ends."""
        while not self.read(node):
            if self._stopping.wait(_PERIOD_S):
                return


def wall_offset_s() -> float:
    """Return the host's wall clock minus its monotonic one (s).

    A process that is preempted between the two readings would see a step, so the fastest of several attempts
    counts.
    """
    return min(_compare() for _ in range(_LOOKS))[1]


def _compare() -> tuple[float, float]:
    """Return the duration of reading both clocks, and their difference (both s)."""
    before_t, wall_s, after_t = time.monotonic(), time.time(), time.monotonic()
    return after_t - before_t, wall_s - (before_t + after_t) / 2


class WallClock:
    """Records each step of the wall clock; `offset_s` is the wall clock minus the monotonic one (s).

    A gradual adjustment (adjtime) changes the speed of both clocks, so any change of their difference is a
    step.
    """

    def __init__(self, append: Callable[..., None], read: Callable[[], float] = wall_offset_s) -> None:
        self._append = append
        self._read = read
        self._looked_t = time.monotonic()
        self.offset_s = read()

    def look(self) -> None:
        """Compare both clocks, and record a step.

        Raises:
            OSError: The step cannot be written.
        """
        since_t, self._looked_t = self._looked_t, time.monotonic()
        offset_s = self._read()
        if abs(offset_s - self.offset_s) > LEAST_STEP_S:
            self._append("wall", offset_s=offset_s, since=round(since_t, 6))
            self.offset_s = offset_s


class Append(Protocol):
    """Writes an entry of a history."""

    def __call__(self, kind: str, *, late_s: float) -> None: ...


def measure_stalls(
    append: Append, stopping: threading.Event, period_s: float, woken: Callable[[], object]
) -> None:
    """Write down how late this process is woken: the worst of each period, and long delays at once.

    Run this in a thread of its own, without other work: any delay is then a stall of the process. The lab
    measures itself as well, in its own session: the harness may be woken in time while the lab is not.

    Args:
        append: Writes an entry; after an OSError the value is kept for the next time.
        stopping: Ends the measurement.
        period_s: Longest time between two entries (s).
        woken: Called at each wake-up; an OSError is ignored.
    """
    worst_s, written_t = 0.0, time.monotonic()
    woken_t = written_t
    while not stopping.wait(TICK_S):
        # Measured from the last wake-up, so that a stall while writing counts as well.
        now = time.monotonic()
        late_s, woken_t = max(0.0, now - woken_t - TICK_S), now
        worst_s = max(worst_s, late_s)
        if late_s > NOTABLE_S or now - written_t >= period_s:
            with contextlib.suppress(OSError):
                append("stall", late_s=round(worst_s, 4))
                worst_s, written_t = 0.0, now
        with contextlib.suppress(OSError):
            woken()
