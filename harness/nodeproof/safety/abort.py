"""Aborts: the owner of the nodes may end a fault while it is in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from nodeproof.model.problem import OutsideError


class Aborted(OutsideError):
    """The owner of the nodes ended a fault before its time; the message is the reason."""


@dataclass(frozen=True)
class AbortPoll:
    """A poll of what aborts a fault: `reasons` returns why it must end now; none if it may stay.

    It is repeated `period_s` (s) after each answer, and must return in bounded time.
    """

    reasons: Callable[[], list[str]]
    period_s: float


def _no_reasons() -> list[str]:
    return []


NEVER = AbortPoll(_no_reasons, 60.0)
"""The poll of machines that nodeproof started."""


class AbortWatch:
    """Polls while a fault is in, and calls `abort` once, in a thread of its own.

    `abort` gets the reason, and an event that is set when the fault is being healed anyway.

    A poll that fails aborts, too: without an answer nobody knows whether the fault may stay.
    """

    def __init__(self, poll: AbortPoll, abort: Callable[[str, threading.Event], None]) -> None:
        self._poll, self._abort = poll, abort
        self._stopping, self._deciding = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._reason = ""

    def start(self) -> None:
        """Poll from now on, until `stop` or the abort."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop polling, and wait up to `timeout_s` for an abort that has begun, but for no other answer."""
        with self._deciding:
            self._stopping.set()
        if self._reason:
            self._thread.join(timeout_s)

    @property
    def has_fired(self) -> bool:
        """Whether the fault is aborted."""
        return bool(self._reason)

    def check(self) -> None:
        """Raise Aborted if the fault is aborted."""
        if self._reason:
            raise Aborted(self._reason)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if self._decide("; ".join(self._reasons())):
                self._abort(self._reason, self._stopping)
                return
            self._stopping.wait(self._poll.period_s)

    def _decide(self, reason: str) -> bool:
        """Return whether the fault is to be aborted: for any reason, unless it is being healed already."""
        with self._deciding:
            if not self._stopping.is_set():
                self._reason = reason
        return bool(self._reason)

    def _reasons(self) -> list[str]:
        try:
            return self._poll.reasons()
        except Exception as error:  # whatever fails, nobody knows that the fault may stay
            return [f"the poll failed: {error!r}"]
