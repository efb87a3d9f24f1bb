"""What the workers of one run share: capacity for scenarios, retries, a lab, and lab starts."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from nodeproof import proc
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import InUse, LabHandle, Leases
from nodeproof.model.load import Turn
from nodeproof.model.problem import Problem
from nodeproof.session.sharing import Retries, Retry, SharedLab, StartupLock, Throttle, allow, remove_locks
from tests.waiting import eventually, pause, throughout

MOST = 4
TIMEOUT_S, WAITING_S = 10.0, 1.2
DYING = """
import pathlib, signal, sys
from nodeproof.session.sharing import Throttle

Throttle(pathlib.Path(sys.argv[1]), "a", 4).start_scenario(print)
signal.pause()
"""


def throttle(folder: Path, name: str, most: int = MOST) -> Throttle:
    return Throttle(folder, name, most, read_pressure=lambda: 1.0)


def enter(worker: Throttle) -> threading.Event:
    """Wait for a turn in a thread; the event is set when it comes."""
    entered = threading.Event()

    def wait() -> None:
        worker.start_scenario(lambda _line: None)
        entered.set()

    threading.Thread(target=wait, daemon=True).start()
    return entered


def start_lab(worker: Throttle, may_end: threading.Event) -> threading.Event:
    """Start a lab in a thread, until it may end; the event is set when the start begins."""
    started = threading.Event()

    def start() -> None:
        with worker.lab_start():
            started.set()
            may_end.wait(TIMEOUT_S)

    threading.Thread(target=start, daemon=True).start()
    return started


def test_waiting_scenario_prints_one_message(tmp_path: Path) -> None:
    allow(tmp_path, 1)
    running, waiting = throttle(tmp_path, "a"), throttle(tmp_path, "b")
    running.start_scenario(lambda _line: None)
    lines: list[str] = []
    thread = threading.Thread(target=lambda: waiting.start_scenario(lines.append), daemon=True)
    thread.start()
    assert eventually(lambda: lines, TIMEOUT_S)
    running.end_scenario()
    thread.join(TIMEOUT_S)
    assert len(lines) == 1


def test_lab_starts_while_no_scenario_runs_or_begins(tmp_path: Path) -> None:
    running, starter, late = (throttle(tmp_path, name) for name in "abc")
    running.start_scenario(lambda _line: None)
    may_end = threading.Event()
    may_start = start_lab(starter, may_end)
    assert throughout(lambda: not may_start.is_set(), WAITING_S)
    running.end_scenario()
    assert may_start.wait(TIMEOUT_S)
    entered = enter(late)
    assert throughout(lambda: not entered.is_set(), WAITING_S)
    may_end.set()
    assert entered.wait(TIMEOUT_S)


def test_two_workers_starting_labs_do_not_wait_for_each_other(tmp_path: Path) -> None:
    workers = [throttle(tmp_path, name) for name in "ab"]
    for worker in workers:
        worker.start_scenario(lambda _line: None)
    may_end = threading.Event()
    started = [start_lab(worker, may_end) for worker in workers]
    assert all(event.wait(TIMEOUT_S) for event in started)
    may_end.set()


def test_dead_worker_does_not_block_others(tmp_path: Path) -> None:
    child = proc.start([sys.executable, "-c", DYING, str(tmp_path)], log=tmp_path / "log")
    try:
        assert eventually(lambda: (tmp_path / "a.worker").exists(), TIMEOUT_S)
        own = throttle(tmp_path, "b")
        own.go_on_to(Turn.ALONE)
        retry = enter(own)
        assert throughout(lambda: not retry.is_set(), WAITING_S)
    finally:
        child.kill()
        child.wait(TIMEOUT_S)
    assert retry.wait(TIMEOUT_S)


def test_large_slack_of_one_worker_halves_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.session.sharing._REPORT_PERIOD_S", 0.05)
    monkeypatch.setattr("nodeproof.model.load.SETTLING_S", 0.0)
    strained, other, late = (throttle(tmp_path, name) for name in "abc")
    allow(tmp_path, 3)
    strained.start_scenario(lambda _line: None, lambda: 0.9)
    other.start_scenario(lambda _line: None)
    assert eventually(lambda: '"slack_share": 0.9' in (tmp_path / "a.worker").read_text(), TIMEOUT_S)
    waits = enter(late)
    assert throughout(lambda: not waits.is_set(), WAITING_S)
    strained.end_scenario()
    assert waits.wait(TIMEOUT_S)


def test_wait_for_a_turn_times_out(tmp_path: Path) -> None:
    allow(tmp_path, 1)
    throttle(tmp_path, "a").start_scenario(lambda _line: None)
    lines: list[str] = []
    Throttle(tmp_path, "b", MOST, timeout_s=0.2, read_pressure=lambda: 1.0).start_scenario(lines.append)
    assert lines[-1] == "no capacity after 0.2 s: starting anyway"


def test_run_of_one_worker_does_not_wait(tmp_path: Path) -> None:
    alone = throttle(tmp_path / "none", "run", most=0)
    alone.start_scenario(lambda _line: None)
    alone.go_on_to(Turn.ALONE)
    alone.end_scenario()
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
def test_only_persistent_slack_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: list[float | None], reported: set[float]
) -> None:
    monkeypatch.setattr("nodeproof.session.sharing._REPORT_PERIOD_S", 0.02)
    shares = iter(measured)
    written: list[object] = []
    worker, ended = throttle(tmp_path, "a"), threading.Event()
    write = worker._write

    def slack_share() -> float | None:
        if len(written) > 2 * len(measured):
            ended.set()
        return next(shares, measured[-1])

    def record(**changes: object) -> None:
        write(**changes)
        if "reported_t" in changes:
            written.append(changes["slack_share"])

    monkeypatch.setattr(worker, "_write", record)
    worker.start_scenario(lambda _line: None, slack_share)
    assert ended.wait(TIMEOUT_S)
    worker.close()
    assert set(written) == reported


SCENARIOS = [f"scenarios/test_{number}.py::test_it" for number in range(40)]


def test_each_scenario_is_taken_once(tmp_path: Path) -> None:
    for nodeid in SCENARIOS:
        Retries(tmp_path).add(Retry(nodeid, 1))

    def take_all(_worker: int) -> list[str]:
        taken = []
        while (retry := Retries(tmp_path).take(Turn.HALF)) is not None:
            taken.append(retry.nodeid)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [nodeid for nodeids in pool.map(take_all, range(4)) for nodeid in nodeids]
    assert sorted(taken) == sorted(SCENARIOS)


def test_second_retry_waits_until_scenarios_run_alone(tmp_path: Path) -> None:
    retries = Retries(tmp_path / "sharing")
    assert retries.take(Turn.ALONE) is None
    second, first = Retry("second", 2), Retry("first", 1)
    retries.add(second)
    retries.add(first)
    assert retries.take(Turn.HALF) == first
    assert retries.take(Turn.HALF) is None
    assert retries.take(Turn.ALONE) == second


def test_longest_retry_is_taken_first(tmp_path: Path) -> None:
    retries = Retries(tmp_path)
    for nodeid, duration_s in (("middle", 40.0), ("long", 130.0), ("short", 5.0)):
        retries.add(Retry(nodeid, 1, duration_s))
    taken = [retry.nodeid for _ in range(3) if (retry := retries.take(Turn.HALF))]
    assert taken == ["long", "middle", "short"]


def test_turn_is_reached_when_no_live_worker_is_in_an_earlier_one(tmp_path: Path) -> None:
    first, second = (Throttle(tmp_path, name, 2) for name in "ab")
    first.go_on_to(Turn.HALF)
    second.go_on_to(Turn.QUEUE)
    assert not first.is_reached_by_all(Turn.HALF)
    second.go_on_to(Turn.HALF)
    assert first.is_reached_by_all(Turn.HALF)
    assert not first.is_reached_by_all(Turn.ALONE)
    second.close()
    first.go_on_to(Turn.ALONE)
    assert first.is_reached_by_all(Turn.ALONE)


ZONES = ("zone-a", "zone-b")


@dataclass
class Started:
    """A lab as a worker sees it: its folder and its locks are real."""

    folder: Path
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leases = Leases(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    def lease(self) -> bool:
        return self.leases.take_zone(ZONES)[1]

    def measure_watch_latency_s(self) -> float:
        self.calls.append("measured")
        return 0.03

    def copy_logs(self, into: Path) -> None:
        self.calls.append(f"logs to {into.name}")

    def close(self) -> None:
        self.leases.close()
        self.calls.append("closed")

    def down(self) -> None:
        self.close()
        self.calls.append("down")


@dataclass
class Run:
    """A run's folder, and every lab started in it."""

    folder: Path
    started: list[str] = field(default_factory=list)

    def shared(self) -> SharedLab:
        return SharedLab(self.folder / "labs", self._start)

    def lease(self) -> tuple[Started, bool]:
        lab, had = self.shared().lease_zone()
        return cast(Started, lab), had

    def _start(self) -> LabHandle:
        name = f"p-{len(self.started):06d}"
        (self.folder / name).mkdir()
        self.started.append(name)
        return self.attach(name)

    def attach(self, name: str, hold: bool = False) -> LabHandle:
        if name not in self.started or not (self.folder / name).exists():
            raise Problem(f"no lab {name!r}", "test", "start one")
        assert hold or name == self.started[-1]
        return cast(LabHandle, Started(self.folder / name))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    run = Run(tmp_path)
    monkeypatch.setattr(registry, "attach", run.attach)
    return run


