"""Signals during cleanup: it is never interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from nodeproof.safety.shield import SIGNALS, interrupt_once, uninterrupted


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    """Restore pytest's own signal handlers."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_waits_until_the_end(number: signal.Signals) -> None:
    noticed, finished = [], []
    signal.signal(number, interrupt_once(lambda: None))
    with pytest.raises(KeyboardInterrupt), uninterrupted(lambda: noticed.append(number)):
        signal.raise_signal(number)
        signal.raise_signal(number)
        finished.append(number)
    assert (noticed, finished) == ([number, number], [number])


def test_handlers_are_restored_without_a_signal() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with uninterrupted(lambda: pytest.fail("nobody asked")):
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_error_inside_the_block_is_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="its own"), uninterrupted(lambda: None):
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) == before


def test_only_the_first_signal_of_any_kind_interrupts() -> None:
    noticed: list[str] = []
    handler = interrupt_once(lambda: noticed.append("again"))
    for number in SIGNALS:
        signal.signal(number, handler)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
    for number in SIGNALS:
        signal.raise_signal(number)
    assert noticed == ["again"] * 3
