"""Delays with which the harness, and the lab, are woken; slack has to allow for them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Protocol

TICK_S, NOTABLE_S = 0.05, 0.05
"""Period of the measurement, and the delay that is written down at once (s)."""


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
