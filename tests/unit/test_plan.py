"""The plan of a run and its scheduling by xdist, the labs that workers share, and coverage."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof import catalogue, proc
from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import InUse, Leases
from nodeproof.model import plan
from nodeproof.model.overrides import parse
from nodeproof.model.plan import ScenarioEstimate, Size, WorkerPlan, pack
from nodeproof.model.problem import Problem
from nodeproof.report.rundir import TIMES
from nodeproof.session import planning
from nodeproof.session.coverage import COLUMNS, Coverage, _collect, _coverage_of, cell, coverage, render
from nodeproof.session.options import Options
from nodeproof.session.planning import ENDED, START, DurationRecorder, PlanScheduling
from nodeproof.session.sharing import Retries, Retry, SharedLab, StartupLock, Throttle, allow, remove_locks
from tests.documented import TOP
from tests.fakes import fake_lab
from tests.unit.sample_checks import CLAIM
from tests.waiting import eventually, pause, throughout

# The plan of a run: scenarios per worker, expected and actual duration, and xdist's scheduling by it.


OPTIONS = Options("process", "fast", "v1.36.3", "build", (), 0, 0, "process")
COMMON = Size(2, 1)
SIZES = (Size(9, 3), Size(27, 3))
RUN_TIMEOUT_S = 240.0
START_S = 15.0


def expected(*durations: float) -> list[ScenarioEstimate]:
    return [ScenarioEstimate(f"test_{number}", duration_s, "") for number, duration_s in enumerate(durations)]


def stand(*faults: str, duration_s: float = 60.0, size: Size | None = None) -> list[ScenarioEstimate]:
    return [
        ScenarioEstimate(f"test_{number}", duration_s, "", size is not None, size=size, standing=fault)
        for number, fault in enumerate(faults)
    ]


@pytest.mark.parametrize(
    ("scenarios", "workers", "order"),
    [
        (expected(5, 40, 105, 40, 20), 2, [[2], [1, 3, 4, 0]]),
        (expected(10, 5, 10, 10, 5), 1, [[0, 2, 3, 1, 4]]),
        (stand("", "swap", "", "swap"), 1, [[0, 2, 1, 3]]),
    ],
    ids=["the longest has its own worker", "equal durations keep their order", "the same standing fault"],
)
def test_each_worker_runs_its_scenarios_in_order(
    scenarios: list[ScenarioEstimate], workers: int, order: list[list[int]]
) -> None:
    packed = [[entry.scenario for entry in worker.scenarios] for worker in pack(scenarios, workers, START_S)]
    assert packed == [[f"test_{number}" for number in numbers] for numbers in order]


def test_scenario_that_runs_alone_comes_first_with_its_own_lab() -> None:
    first, second = pack([*expected(30, 20), ScenarioEstimate("test_own", 5, "", is_alone=True)], 2, START_S)
    assert [entry.scenario for entry in second.scenarios] == ["test_own", "test_1"]
    assert planning.zones((first, second), OPTIONS, COMMON) == 2


def stands_in(workers: Sequence[WorkerPlan]) -> list[set[str]]:
    return [{entry.standing for entry in worker.scenarios if entry.standing} for worker in workers]


def test_group_is_split_if_faster_than_reinjecting() -> None:
    workers = pack([*expected(20), *stand(*["swap"] * 4)], 2, START_S)
    assert [worker.duration_s for worker in workers] == [140, 120]
    # The duration of a lab start does not matter: none is saved.
    assert stands_in(pack(stand(*["swap"] * 4), 2, 600.0)) == [{"swap"}, {"swap"}]
    few = [*expected(60), *stand("swap", "swap", duration_s=40)]
    assert stands_in(pack(few, 2, START_S)) == [{"swap"}, set()]


def test_surplus_size_group_is_split_by_standing_fault() -> None:
    scenarios = stand("swap", "few pods", "swap", "few pods", duration_s=100, size=SIZES[0])
    assert sorted(map(sorted, stands_in(pack(scenarios, 2, START_S)))) == [["few pods"], ["swap"]]


STANDING = st.sampled_from(["", "swap", "few pods"])


@given(st.lists(st.tuples(st.floats(0, 600), STANDING), min_size=1, max_size=30), st.integers(1, 8))
def test_scenarios_are_planned_once_and_evenly(durations: list[tuple[float, str]], workers: int) -> None:
    named = [
        ScenarioEstimate(f"test_{n}", duration_s, "", standing=fault)
        for n, (duration_s, fault) in enumerate(durations)
    ]
    packed = pack(named, workers, START_S)
    assert sorted(entry.scenario for worker in packed for entry in worker.scenarios) == sorted(
        entry.scenario for entry in named
    )
    apart = pack([replace(entry, standing="") for entry in named], workers, START_S)
    assert len(apart) == min(workers, len(named))
    assert plan.critical(packed).duration_s <= plan.critical(apart).duration_s + plan.STANDING_S + 1e-6
    longest = max(duration_s for duration_s, _ in durations)
    total = sum(duration_s for duration_s, _ in durations)
    at_most = max(longest, total / workers) + (1 - 1 / workers) * longest
    assert plan.critical(apart).duration_s <= at_most + 1e-6


def test_scenarios_with_the_same_lab_size_are_grouped_and_come_first() -> None:
    large = [ScenarioEstimate(f"test_large_{n}", 10, "", True, size=size) for n, size in enumerate(SIZES * 2)]
    workers = pack([*expected(25, 1), ScenarioEstimate("alone", 0.5, "", is_alone=True), *large], 2, START_S)
    for worker in workers:
        sizes = [entry.size for entry in worker.scenarios]
        assert sizes == sorted(sizes, key=lambda size: (size is None, size or COMMON))
    for size in SIZES:
        assert sorted(sum(entry.size == size for entry in worker.scenarios) for worker in workers) == [0, 2]


def test_lab_size_group_is_split_if_faster_than_another_lab() -> None:
    large = [ScenarioEstimate(f"test_large_{n}", 50, "", True, size=SIZES[0]) for n in range(4)]
    others = expected(*[100.0] * 3)
    assert [worker.duration_s for worker in pack([*large, *others], 3, 100.0)] == [200, 200, 100]
    assert {len(worker.scenarios) for worker in pack([*large, *others], 5, START_S)} == {1, 2}
    assert plan.critical(pack([*large, *others], 5, START_S)).duration_s == 100


def test_shared_lab_is_limited_in_size_and_has_no_idle_zone() -> None:
    workers = pack(expected(*[10.0] * 60), 60, START_S)
    assert planning.zones(workers, OPTIONS, COMMON) == 50
    idle = WorkerPlan((ScenarioEstimate("test_swap", 0.0, f"{plan.NOT_HERE}lab-lacks"),))
    assert planning.zones((*workers[:3], idle), OPTIONS, COMMON) == 3


def test_movable_scenarios_are_the_unshared_ones_longest_first() -> None:
    swap = [ScenarioEstimate("test_swap", 7, "", standing="swap")]
    idle = [ScenarioEstimate("test_idle", 0.0, f"{plan.NOT_HERE}lab-lacks")]
    alone = [ScenarioEstimate("test_alone", 60, "", is_alone=True)]
    workers = pack([*expected(50, 40, 30, 20), *swap, *idle, *alone], 2, START_S)
    assert [entry.scenario for entry in plan.movable(workers)] == ["test_1", "test_2", "test_3"]
    assert plan.movable(workers[:0]) == ()


def keep(out: Path, name: str, times: Mapping[str, float] | str) -> None:
    (out / name).mkdir()
    text = times if isinstance(times, str) else json.dumps(times)
    (out / name / TIMES).write_text(text)


def test_durations_come_from_the_last_runs_of_the_same_setup(tmp_path: Path) -> None:
    for day in range(1, 8):
        keep(tmp_path, f"2026010{day}-000000-fast-process-0000", {"test_it": day, START: 10})
    keep(tmp_path, "20260109-000000-fast-process-0000", "{torn")
    keep(tmp_path, "20260109-000000-documented-process-0000", {"test_it": 300})
    keep(tmp_path, "20260109-000000-fast-libvirt-0000", {"test_it": 400})
    own = replace(OPTIONS, overrides=parse([], ["kubelet.maxPods=50"]))
    keep(tmp_path, f"20260109-000000-{own.profile_name}-process-0000", {"test_it": 500})
    # The torn one is ignored; of the earlier ones the last five count.
    assert planning.earlier(tmp_path, OPTIONS) == {"test_it": 5, START: 10}
    assert planning.earlier(tmp_path, own) == {"test_it": 500}
    assert planning.earlier(tmp_path / "none", OPTIONS) == {}


def test_plan_without_earlier_runs_uses_shipped_durations(tmp_path: Path) -> None:
    shipped = planning.shipped(OPTIONS)
    assert planning.durations(None, tmp_path, OPTIONS) == shipped
    assert planning.shipped(replace(OPTIONS, profile="documented", kind="libvirt")) == {}
    folder = tmp_path / "20261001-120000-fast-process-1"
    folder.mkdir()
    took = {START: 1.0, next(name for name in shipped if name != START): 2.0, "test_it": 3.0}
    planning.write_times(folder, took)
    assert planning.durations(None, tmp_path, OPTIONS) == {**shipped, **took}
    assert planning.durations(str(folder / TIMES), tmp_path, OPTIONS) == took


def test_shipped_durations_are_of_existing_scenarios() -> None:
    for scenario in planning.shipped(OPTIONS).keys() - {START}:
        file, _, name = scenario.removeprefix("scenarios/").partition("::")
        text = (scenarios_dir() / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in text, scenario


WHOLE = (("setup", 12.0), ("call", 20.0), ("teardown", 2.0))


def reported(
    recorder: DurationRecorder,
    nodeid: str,
    worker: str,
    phases: Sequence[tuple[Any, float]] = WHOLE,
    outcome: Any = "passed",
    ended: bool = True,
) -> None:
    """Report the phases (name and duration) of a test of a worker."""
    for when, duration_s in phases:
        report = pytest.TestReport(
            nodeid, (nodeid, 0, nodeid), {}, outcome if when == "call" else "passed", None, when,
            duration=duration_s, user_properties=[(ENDED, True)] if ended and when == "teardown" else [],
        )  # fmt: skip
        report.worker_id = worker  # type: ignore[attr-defined]
        recorder.pytest_runtest_logreport(report)


def test_lab_start_is_measured_with_the_first_scenario_of_a_worker() -> None:
    recorder = DurationRecorder()
    for nodeid, worker in (("one", "gw0"), ("two", "gw0"), ("three", "gw1")):
        reported(recorder, nodeid, worker)
    scenarios = {"one": 22.0, "two": 34.0, "three": 22.0}
    assert recorder.durations(scenarios) == {**scenarios, START: 12}


def test_incomplete_scenario_has_no_duration() -> None:
    recorder = DurationRecorder()
    reported(recorder, "interrupted", "gw0", WHOLE[:1])
    reported(recorder, "crashed", "gw1", [("setup", 12.0), ("???", 0.0)])
    reported(recorder, "no scenario", "gw2")
    reported(recorder, "skipped", "gw3", [("setup", 0.0), ("teardown", 0.0)], ended=False)
    reported(recorder, "broke off", "gw4", outcome="failed", ended=False)
    scenarios = {"interrupted", "crashed", "skipped", "broke off"}
    assert recorder.durations(scenarios) == {}


@pytest.mark.parametrize("outcome", ["passed", "skipped", "failed"])
def test_duration_does_not_depend_on_the_verdict(outcome: str) -> None:
    """Tests that are no scenarios do not include a lab's start, even if they are a worker's first."""
    recorder = DurationRecorder()
    reported(recorder, "no scenario", "gw0", [("setup", 0.1), ("call", 0.1), ("teardown", 0.1)], ended=False)
    reported(recorder, "it", "gw0", outcome=outcome)
    assert recorder.durations({"it"}) == {"it": 22.0, START: 12.0}


def test_run_ends_with_planned_and_actual_duration(tmp_path: Path) -> None:
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s"
    assert planning.worker_of(tmp_path) == {}
    planning.write(tmp_path, pack(expected(40, 30, 5), 2, START_S), 10.0)
    planning.write_times(tmp_path, {"test_0": 50.0, "test_1": 35.0, "test_2": 5.0, START: 12.0})
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s, planned 50 s"
    assert planning.worker_of(tmp_path) == {"test_0": "worker 1", "test_1": "worker 2"}, "test_2 moves"


def test_description_lists_workers_scenarios_end_and_unavailable_ones() -> None:
    workers = pack(
        [*expected(40, 30, 5), ScenarioEstimate("test_swap", 0.0, f"{plan.NOT_HERE}lab-lacks")], 2, START_S
    )
    lines = list(planning.describe(workers, OPTIONS, 15.0, COMMON, 0))
    assert lines[0] == "worker 1: 40 s in a process lab, profile fast, 2 nodes, zones: 1, the critical path"
    assert lines[-2:] == [
        "not here: test_swap  (lab-lacks)",
        "expected end: 55 s (15 s for the start of a lab); scenarios together: 75 s",
    ]


SLOTS = """
import threading

