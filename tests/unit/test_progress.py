"""What a run shows: its live view, its output without a terminal, and notifications."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from nodeproof import proc
from nodeproof.faults.partition import Partition
from nodeproof.model.problem import Problem
from nodeproof.report import tables
from nodeproof.session import progress as live
from nodeproof.session.judging import LABEL, RERUN
from nodeproof.session.progress import FOLDER, Progress
from tests.unit.synthetic_runs import SCENARIO_WITHOUT_A_LAB

# The live view of a run: combined progress of processes, and rows of the workers.


FIRST, SECOND = "a/test_x.py::test_first", "a/test_x.py::test_second"


def test_reader_has_the_last_message_of_each_process(tmp_path: Path) -> None:
    one, other = (live.ProgressWriter(tmp_path, name) for name in ("gw0", "gw1"))
    reader = live.ProgressReader(tmp_path)
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
    reader, path = live.ProgressReader(tmp_path), tmp_path / FOLDER / "gw0.jsonl"
    path.parent.mkdir()
    path.write_text('{"message": "one"}\n{"message": "t')
    assert list(reader.read()) == ["one"]
    with path.open("a") as out:
        out.write('wo"}\n')
    assert list(reader.read()) == ["two"]


def test_writing_progress_stops_once_the_folder_is_removed(tmp_path: Path) -> None:
    writer = live.ProgressWriter(tmp_path, "gw0")
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


def printed_lines(log: live.ScenarioLog, out: StringIO) -> tuple[str, ...]:
    """Report the scenarios, and return the lines."""
    for report in REPORTS:
        log.pytest_runtest_logreport(report)
    return tuple(" ".join(line.split()) for line in out.getvalue().splitlines())


def test_log_has_one_line_per_scenario_and_omits_skipped_ones() -> None:
    out = StringIO()
    assert printed_lines(live.ScenarioLog(out), out) == RESULTS


def test_display_shows_retried_and_skipped_scenarios_too() -> None:
    out = StringIO()
    console = Console(file=out, soft_wrap=True)
    assert printed_lines(live.LiveDisplay(console), out) == DETAILS + RESULTS


def test_row_shows_elapsed_planned_and_remaining_time() -> None:
    progress = Progress(FIRST, 10.0, "wait for it", 35.0)
    assert live.row("gw0", progress, 60.0, 22.0) == ("gw0", "12/60 s", "test_first", "≤ 13 s", "wait for it")
    assert live.row("gw0", progress, 0.0, 40.0) == ("gw0", "30 s", "test_first", "", "wait for it")


def test_time_left_counts_what_is_planned_and_unfinished() -> None:
    planned_s = {FIRST: 60.0, SECOND: 120.0, "a/test_x.py::test_third": 180.0}
    workers = [Progress(SECOND, since_t=10.0), Progress("a/test_x.py::test_third", since_t=30.0)]
    assert live.total(planned_s, {FIRST}, workers, 40.0) == "1 of 3 scenarios, about 3 min left"
    assert live.total(planned_s, {FIRST}, workers[:1], 130.0) == "1 of 3 scenarios, about 3 min left"
    assert live.total(planned_s, [*planned_s][:2], [], 40.0) == "2 of 3 scenarios, about 3 min left"
    assert live.total(planned_s, planned_s, [], 40.0) == ""


def test_session_without_a_run_leaves_other_folders_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / FOLDER).mkdir()
    monkeypatch.chdir(tmp_path)
    display = live.LiveDisplay(Console(file=StringIO()))
    request.config.pluginmanager.register(display)
    display.pytest_sessionfinish(request.session)
    assert (tmp_path / FOLDER).exists()


# Output of `nodeproof run` without a terminal, with scenarios that fail or skip without a lab.


TIMEOUT_S = 300.0
HELPER = """
def fetch():
    raise ValueError("no answer from the helper")
"""
SCENARIOS = """
import helper
import pytest

