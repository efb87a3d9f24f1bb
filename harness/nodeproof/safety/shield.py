"""What must not be broken off: signals that ask to end wait until it is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Handler = Callable[[int, object], None]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted(notice: Callable[[], None]) -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back until the context ends, then let the first of them through.

    `notice` is called for each, so that whoever sent it hears what is waited for. Only a process's main
    thread is ever interrupted: in others nothing is to be done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        held.append(number)
        notice()

    before = {number: signal.signal(number, hold) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if held:
            signal.raise_signal(held[0])


def interrupt_once(notice: Callable[[], None]) -> Handler:
    """A handler of SIGNALS: the first breaks off what runs, and each further one only calls `notice`.

    Whoever asked to end and asks again would else break off the way back.
    """

    def again(_number: int, _frame: object) -> None:
        notice()

    def first(number: int, _frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, again)
        raise KeyboardInterrupt(signal.Signals(number).name)

    return first