from nodeproof.session.planning import PlanScheduling

def pytest_xdist_make_scheduler(config):
    workers = {f"test_it.py::test_it[{n}]": f"worker {n % 2}" for n in range(5)}
    return PlanScheduling(config, lambda: workers)

def pytest_collection_modifyitems(config):
    # A replacement worker has not finished collection before the next one is ready.
    number = int(getattr(config, "workerinput", {}).get("workerid", "gw0")[2:])
    threading.Event().wait(number / 2 if number > 1 else 0)
"""
TESTS = """
import os, pathlib, threading, time, pytest

def wait_for(path):
    until = time.monotonic() + 20
    while not pathlib.Path(path).exists() and time.monotonic() < until:
        threading.Event().wait(0.05)

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with pathlib.Path(f"{number}.ran").open("a") as out:
        out.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
    # The first replacement worker has little left to do when the second worker dies.
    if {0, 3} == set(KILLS) and number in (2, 3):
        wait_for({3: "2.ran", 2: "3.ran"}[number])
        threading.Event().wait(1.5 if number == 2 else 0)
    if number in KILLS:
        os._exit(1)
"""


def slots_ran(cwd: Path, kills: set[int]) -> tuple[int, list[list[str]]]:
    """Return the exit status, and for each of six tests the workers that ran it."""
    (cwd / "conftest.py").write_text(SLOTS)
    (cwd / "test_it.py").write_text(f"KILLS = {kills or ()}\n{TESTS}")
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    status = proc.run(argv, timeout_s=RUN_TIMEOUT_S, cwd=cwd, check=False).status
    return status, [(cwd / f"{number}.ran").read_text().split() for number in range(6)]


def test_planned_group_runs_on_one_worker_and_unplanned_tests_run_too(tmp_path: Path) -> None:
    status, workers = slots_ran(tmp_path, set())
    assert status == 0
    assert all(len(names) == 1 for names in workers)
    assert workers[0] == workers[2] == workers[4] != workers[1] == workers[3]


@pytest.mark.parametrize("kills", [{0, 1}, {5}, {0, 3}])
def test_group_of_a_dead_worker_continues_after_the_fatal_test(kills: set[int], tmp_path: Path) -> None:
    status, workers = slots_ran(tmp_path, kills)
    assert status == 1
    assert [len(names) for names in workers] == [1] * 6


def test_plan_of_the_shipped_scenarios_starts_nothing(tmp_path: Path) -> None:
    argv = [str(Path(sys.executable).with_name("nodeproof")), "plan", "-n", "3"]
    output = proc.run(argv, timeout_s=RUN_TIMEOUT_S, cwd=tmp_path).stdout
    workers = [line for line in output.splitlines() if line.startswith("worker ")]
    assert len(workers) == 3
    assert any("zone of a process lab, profile fast, 3 nodes in each, zones: " in line for line in workers)
    assert any("in a process lab, profile fast, 29 nodes, zones: 27 + 2" in line for line in workers)
    assert sum("the critical path" in line for line in workers) == 1
    assert output.count("test_pods_of_partitioned_node_are_evicted_after_toleration") == 1
    # On any machine: most are planned by shipped durations.
    assert output.count("(measured)") > 50
    assert list(tmp_path.iterdir()) == []


NAMES = ("test_one", "test_two", "test_three")


@dataclass(eq=False)
class Worker:
    """A worker as a scheduler sees it."""

    name: str
    indices: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.indices += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def schedule_by(groups: Mapping[str, str]) -> PlanScheduling:
    """Return the scheduling of two workers."""
    config = SimpleNamespace(getvalue=lambda _name: ["popen", "popen"], option=SimpleNamespace())
    return PlanScheduling(cast(pytest.Config, config), lambda: groups)


def collect(scheduling: PlanScheduling, tests: Sequence[str], *workers: Worker) -> None:
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)


def test_worker_death_before_scheduling_ends_no_other() -> None:
    scheduling = schedule_by({})
    early, late, replaced = Worker("gw0"), Worker("gw1"), Worker("gw2")
    collect(scheduling, NAMES, early)
    scheduling.add_node(late)
    assert scheduling.remove_node(late) is None
    assert not early.shutting_down
    with pytest.raises(KeyError):
        scheduling.remove_node(Worker("unregistered"))
    collect(scheduling, NAMES, replaced)
    scheduling.schedule()
    for worker in (early, replaced):
        for index in list(worker.indices):
            scheduling.mark_test_complete(worker, index)
    assert sorted([*early.indices, *replaced.indices]) == [0, 1, 2]


def test_first_idle_worker_takes_movable_tests() -> None:
    tests = ["long", "short", *(f"moves {number}" for number in range(6))]
    scheduling = schedule_by({"long": "worker 1", "short": "worker 2"})
    slow, fast = Worker("gw0"), Worker("gw1")
    collect(scheduling, tests, slow, fast)
    scheduling.schedule()
    completed = 0
    while completed < len(fast.indices):
        scheduling.mark_test_complete(fast, fast.indices[completed])
        completed += 1
    # xdist gives a worker two tests in advance.
    assert len(slow.indices) <= 3
    assert sorted([*slow.indices, *fast.indices]) == list(range(len(tests)))


# What the workers of one run share: capacity for scenarios, retries, a lab, and lab starts.


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
        own.go_on_to(plan.Turn.ALONE)
        retry = enter(own)
        assert throughout(lambda: not retry.is_set(), WAITING_S)
    finally:
        child.kill()
        child.wait(TIMEOUT_S)
    assert retry.wait(TIMEOUT_S)


def test_large_slack_of_one_worker_halves_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.session.sharing._REPORT_PERIOD_S", 0.05)
    monkeypatch.setattr("nodeproof.model.plan.SETTLING_S", 0.0)
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
    alone.go_on_to(plan.Turn.ALONE)
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
        while (retry := Retries(tmp_path).take(plan.Turn.HALF)) is not None:
            taken.append(retry.nodeid)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [nodeid for nodeids in pool.map(take_all, range(4)) for nodeid in nodeids]
    assert sorted(taken) == sorted(SCENARIOS)


def test_second_retry_waits_until_scenarios_run_alone(tmp_path: Path) -> None:
    retries = Retries(tmp_path / "sharing")
    assert retries.take(plan.Turn.ALONE) is None
    second, first = Retry("second", 2), Retry("first", 1)
    retries.add(second)
    retries.add(first)
    assert retries.take(plan.Turn.HALF) == first
    assert retries.take(plan.Turn.HALF) is None
    assert retries.take(plan.Turn.ALONE) == second


def test_longest_retry_is_taken_first(tmp_path: Path) -> None:
    retries = Retries(tmp_path)
    for nodeid, duration_s in (("middle", 40.0), ("long", 130.0), ("short", 5.0)):
        retries.add(Retry(nodeid, 1, duration_s))
    taken = [retry.nodeid for _ in range(3) if (retry := retries.take(plan.Turn.HALF))]
    assert taken == ["long", "middle", "short"]


def test_turn_is_reached_when_no_live_worker_is_in_an_earlier_one(tmp_path: Path) -> None:
    first, second = (Throttle(tmp_path, name, 2) for name in "ab")
    first.go_on_to(plan.Turn.HALF)
    second.go_on_to(plan.Turn.QUEUE)
    assert not first.is_reached_by_all(plan.Turn.HALF)
    second.go_on_to(plan.Turn.HALF)
    assert first.is_reached_by_all(plan.Turn.HALF)
    assert not first.is_reached_by_all(plan.Turn.ALONE)
    second.close()
    first.go_on_to(plan.Turn.ALONE)
    assert first.is_reached_by_all(plan.Turn.ALONE)


ZONES = ("zone-a", "zone-b")


def started(folder: Path) -> Any:
    """Return a lab as a worker sees it; its folder and its locks are real."""
    leases, calls = Leases(folder), list[str]()

    def measure() -> float:
        calls.append("measured")
        return 0.03

    def close() -> None:
        leases.close()
        calls.append("closed")

    def down() -> None:
        close()
        calls.append("down")

    parts: Mapping[str, object] = {
        "name": folder.name, "folder": folder, "calls": calls, "leases": leases, "close": close, "down": down,
        "lease": lambda: leases.take_zone(ZONES)[1], "measure_watch_latency_s": measure,
        "copy_logs": lambda into: calls.append(f"logs to {into.name}"),
    }  # fmt: skip
    return fake_lab(parts)


@dataclass
class Run:
    """A run's folder, and every lab started in it."""

    folder: Path
    started: list[str] = field(default_factory=list)

    def shared(self) -> SharedLab:
        return SharedLab(self.folder / "labs", self._start)

    def lease(self) -> tuple[Any, bool]:
        return self.shared().lease_zone()

    def _start(self) -> Any:
        name = f"p-{len(self.started):06d}"
        (self.folder / name).mkdir()
        self.started.append(name)
        return self.attach(name)

    def attach(self, name: str, hold: bool = False) -> Any:
        if name not in self.started or not (self.folder / name).exists():
            raise Problem(f"no lab {name!r}", "test", "start one")
        assert hold or name == self.started[-1]
        return started(self.folder / name)


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
        run.shared().give_back(lab)
    assert (first.calls, second.calls) == (["closed"], ["logs to labs", "closed", "down"])


