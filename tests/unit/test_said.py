"""What the command line says on standard error: lines, and a bar where work is counted."""

from __future__ import annotations

import sys

import pytest

from nodeproof import commands
from nodeproof.kept import Counted

ANEW = "\r\x1b[2Knodeproof: "


@pytest.mark.parametrize(
    ("is_terminal", "said"),
    [
        (False, "nodeproof: begins\nnodeproof: 5 of 10\nnodeproof: done\n"),
        (True, f"{ANEW}begins\n{ANEW}{'█' * 15}{'░' * 15} 5 of 10{ANEW}done\n"),
    ],
)
def test_what_is_counted_is_a_bar_on_a_terminal(
    is_terminal: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    for line in ("begins", Counted.of("5 of 10", 5, 10), "done"):
        commands._say(line)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("done", "full"), [(0, 0), (1, 3), (10, 30), (12, 30)])
def test_a_bar_is_never_longer_than_full(done: int, full: int) -> None:
    assert Counted.of("x", done, 10).bar == "█" * full + "░" * (30 - full) + " x"
