"""Steps of the host's wall clock relative to its monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from nodeproof.model.slack import LEAST_STEP_S

_LOOKS = 5


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
