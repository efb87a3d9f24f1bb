"""Asks again while what is asked is not there yet; and tells until when something is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

Answer = TypeVar("Answer")
Tell = Callable[[float], None]
"""Told until when a wait lasts at the latest (s, monotonic)."""


def tell_nobody(_until_t: float) -> None:
    """For a wait that nobody looks at."""


def wait_for(look: Callable[[], bool], limit_s: float, period_s: float = 0.1) -> bool:
    """Whether something is so, or comes to be within `limit_s`."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(period_s),
        retry=tenacity.retry_if_result(lambda so: not so),
        retry_error_callback=lambda _state: False,
    )
    return bool(retry(look))


def insist(
    ask: Callable[[], Answer], *errors: type[BaseException], limit_s: float, period_s: float = 0.1
) -> Answer:
    """What `ask` gives once it raises none of `errors`; the last of them after `limit_s`."""
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
    """What `look` gives once that is empty, or when the time is over; one of `errors` counts as something.

    Raises the last of them where nothing else came.
    """
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(period_s),
        retry=tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type(errors),
        retry_error_callback=lambda state: state.outcome and state.outcome.result(),
    )
    return retry(look)
