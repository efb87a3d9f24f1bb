"""`--notify`: each event arrives in order, and a command that fails or hangs holds nothing up."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.faults.partition import Partition
from nodeproof.model.problem import Problem
from nodeproof.session import notify
from nodeproof.session.notify import Notifier

SCENARIO = """
from nodeproof.scenario import claims

@claims("cordon.taint")
def test_it(judge):
    pass
"""


def test_events_arrive_in_order_as_json(tmp_path: Path) -> None:
    path, messages = tmp_path / "events.jsonl", list[str]()
    notifier = Notifier(f"tee -a {path}", "night-1", messages.append)
    notifier.send("begin", lab="process")
    notifier.scenario = "test_a.py::test_a"
    fault = Partition("node-1")
    notifier.send_fault("injected", fault)
    notifier.send_fault("unhealed", fault)
    notifier.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event["event"], event["run"]) for event in events] == [
        ("begin", "night-1"),
        ("inject", "night-1"),
        ("heal", "night-1"),
    ]
    assert events[1]["fault"] == dict(fault.to_json())
    assert (events[2]["step"], events[2]["scenario"]) == ("unhealed", "test_a.py::test_a")
    assert messages == []


def test_hanging_command_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "NOTIFY_TIMEOUT_S", 1.0)
    path = tmp_path / "pid"
    notifier = Notifier(f"sh -c 'echo $$ >{path}; exec sleep 60'", "night-1", lambda _line: None)
    notifier.send("begin")
    notifier.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


@pytest.mark.parametrize("program", ["false", "sleep 60", "/nonexistent", "sh -c 'cat >&2; exit 1'"])
def test_arguments_of_the_command_are_not_printed(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "NOTIFY_TIMEOUT_S", 0.5)
    messages: list[str] = []
    notifier = Notifier(f"{program} 'Authorization: Basic kept' -x", "night-1", messages.append)
    notifier.send("begin")
    notifier.close()
    assert len(messages) == 1
    assert program.split(maxsplit=1)[0] in messages[0]
    assert "kept" not in messages[0]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("false", "false: status 1"),
        ("/nonexistent", "No such file"),
        ("sleep 60", "not all events were sent"),
    ],
)
def test_command_that_fails_or_hangs_is_reported_in_one_line(
    command: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "NOTIFY_TIMEOUT_S", 0.5)
    messages: list[str] = []
    notifier = Notifier(command, "night-1", messages.append)
    for _number in range(20):
        notifier.send("inject")
    began_t = time.monotonic()
    notifier.close()
    assert time.monotonic() - began_t < 20 * 0.5
    assert len(messages) == 1
    assert messages[0].startswith("--notify: ")
    assert reason in messages[0]


def test_unmatched_quote_is_refused() -> None:
    with pytest.raises(Problem, match="--notify"):
        Notifier("curl 'x", "night-1", print)


def test_no_thread_without_a_command() -> None:
    before = threading.active_count()
    Notifier("", "night-1", print).close()
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", ["0", "1"])
def test_run_sends_begin_and_end_once(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIO)
    command = ["--notify", f"tee -a {tmp_path / 'events.jsonl'}", "-n", workers, "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", "-q", *command, "test_it.py"]
    process = proc.run(argv, timeout_s=240, cwd=tmp_path, check=False)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == ["begin", "end"], process
    (run,) = (path for path in (tmp_path / "reports" / "out").glob("2*"))
    assert {event["run"] for event in events} == {run.name}
    assert events[1]["claims"] == {"open": 1}