def test_first_worker_starts_the_lab_and_others_join_it(run: Run) -> None:
    (first, _), (second, had) = run.lease(), run.lease()
    assert (first.name, second.name, had) == ("p-000000", "p-000000", False)
    assert run.started == ["p-000000"]
    with pytest.raises(InUse):
        run.lease()


def test_worker_that_comes_as_the_lab_ends_starts_another(run: Run) -> None:
    first, _had = run.lease()
    (first.folder / "in-use").unlink()
    (first.folder / "in-use-zone-a").unlink()
    first.folder.rmdir()
    assert run.lease()[0].name == "p-000001"


def test_distrusted_lab_is_replaced_for_the_next_worker(run: Run) -> None:
    first, _had = run.lease()
    run.shared().forget(first.name)
    second, _had = run.lease()
    assert second.name == "p-000001"
    run.shared().forget(first.name)
    assert run.lease()[0].name == second.name


def test_last_worker_keeps_the_logs_and_ends_the_lab(run: Run) -> None:
    (first, _), (second, _) = run.lease(), run.lease()
    for lab in (first, second):
        run.shared().give_back(cast(LabHandle, lab))
    assert (first.calls, second.calls) == (["closed"], ["logs to labs", "closed", "down"])


def test_no_files_of_the_shared_lab_are_left(run: Run) -> None:
    run.lease()
    remove_locks(run.folder / "labs")
    assert list((run.folder / "labs").iterdir()) == []


