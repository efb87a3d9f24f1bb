"""How a virtual machine's end is called."""

from __future__ import annotations

import pytest

from nodeproof.labs.ground.logs import last_words
from nodeproof.labs.kinds.libvirt.ends import End, end_of


@pytest.mark.parametrize(
    ("event", "detail", "how"),
    [(8, 0, "panicked"), (5, 0, "powered itself off"), (5, 5, "lost its QEMU")],
)
def test_an_end_that_nobody_asked_for_has_a_name(event: int, detail: int, how: str) -> None:
    assert end_of("node-1", event, detail) == End("node-1", how)


@pytest.mark.parametrize(("event", "detail"), [(2, 0), (5, 1), (5, 4), (6, 1)])
def test_what_the_hypervisor_does_itself_is_no_end(event: int, detail: int) -> None:
    """Started, stopped as destroyed or saved; a guest that shuts down has not ended yet."""
    assert end_of("node-1", event, detail) is None


def test_the_last_words_are_the_last_lines() -> None:
    assert last_words("one\ntwo\nthree\n", 2) == "two\nthree"
    assert last_words("", 2) == ""


def test_a_panic_is_shown_from_its_first_line_on() -> None:
    assert (
        last_words("boot\nKernel panic - not syncing\nCPU: 0\nRIP\nRAX", 2)
        == "Kernel panic - not syncing\nCPU: 0"
    )