def test_watch_latency_of_a_shared_lab_is_measured_once(run: Run) -> None:
    zones = [run.lease()[0] for _ in ZONES]
    assert [run.shared().watch_latency_s(zone) for zone in zones] == [0.03] * len(ZONES)
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


# Coverage: what each lab and profile judges, and the share of each page.


FAST, DOCUMENTED = ("process", "fast"), ("process", "documented")
ONLY_DOCUMENTED = Coverage((CLAIM.id,), lambda column: "" if column == DOCUMENTED else "scaled")
EVERYWHERE = Coverage((CLAIM.id,), lambda _column: "")


def test_claim_is_judged_if_one_scenario_can() -> None:
    assert cell(CLAIM, FAST, [ONLY_DOCUMENTED]) == "scaled"
    assert cell(CLAIM, DOCUMENTED, [ONLY_DOCUMENTED]) == "judged"
    assert cell(CLAIM, FAST, [ONLY_DOCUMENTED, EVERYWHERE]) == "judged"
    assert cell(CLAIM, FAST, []) == "-"
    assert cell(replace(CLAIM, status="planned"), FAST, [EVERYWHERE]) == "planned"


def test_coverage_is_counted() -> None:
    planned = replace(CLAIM, id="a.c", status="planned", page={"v1.18": True, "v1.28": False})
    restart = replace(CLAIM, id="a.d", document="restart", page={"v1.37": True})
    claims = {"a.b": CLAIM, "a.c": planned, "a.d": restart}
    lines = render(claims, [EVERYWHERE], [FAST, DOCUMENTED]).splitlines()
    assert lines[0].split() == ["claim", "tier", "process", "fast", "process", "documented"]
    assert lines[1].split() == ["a.b", "process", "judged", "judged"]
    assert lines[2].split() == ["a.c", "process", "planned", "planned"]
    assert "3 claims: 2 judged, 1 planned" in lines
    rows = [" ".join(line.split()) for line in lines[-4:]]
    assert rows == ["document page claims judged", "nodes v1.18 1 0", "nodes v1.28 1 1", "restart v1.37 1 1"]