def test_watch_latency_of_a_shared_lab_is_measured_once(run: Run) -> None:
    zones = [run.lease()[0] for _ in ZONES]
    assert [run.shared().watch_latency_s(cast(LabHandle, zone)) for zone in zones] == [0.03] * len(ZONES)
    assert [zone.calls for zone in zones] == [["measured"], []]
    remove_locks(run.folder / "labs")
    assert list((run.folder / "labs").iterdir()) == []


WORKERS = 3


def test_labs_start_one_at_a_time(tmp_path: Path) -> None:
    starting, most = [0], [0]

    def start() -> None:
        with StartupLock(tmp_path, WORKERS).alone():
            starting[0] += 1
            most[0] = max(most[0], starting[0])
            pause(0.1)
            starting[0] -= 1

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda _worker: start(), range(WORKERS)))
    assert most == [1]


def test_scenarios_wait_for_the_last_lab_and_only_once(tmp_path: Path) -> None:
    messages: list[str] = []
    locks, last_up = [StartupLock(tmp_path, WORKERS) for _worker in range(WORKERS)], threading.Event()

    def begin(lock: StartupLock) -> bool:
        if lock is locks[-1]:
            pause(0.3)
            last_up.set()
        lock.wait(messages.append)
        lock.wait(messages.append)
        return last_up.is_set()

    with ThreadPoolExecutor(WORKERS) as pool:
        assert list(pool.map(begin, locks)) == [True] * WORKERS
    assert messages == []


@pytest.mark.parametrize(
    ("lock", "messages"),
    [
        ({"timeout_s": 0.3}, ["labs of other workers are not up after 0.3 s: starting without them"]),
        ({"idle_s": 0.3}, []),
    ],
    ids=["time is up", "no lab is starting, so a worker has died"],
)
def test_wait_for_missing_workers_ends(tmp_path: Path, lock: dict[str, float], messages: list[str]) -> None:
    reported: list[str] = []
    began = time.monotonic()
    StartupLock(tmp_path, WORKERS, **lock).wait(reported.append)
    assert reported == messages
    assert 0.3 <= time.monotonic() - began < 5.0


def test_single_worker_has_no_lock_and_no_files_remain(tmp_path: Path) -> None:
    began = time.monotonic()
    with StartupLock(tmp_path).alone():
        StartupLock(tmp_path).wait(print)
    assert time.monotonic() - began < 1.0
    with StartupLock(tmp_path, 1).alone():
        StartupLock(tmp_path, 1).wait(print)
    remove_locks(tmp_path)
    assert list(tmp_path.iterdir()) == []
