"""Workers of one run start their scenarios one after another, as far as the machine has room."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.model.load import Turn
from nodeproof.model.plan import Size
from nodeproof.session.admission import Admission, allow
from nodeproof.session.options import Options
from nodeproof.session.running import LabProvider
from tests.waiting import eventually, throughout

MOST = 4
OPTIONS = Options("process", "fast", "v1.36.3", "build", (), 0, 0, "process")
LIMIT_S, WAITING_S = 10.0, 1.2
DYING = """
import pathlib, signal, sys
from nodeproof.session.admission import Admission

Admission(pathlib.Path(sys.argv[1]), "a", 4).enter(print)
signal.pause()
"""


def admission(folder: Path, name: str, most: int = MOST) -> Admission:
    return Admission(folder, name, most, read_pressure=lambda: 1.0)


def enter(worker: Admission) -> threading.Event:
    """Wait for a turn in a thread; the event says that it came."""
    entered = threading.Event()

    def wait() -> None:
        worker.enter(lambda _line: None)
        entered.set()

    threading.Thread(target=wait, daemon=True).start()
    return entered


def test_no_more_scenarios_run_than_the_machine_has_room_for(tmp_path: Path) -> None:
    allow(tmp_path, 2)
    workers = [admission(tmp_path, name) for name in "abc"]
    assert all(enter(worker).wait(LIMIT_S) for worker in workers[:2])
    third = enter(workers[2])
    assert throughout(lambda: not third.is_set(), WAITING_S)
    workers[0].leave()
    assert third.wait(LIMIT_S)


def test_a_scenario_that_waits_says_so_once(tmp_path: Path) -> None:
    allow(tmp_path, 1)
    running, waiting = admission(tmp_path, "a"), admission(tmp_path, "b")
    running.enter(lambda _line: None)
    lines: list[str] = []
    thread = threading.Thread(target=lambda: waiting.enter(lines.append), daemon=True)
    thread.start()
    assert eventually(lambda: lines, LIMIT_S)
    running.leave()
    thread.join(LIMIT_S)
    assert len(lines) == 1


def test_retries_begin_when_no_worker_has_other_scenarios_left(tmp_path: Path) -> None:
    done, busy = admission(tmp_path, "a"), admission(tmp_path, "b")
    done.enter(lambda _line: None)
    busy.enter(lambda _line: None)
    done.leave()
    done.go_on_to(Turn.HALF)
    retry = enter(done)
    assert throughout(lambda: not retry.is_set(), WAITING_S)
    busy.leave()
    assert throughout(lambda: not retry.is_set(), WAITING_S)
    busy.close()
    assert retry.wait(LIMIT_S)


def test_the_last_retries_run_one_after_another(tmp_path: Path) -> None:
    workers = [admission(tmp_path, name) for name in "ab"]
    for worker in workers:
        worker.go_on_to(Turn.ALONE)
    first = enter(workers[0])
    assert first.wait(LIMIT_S)
    second = enter(workers[1])
    assert throughout(lambda: not second.is_set(), WAITING_S)
    workers[0].leave()
    assert second.wait(LIMIT_S)


def test_a_lab_starts_while_no_scenario_runs_and_none_begins_meanwhile(tmp_path: Path) -> None:
    running, starter, late = (admission(tmp_path, name) for name in "abc")
    running.enter(lambda _line: None)
    may_start, may_end = threading.Event(), threading.Event()

    def start() -> None:
        with starter.lab_start():
            may_start.set()
            may_end.wait(LIMIT_S)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert throughout(lambda: not may_start.is_set(), WAITING_S)
    running.leave()
    assert may_start.wait(LIMIT_S)
    entered = enter(late)
    assert throughout(lambda: not entered.is_set(), WAITING_S)
    may_end.set()
    assert entered.wait(LIMIT_S)
    thread.join(LIMIT_S)


def test_two_workers_that_need_a_lab_do_not_wait_for_each_other(tmp_path: Path) -> None:
    workers = [admission(tmp_path, name) for name in "ab"]
    for worker in workers:
        worker.enter(lambda _line: None)
    started = [threading.Event() for _worker in workers]

    def start(number: int) -> None:
        with workers[number].lab_start():
            started[number].set()
        workers[number].leave()

    for number in range(len(workers)):
        threading.Thread(target=start, args=(number,), daemon=True).start()
    assert all(event.wait(LIMIT_S) for event in started)


def test_a_worker_that_died_holds_nobody_up(tmp_path: Path) -> None:
    child = proc.start([sys.executable, "-c", DYING, str(tmp_path)], log=tmp_path / "log")
    try:
        assert eventually(lambda: (tmp_path / "a.worker").exists(), LIMIT_S)
        own = admission(tmp_path, "b")
        own.go_on_to(Turn.ALONE)
        retry = enter(own)
        assert throughout(lambda: not retry.is_set(), WAITING_S)
    finally:
        child.kill()
        child.wait(LIMIT_S)
    assert retry.wait(LIMIT_S)


def test_a_large_slack_of_one_worker_halves_what_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeproof.session.admission._REPORT_PERIOD_S", 0.05)
    monkeypatch.setattr("nodeproof.model.load.SETTLING_S", 0.0)
    strained, other, late = (admission(tmp_path, name) for name in "abc")
    allow(tmp_path, 3)
    strained.enter(lambda _line: None, lambda: 0.9)
    other.enter(lambda _line: None)
    assert eventually(lambda: '"slack_share": 0.9' in (tmp_path / "a.worker").read_text(), LIMIT_S)
    waits = enter(late)
    assert throughout(lambda: not waits.is_set(), WAITING_S)
    strained.leave()
    assert waits.wait(LIMIT_S)


def test_a_turn_that_does_not_come_is_not_waited_for_without_end(tmp_path: Path) -> None:
    allow(tmp_path, 1)
    admission(tmp_path, "a").enter(lambda _line: None)
    lines: list[str] = []
    Admission(tmp_path, "b", MOST, limit_s=0.2, read_pressure=lambda: 1.0).enter(lines.append)
    assert lines[-1] == "no turn within 0.2 s: starting without one"


def test_a_run_of_one_worker_waits_for_nobody(tmp_path: Path) -> None:
    alone = admission(tmp_path / "none", "run", most=0)
    alone.enter(lambda _line: None)
    alone.go_on_to(Turn.ALONE)
    alone.leave()
    alone.close()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("measured", "reported"),
    [
        ([0.2, 0.9, 0.2, 0.2], {0.0, 0.2}),
        ([0.2, 0.9, 0.9, 0.9], {0.0, 0.2, 0.9}),
        ([0.2, 0.9, None, None], {0.0, 0.2, 0.9}),
    ],
    ids=["one late wake-up", "slack that lasts", "a lab that answers nothing"],
)
def test_only_slack_that_lasts_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: list[float | None], reported: set[float]
) -> None:
    monkeypatch.setattr("nodeproof.session.admission._REPORT_PERIOD_S", 0.02)
    shares = iter(measured)
    written: list[object] = []
    worker, done = admission(tmp_path, "a"), threading.Event()
    write = worker._write

    def slack_share() -> float | None:
        if len(written) > 2 * len(measured):
            done.set()
        return next(shares, measured[-1])

    def record(**changes: object) -> None:
        write(**changes)
        if "reported_t" in changes:
            written.append(changes["slack_share"])

    monkeypatch.setattr(worker, "_write", record)
    worker.enter(lambda _line: None, slack_share)
    assert done.wait(LIMIT_S)
    worker.close()
    assert set(written) == reported


def test_a_worker_that_discards_a_lab_holds_up_none_that_starts_one(tmp_path: Path) -> None:
    running, starter = (admission(tmp_path, name) for name in "ab")
    running.enter(lambda _line: None)
    provider = LabProvider(OPTIONS, tmp_path, print, Size(nodes=2, zones=1), leave=running.leave)
    started = threading.Event()

    def start() -> None:
        with starter.lab_start():
            started.set()

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert throughout(lambda: not started.is_set(), WAITING_S)
    provider.discard()
    assert started.wait(LIMIT_S)
    thread.join(LIMIT_S)
