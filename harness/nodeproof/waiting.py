"""Poll until a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

Answer = TypeVar("Answer")
Tell = Callable[[float], None]
"""Receives the latest end of a wait (s, monotonic)."""


def tell_nobody(_until_t: float) -> None:
    """Ignore the end of a wait: the `Tell` for waits that are not shown."""


def wait_for(look: Callable[[], bool], limit_s: float, period_s: float = 0.1) -> bool:
    """Wait until `look` returns true; return whether it did within `limit_s`."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(period_s),
        retry=tenacity.retry_if_result(lambda is_true: not is_true),
        retry_error_callback=lambda _state: False,
    )
    return bool(retry(look))


def insist(
    ask: Callable[[], Answer], *errors: type[BaseException], limit_s: float, period_s: float = 0.1
) -> Answer:
    """Call `ask` until it raises none of `errors`, and return its result.

    Raises:
        BaseException: The last of `errors`, after `limit_s`.
    """
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(period_s),
        retry=tenacity.retry_if_exception_type(errors),
        reraise=True,
    )
    return retry(ask)


def until_empty(
    look: Callable[[], Answer], *errors: type[BaseException], limit_s: float, period_s: float = 0.1
) -> Answer:
    """Call `look` until its result is empty or `limit_s` is over, and return the last result.

    Raises:
        BaseException: The last call raised one of `errors`.
    """
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(period_s),
        retry=tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type(errors),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    return retry(look)
