"""Waiting in tests: always with a named limit, never a bare sleep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

from nodeproof.cluster.api import ApiError
from nodeproof.machines.machine import MachineError

Answer = TypeVar("Answer")
_PERIOD_S = 0.1


def eventually(look: Callable[[], Answer], timeout_s: float) -> Answer:
    """Return what `look` gives as soon as it is true, else what it gave last; no answer yet is no error."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_fixed(_PERIOD_S),
        retry=tenacity.retry_if_result(lambda seen: not seen)
        | tenacity.retry_if_exception_type((ApiError, MachineError)),
        retry_error_callback=_last,
    )
    return retry(look)


def first_answer(ask: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Return the first answer, whatever it is, of a machine that may be too slow to give one at once."""
    return eventually(lambda: (ask(),), timeout_s)[0]


def throughout(look: Callable[[], bool], for_s: float) -> bool:
    """Whether `look` stayed true for so long."""
    return not eventually(lambda: not look(), for_s)


def pause(for_s: float) -> None:
    """Let time pass where nothing can be looked at."""
    threading.Event().wait(for_s)


def _last(state: tenacity.RetryCallState) -> Answer:  # type: ignore[type-var]
    assert state.outcome is not None
    return state.outcome.result()  # type: ignore[no-any-return]
