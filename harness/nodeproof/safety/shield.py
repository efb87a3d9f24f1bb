"""Protection of critical sections from signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Handler = Callable[[int, object], None]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted(notice: Callable[[], None]) -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP until the context ends, then deliver the first of them.

    `notice` is called for each, to tell the sender what is going on. Only a process's main thread is
    interrupted: in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []

    def hold(number: int, _frame: object) -> None:
        pending.append(number)
        notice()

    before = {number: signal.signal(number, hold) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if pending:
            signal.raise_signal(pending[0])


def interrupt_once(notice: Callable[[], None]) -> Handler:
    """Return a handler of SIGNALS: the first signal interrupts, and each further one only calls `notice`.

    A second interrupt would otherwise break off the cleanup.
    """

    def again(_number: int, _frame: object) -> None:
        notice()

    def first(number: int, _frame: object) -> None:
        for signal_number in SIGNALS:
            signal.signal(signal_number, again)
        raise KeyboardInterrupt(signal.Signals(number).name)

    return first
