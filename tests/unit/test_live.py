"""What a person sees of a run: what processes tell, put together, and the lines of the slots."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from rich.console import Console

from nodeproof.session.again import RERUN
from nodeproof.session.live import Live, row, table
from nodeproof.session.telling import FOLDER, Board, Doing, Telling
from nodeproof.session.times import LABEL

FIRST, SECOND = "a/test_x.py::test_first", "a/test_x.py::test_second"


def test_a_board_shows_what_each_process_told_last(tmp_path: Path) -> None:
    one, other, board = Telling(tmp_path, "gw0"), Telling(tmp_path, "gw1"), Board(tmp_path)
    one.began(FIRST)
    other.began(SECOND)
    with one.step("partition on node-1"):
        one.until(100.0)
        one.until(100.4)
        assert one.say("a new lab takes over")
    assert list(board.look()) == ["a new lab takes over"]
    assert (board.doing["gw0"].scenario, board.doing["gw0"].step) == (FIRST, "partition on node-1")
    assert board.doing["gw0"].until_t == 100.0
    assert (board.doing["gw1"].scenario, board.doing["gw1"].until_t) == (SECOND, 0.0)
    with one.step("wait"):
        assert list(board.look()) == []
    assert (board.doing["gw0"].step, board.doing["gw0"].until_t) == ("wait", 0.0)
    one.ended()
    assert list(board.look()) == []
    assert list(board.doing) == ["gw1"]


def test_a_line_that_is_not_whole_yet_is_left_for_the_next_look(tmp_path: Path) -> None:
    board, path = Board(tmp_path), tmp_path / FOLDER / "gw0.jsonl"
    path.parent.mkdir()
    path.write_text('{"said": "one"}\n{"said": "t')
    assert list(board.look()) == ["one"]
    with path.open("a") as out:
        out.write('wo"}\n')
    assert list(board.look()) == ["two"]


def test_nobody_listens_once_the_folder_is_gone(tmp_path: Path) -> None:
    telling = Telling(tmp_path, "gw0")
    assert telling.say("first")
    shutil.rmtree(tmp_path / FOLDER)
    assert not telling.say("second")
    assert not (tmp_path / FOLDER).exists()


def finished(
    nodeid: str, outcome: str, label: str, when: Literal["setup", "call"] = "call"
) -> pytest.TestReport:
    """Make the report of one phase, which took two seconds."""
    report = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, duration=2.0)
    report.user_properties.append((LABEL, label))
    report.outcome = outcome  # type: ignore[assignment]
    return report


def test_a_log_has_one_line_for_each_finished_scenario_and_counts_the_skipped_ones() -> None:
    out = StringIO()
    live = Live(SimpleNamespace(_tw=SimpleNamespace(_file=out)))
    for report in (
        finished(FIRST, "passed", "", "setup"),
        finished(FIRST, RERUN, "unproven: host-too-loaded"),
        finished(SECOND, "skipped", "unproven: lab-lacks", "setup"),
        finished(SECOND, "skipped", "unproven: scaled"),
        finished(FIRST, "passed", "", "setup"),
        finished(FIRST, "passed", "conforms"),
    ):
        live.pytest_runtest_logstart()
        live.pytest_runtest_logreport(report)
    lines = out.getvalue().splitlines()
    assert [line.split() for line in lines] == [
        ["unproven:", "scaled", "2", "s", SECOND],
        ["conforms", "4", "s", FIRST, "(retried)"],
    ]


def test_a_row_says_how_long_of_how_long_and_until_when_at_the_latest() -> None:
    doing = Doing(FIRST, 10.0, "wait for it", 35.0)
    assert row("gw0", doing, 60.0, 22.0) == ("gw0", "12/60 s", "test_first", "≤ 13 s", "wait for it")
    assert row("gw0", doing, 0.0, 40.0) == ("gw0", "30 s", "test_first", "", "wait for it")


def test_the_times_are_shown_on_a_narrow_terminal_too() -> None:
    console = Console(width=60, record=True, file=StringIO())
    console.print(table([("gw0", "12/60 s", "test_" + "a" * 80, "≤ 13 s", "wait for " + "b" * 80)]))
    (line,) = console.export_text().splitlines()
    assert all(part in line for part in ("gw0", "12/60 s", "test_a", "≤ 13 s", "wait for b"))
