"""Poll until a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

Answer = TypeVar("Answer")
OnWait = Callable[[float], None]
"""Receives the latest end of a wait (s, monotonic)."""


def ignore_wait(_until_t: float) -> None:
    """Ignore the end of a wait: the `OnWait` for waits that are not shown."""


def wait_until(
    condition: Callable[[], Answer],
    timeout_s: float,
    period_s: float = 0.1,
    errors: tuple[type[BaseException], ...] = (),
) -> Answer:
    """Call `condition` until its result is true or `timeout_s` is over, and return the last result.

    Raises:
        BaseException: The last call raised one of `errors`.
    """
    retry = tenacity.retry_if_not_result(bool) | tenacity.retry_if_exception_type(errors)
    return _repeat(condition, retry, timeout_s, period_s)


def retry_on(
    attempt: Callable[[], Answer], *errors: type[BaseException], timeout_s: float, period_s: float = 0.1
) -> Answer:
    """Call `attempt` until it raises none of `errors`, and return its result.

    Raises:
        BaseException: The last of `errors`, after `timeout_s`.
    """
    return _repeat(attempt, tenacity.retry_if_exception_type(errors), timeout_s, period_s)


def wait_until_empty(
    condition: Callable[[], Answer], *errors: type[BaseException], timeout_s: float, period_s: float = 0.1
) -> Answer:
    """Call `condition` until its result is empty or `timeout_s` is over, and return the last result.

    Raises:
        BaseException: The last call raised one of `errors`.
    """
    retry = tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type(errors)
    return _repeat(condition, retry, timeout_s, period_s)


def _repeat(
    attempt: Callable[[], Answer], retry: tenacity.retry_base, timeout_s: float, period_s: float
) -> Answer:
    """Call `attempt` while `retry` demands it and there is time; return or raise its last outcome."""
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_fixed(period_s),
        retry=retry,
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    return retrying(attempt)
