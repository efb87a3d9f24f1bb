"""How a virtual machine's end is called."""

from __future__ import annotations

import pytest

from harness.labs.guest.ends import End, end_in


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
