"""What the command line prints on standard error: lines, and progress as a bar or as a few lines."""

from __future__ import annotations

import sys
import time

import pytest

from nodeproof import commands
from nodeproof.artifacts import build
from nodeproof.kept import Counted

ANEW = "\r\x1b[2Knodeproof: "


@pytest.mark.parametrize(
    ("is_terminal", "printed"),
    [
        (False, "nodeproof: begins\nnodeproof: 6 of 10\nnodeproof: done\n"),
        (
            True,
            f"{ANEW}begins\n{ANEW}{'█' * 15}{'░' * 15} 5 of 10{ANEW}{'█' * 18}{'░' * 12} 6 of 10{ANEW}done\n",
        ),
    ],
)
def test_progress_is_a_bar_on_a_terminal_and_its_milestones_elsewhere(
    is_terminal: bool, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    progress = (Counted.of("5 of 10", 5, 10, is_milestone=False), Counted.of("6 of 10", 6, 10))
    for line in ("begins", *progress, "done"):
        commands._say(line)
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize("total", [0, 600])
def test_a_build_of_ten_minutes_has_one_milestone_a_minute(
    total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, lines = [0.0], list[Counted]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    packages = build.Packages("compiling: {} packages", total, lines.append)  # type: ignore[arg-type]
    for second in range(1, 601):
        now_s[0] = float(second)
        packages("k8s.io/api/core/v1")
    milestones = [str(line) for line in lines if line.is_milestone]
    assert len(lines) == 120
    assert milestones == [f"compiling: {60 * n} packages, {60 * n} s" for n in range(1, 11)]


@pytest.mark.parametrize(("done", "full"), [(0, 0), (1, 3), (10, 30), (12, 30)])
def test_a_bar_is_never_longer_than_full(done: int, full: int) -> None:
    assert Counted.of("x", done, 10).bar == "█" * full + "░" * (30 - full) + " x"


def test_progress_without_a_known_total_has_no_bar() -> None:
    assert Counted.of("reading", 5, 0).bar == "reading"
