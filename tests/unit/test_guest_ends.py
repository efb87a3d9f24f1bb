"""How a virtual machine's end is called."""

from __future__ import annotations

import pytest

from harness.labs.guest.ends import End, end_in, last_words


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("Crashed Panicked", "panicked"),
        ("Stopped Shutdown", "powered itself off"),
        ("Stopped Failed", "lost its QEMU"),
    ],
)
def test_an_end_that_nobody_asked_for_has_a_name(said: str, how: str) -> None:
    assert end_in(f"event 'lifecycle' for domain 'node-1': {said}\n") == End("node-1", how)


@pytest.mark.parametrize(
    "line",
    [
        "event 'lifecycle' for domain 'node-1': Started Booted",
        "event 'lifecycle' for domain 'node-1': Stopped Destroyed",
        "event 'lifecycle' for domain 'node-1': Stopped Saved",
        "event 'reboot' for domain 'node-1'",
        "events received: 3",
        "",
    ],
)
def test_what_the_hypervisor_does_itself_is_no_end(line: str) -> None:
    assert end_in(line) is None


def test_the_last_words_are_the_last_lines() -> None:
    assert last_words("one\ntwo\nthree\n", 2) == "two\nthree"
    assert last_words("", 2) == ""


def test_a_panic_is_shown_from_its_first_line_on() -> None:
    assert (
        last_words("boot\nKernel panic - not syncing\nCPU: 0\nRIP\nRAX", 2)
        == "Kernel panic - not syncing\nCPU: 0"
    )
