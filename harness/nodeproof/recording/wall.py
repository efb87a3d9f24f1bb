"""The host's wall clock beside its monotonic one: how far it was set, and when."""

from __future__ import annotations

import time
from collections.abc import Callable

from nodeproof.model.slack import LEAST_STEP_S

_LOOKS = 5


def wall_offset_s() -> float:
    """What the host's wall clock is ahead of its monotonic one by (s).

    A process that is not run between two clocks would see a step: the quickest of some looks tells.
    """
    return min(_look() for _ in range(_LOOKS))[1]


def _look() -> tuple[float, float]:
    """How long a look at both clocks took, and what it showed (both s)."""
    before_t, wall_s, after_t = time.monotonic(), time.time(), time.monotonic()
    return after_t - before_t, wall_s - (before_t + after_t) / 2


class WallClock:
    """Writes down each step of the wall clock; `offset_s` is what it is ahead of the monotonic
    one by since the last of them (s).

    Whoever sets a clock slowly (adjtime) moves both clocks: what moves them apart is a step.
    """

    def __init__(self, append: Callable[..., None], read: Callable[[], float] = wall_offset_s) -> None:
        self._append = append
        self._read = read
        self._looked_t = time.monotonic()
        self.offset_s = read()

    def look(self) -> None:
        """Compare both clocks, and write a step down. Raises OSError."""
        since_t, self._looked_t = self._looked_t, time.monotonic()
        offset_s = self._read()
        if abs(offset_s - self.offset_s) > LEAST_STEP_S:
            self._append("wall", offset_s=offset_s, since=round(since_t, 6))
            self.offset_s = offset_s
