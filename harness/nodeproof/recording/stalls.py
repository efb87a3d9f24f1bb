"""How late the harness, and the lab, are woken: what slack has to allow for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Protocol

TICK_S, NOTABLE_S = 0.05, 0.05
"""How often it is looked, and how late is written down at once."""


class Append(Protocol):
    """Writes one entry of a history."""

    def __call__(self, kind: str, *, late_s: float) -> None: ...


def measure_stalls(
    append: Append, stopping: threading.Event, period_s: float, woken: Callable[[], object]
) -> None:
    """Write down how late this process is woken: the worst of each period, and at once what is notable. Call
    `woken` each time that it is; what it can't write down (OSError) is left to the next time.

    For a thread of its own, which does nothing else: whenever the process stood still, it was waiting. A lab
    does so, too, in a session of its own: the harness may be woken in time where the lab is not.
    """
    worst_s, told_t = 0.0, time.monotonic()
    woken_t = told_t
    while not stopping.wait(TICK_S):
        # From the last waking on, so that a stop while it writes counts as well.
        now = time.monotonic()
        late_s, woken_t = max(0.0, now - woken_t - TICK_S), now
        worst_s = max(worst_s, late_s)
        if late_s > NOTABLE_S or now - told_t >= period_s:
            with contextlib.suppress(OSError):
                append("stall", late_s=round(worst_s, 4))
                worst_s, told_t = 0.0, now
        with contextlib.suppress(OSError):
            woken()
