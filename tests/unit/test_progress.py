"""The live view of a run: combined progress of processes, and rows of the workers."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from nodeproof.session.judging import LABEL, RERUN
from nodeproof.session.progress import (
    FOLDER,
    LiveDisplay,
    Progress,
    ProgressReader,
    ProgressWriter,
    ScenarioLog,
    row,
)

FIRST, SECOND = "a/test_x.py::test_first", "a/test_x.py::test_second"


def test_reader_has_the_last_message_of_each_process(tmp_path: Path) -> None:
    one, other, reader = (
        ProgressWriter(tmp_path, "gw0"),
        ProgressWriter(tmp_path, "gw1"),
        ProgressReader(tmp_path),
    )
    one.began(FIRST)
    other.began(SECOND)
    with one.step("partition on node-1"):
        one.until(100.0)
        one.until(100.4)
        assert one.say("a new lab takes over")
    assert list(reader.read()) == ["a new lab takes over"]
    assert (reader.progress["gw0"].scenario, reader.progress["gw0"].step) == (FIRST, "partition on node-1")
    assert reader.progress["gw0"].until_t == 100.0
    assert (reader.progress["gw1"].scenario, reader.progress["gw1"].until_t) == (SECOND, 0.0)
    with one.step("wait"):
        assert list(reader.read()) == []
    assert (reader.progress["gw0"].step, reader.progress["gw0"].until_t) == ("wait", 0.0)
    one.ended()
    assert list(reader.read()) == []
    assert list(reader.progress) == ["gw1"]


def test_incomplete_line_is_left_for_the_next_read(tmp_path: Path) -> None:
    reader, path = ProgressReader(tmp_path), tmp_path / FOLDER / "gw0.jsonl"
    path.parent.mkdir()
    path.write_text('{"message": "one"}\n{"message": "t')
    assert list(reader.read()) == ["one"]
    with path.open("a") as out:
        out.write('wo"}\n')
    assert list(reader.read()) == ["two"]


def test_writing_progress_stops_once_the_folder_is_removed(tmp_path: Path) -> None:
    writer = ProgressWriter(tmp_path, "gw0")
    assert writer.say("first")
    shutil.rmtree(tmp_path / FOLDER)
    assert not writer.say("second")
    assert not (tmp_path / FOLDER).exists()


def finished(
    nodeid: str, outcome: str, label: str, when: Literal["setup", "call"] = "call"
) -> pytest.TestReport:
    """Return the report of one phase that took two seconds."""
    report = pytest.TestReport(nodeid, ("", 0, ""), {}, "passed", None, when, duration=2.0)
    report.user_properties.append((LABEL, label))
    report.outcome = outcome  # type: ignore[assignment]
    return report


REPORTS = (
    finished(FIRST, "passed", "", "setup"),
    finished(FIRST, RERUN, "unproven: host-too-loaded"),
    finished(SECOND, "skipped", "unproven: lab-lacks", "setup"),
    finished(SECOND, "skipped", "unproven: scaled"),
    finished(FIRST, "passed", "", "setup"),
    finished(FIRST, "passed", "conforms"),
)
DETAILS = (f"unproven: host-too-loaded 4 s {FIRST} (retried)", f"unproven: lab-lacks 2 s {SECOND}")
RESULTS = (f"unproven: scaled 2 s {SECOND}", f"conforms 4 s {FIRST} (retried)")


def printed(log: ScenarioLog, out: StringIO) -> tuple[str, ...]:
    """Report the scenarios, and return the lines."""
    for report in REPORTS:
        log.pytest_runtest_logreport(report)
    return tuple(" ".join(line.split()) for line in out.getvalue().splitlines())


def test_log_has_one_line_per_scenario_and_omits_skipped_ones() -> None:
    out = StringIO()
    assert printed(ScenarioLog(out), out) == RESULTS


def test_display_shows_retried_and_skipped_scenarios_too() -> None:
    out = StringIO()
    console = Console(file=out, soft_wrap=True)
    assert printed(LiveDisplay(console), out) == DETAILS + RESULTS


def test_row_shows_elapsed_planned_and_remaining_time() -> None:
    progress = Progress(FIRST, 10.0, "wait for it", 35.0)
    assert row("gw0", progress, 60.0, 22.0) == ("gw0", "12/60 s", "test_first", "≤ 13 s", "wait for it")
    assert row("gw0", progress, 0.0, 40.0) == ("gw0", "30 s", "test_first", "", "wait for it")


def test_session_without_a_run_leaves_other_folders_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / FOLDER).mkdir()
    monkeypatch.chdir(tmp_path)
    display = LiveDisplay(Console(file=StringIO()))
    request.config.pluginmanager.register(display)
    display.pytest_sessionfinish(request.session)
    assert (tmp_path / FOLDER).exists()