from nodeproof.cache import ProgressLine, Detail
from nodeproof.plugin import Judge
from nodeproof.scenario import claims, needs
from nodeproof.session.run import session_of


@claims("cordon.taint")
def test_raises(judge: Judge) -> None:
    helper.fetch()


@claims("cordon.display")
def test_uses_the_judge_wrongly(judge: Judge) -> None:
    judge.window("monitoring.detection-time")


@claims("heartbeat.lease-interval")
def test_records_nothing(judge: Judge, request: pytest.FixtureRequest) -> None:
    say = session_of(request.config).say
    say("a notice")
    say(Detail("a detail"))
    say(ProgressLine.of("some progress", 1, 2, is_milestone=False))


@claims("swap.fail-on-default")
@needs(features=("systemd",))
def test_needs_a_machine(judge: Judge) -> None:
    pass


@claims("swap.opt-out")
@needs(features=("systemd",))
def test_needs_a_machine_too(judge: Judge) -> None:
    pass
"""


@dataclass(frozen=True)
class Output:
    """The output of a run, and its folder."""

    text: str
    run: Path

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def output(folder: Path, *arguments: str) -> Output:
    """Run the scenarios."""
    (folder / "helper.py").write_text(HELPER)
    (folder / "test_it.py").write_text(SCENARIOS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra\npythonpath = .\n")
    *first, options = arguments
    argv = (sys.executable, "-m", "nodeproof.cli", *first, "run", "--no-site", *options.split())
    process = proc.run((*argv, "test_it.py"), timeout_s=TIMEOUT_S, cwd=folder, check=False)
    assert process.status == 3, process
    return Output(process.stderr + process.stdout, (folder / "reports" / "out" / "latest").resolve())


@pytest.fixture(scope="module", params=["-n 0", "-n 2"])
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """Return the output of a run in one process, and of one with workers."""
    return output(tmp_path_factory.mktemp("run"), request.param)


def test_each_finished_scenario_has_one_line_and_skips_are_counted(printed: Output) -> None:
    finished = [line.split() for line in printed.lines if line.startswith(("unproven: gap  ", "failed  "))]
    assert sorted((" ".join(words[:2]), words[-1]) for words in finished) == [
        ("unproven: gap", f"test_it.py::{name}")
        for name in ("test_raises", "test_records_nothing", "test_uses_the_judge_wrongly")
    ]
    assert "skipped: 2 scenarios that cannot prove anything here (lab-lacks: 2)" in printed.lines


def test_failure_shows_frames_of_the_scenario_and_not_of_nodeproof(printed: Output) -> None:
    failures = printed.text[printed.text.index(" FAILURES ") : printed.text.index(" claims ")]
    shown = [line.split(maxsplit=1)[1] for line in failures.splitlines() if line.startswith(("> ", "E "))]
    assert sorted(shown) == [
        "ValueError: no answer from the helper",
        "helper.fetch()",
        'judge.window("monitoring.detection-time")',
        "nodeproof.model.problem.Problem: claim monitoring.detection-time has no window "
        "(test_it.py::test_uses_the_judge_wrongly); add `window` to its YAML",
        'raise ValueError("no answer from the helper")',
    ]
    assert "judging.py" not in failures
    assert "run.py" not in failures


def test_unproven_scenario_and_deprecations_are_only_in_the_summary(printed: Output) -> None:
    assert printed.text.count("request the fixtures") == 1
    assert "short test summary info" not in printed.text
    assert re.search(r"2 failed, 2 skipped, \d+ warnings, 1 unproven", printed.lines[-1])
    summary = printed.text[printed.text.index(" warnings summary ") :]
    assert 'DeprecationWarning: @claims is deprecated: claim("page.sentence").expect(...)' in summary
    assert 'DeprecationWarning: the fixture `judge` is deprecated: use claim("page.sentence")' in summary


def test_details_and_intermediate_progress_are_not_in_a_log(printed: Output) -> None:
    notices = [line for line in printed.lines if line.startswith("nodeproof: ")]
    assert "nodeproof: a notice" in notices
    assert not {"nodeproof: a detail", "nodeproof: some progress"} & set(notices)


def test_table_of_all_claims_is_in_the_run(printed: Output) -> None:
    assert "swap.opt-out " in (printed.run / tables.TABLE_FILE).read_text()
    assert "swap.opt-out " not in printed.text
    assert f"run folder: {printed.run}" in printed.lines


def test_lists_details_table_and_tracebacks_are_printed_on_request(tmp_path: Path) -> None:
    printed = output(tmp_path, "--debug", "-n 0 -v -rs --table")
    assert "nodeproof: a detail" in printed.lines
    assert "SKIPPED [2] " in printed.text
    assert (printed.run / tables.TABLE_FILE).read_text() in printed.text
    assert "judging.py" in printed.text


# `--notify`: each event arrives in order, and a command that fails or hangs holds nothing up.


def test_events_arrive_in_order_as_json(tmp_path: Path) -> None:
    path, messages = tmp_path / "events.jsonl", list[str]()
    notifier = live.Notifier(f"tee -a {path}", "night-1", messages.append)
    notifier.send("begin", lab="process")
    notifier.scenario = "test_a.py::test_a"
    fault = Partition("node-1")
    notifier.send_fault("injected", fault)
    notifier.send_fault("unhealed", fault)
    notifier.close()
    notifier.send_fault("healed", fault)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["begin", "inject", "heal"]
    assert {event["run"] for event in events} == {"night-1"}
    assert events[1]["fault"] == dict(fault.to_json())
    assert (events[2]["step"], events[2]["scenario"]) == ("unhealed", "test_a.py::test_a")
    assert messages == []


def test_hanging_command_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.session.progress.NOTIFY_TIMEOUT_S", 1.0)
    path = tmp_path / "pid"
    notifier = live.Notifier(f"sh -c 'echo $$ >{path}; exec sleep 60'", "night-1", lambda _line: None)
    notifier.send("begin")
    notifier.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


@pytest.mark.parametrize(
    ("program", "reason", "timeout_s"),
    [
        ("false", "false: status 1", 30.0),
        ("/nonexistent", "No such file or directory: '/nonexistent'", 30.0),
        ("sh -c 'cat >&2; exit 1'", "sh: status 1", 30.0),
        ("sh -c 'exec sleep 60'", "not all events were sent", 0.5),
    ],
)
def test_command_that_fails_or_hangs_is_reported_in_one_line_without_its_arguments(
    program: str, reason: str, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeproof.session.progress.NOTIFY_TIMEOUT_S", timeout_s)
    messages: list[str] = []
    notifier = live.Notifier(f"{program} 'Authorization: Basic kept' -x", "night-1", messages.append)
    for _number in range(20):
        notifier.send("inject")
    began_t = time.monotonic()
    notifier.close()
    assert time.monotonic() - began_t < 20 * timeout_s
    (message,) = messages
    assert message.startswith("--notify: ")
    assert reason in message
    assert "kept" not in message


def test_unmatched_quote_is_refused() -> None:
    with pytest.raises(Problem, match="--notify"):
        live.Notifier("curl 'x", "night-1", print)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_run_sends_begin_and_end_once(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIO_WITHOUT_A_LAB)
    command = ["--notify", f"tee -a {tmp_path / 'events.jsonl'}", "-n", workers, "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", "-q", *command, "test_it.py"]
    process = proc.run(argv, timeout_s=240, cwd=tmp_path, check=False)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == ["begin", "end"], process
    (run,) = (path for path in (tmp_path / "reports" / "out").glob("2*"))
    assert {event["run"] for event in events} == {run.name}
    assert events[1]["claims"] == {"open": 1}