def test_readme_counts_the_scenarios_and_claims_of_the_fast_profile() -> None:
    """Without the storm, which a run deselects."""
    items = [item for item in _collect(()).items if "storm" not in item.path.parts]
    judging = [entry for entry in map(_coverage_of, items) if not entry.why_not(FAST)]
    claims = {claim for entry in judging for claim in entry.claims}
    figures = f"the `fast` profile: {len(judging)} scenarios, {len(claims)} claims,"
    assert figures in (TOP / "README.md").read_text()


def test_readme_counts_the_claims_of_the_catalogue() -> None:
    assert f"holds {len(catalogue.load())} claims" in (TOP / "README.md").read_text()


def test_shipped_scenarios_cover_the_catalogue() -> None:
    table = coverage([]).partition("\n\n")[0].splitlines()[1:]
    rows = {line.split()[0]: line.split()[2:] for line in table}
    assert rows.keys() == catalogue.load().keys()
    at = {f"{kind} {profile}": number for number, (kind, profile) in enumerate(COLUMNS)}
    assert not any("-" in cells for cells in rows.values())
    assert rows["swap.fail-on-default"][at["process fast"]] == "lab-lacks"
    assert rows["swap.fail-on-default"][at["libvirt fast"]] == "judged"
    assert rows["eviction.after-five-minutes-unreachable"][at["process fast"]] == "scaled"
    assert rows["eviction.after-five-minutes-unreachable"][at["process documented"]] == "judged"
    assert not any("planned" in cells for cells in rows.values())
