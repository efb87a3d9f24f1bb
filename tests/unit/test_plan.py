"""The plan of a run: scenarios per worker, expected and actual duration, and xdist's scheduling by it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.catalogue import scenarios_dir
from nodeproof.model.needs import Needs
from nodeproof.model.overrides import parse
from nodeproof.model.plan import (
    NOT_HERE,
    STANDING_S,
    ScenarioEstimate,
    Size,
    WorkerPlan,
    critical,
    movable,
    pack,
)
from nodeproof.report.rundir import TIMES
from nodeproof.session import planning
from nodeproof.session.options import Options
from nodeproof.session.planning import ENDED, START, DurationRecorder
from nodeproof.session.scheduling import PlanScheduling

OPTIONS = Options("process", "fast", "v1.36.3", "build", (), 0, 0, "process")
COMMON = Size(2, 1)
SIZES = (Size(9, 3), Size(27, 3))
RUN_TIMEOUT_S = 240.0
START_S = 15.0


def expected(*durations: float) -> list[ScenarioEstimate]:
    return [ScenarioEstimate(f"test_{number}", duration_s, "") for number, duration_s in enumerate(durations)]


def standing(*faults: str) -> list[ScenarioEstimate]:
    return [
        ScenarioEstimate(f"test_{number}", 10 - number, "", standing=fault)
        for number, fault in enumerate(faults)
    ]


@pytest.mark.parametrize(
    ("scenarios", "workers", "order"),
    [
        (expected(5, 40, 105, 40, 20), 2, [[2], [1, 3, 4, 0]]),
        (expected(10, 5, 10, 10, 5), 1, [[0, 2, 3, 1, 4]]),
        (standing("", "swap", "", "swap"), 1, [[0, 2, 1, 3]]),
    ],
    ids=["the longest has its own worker", "equal durations keep their order", "the same standing fault"],
)
def test_each_worker_runs_its_scenarios_in_order(
    scenarios: list[ScenarioEstimate], workers: int, order: list[list[int]]
) -> None:
    packed = [[entry.scenario for entry in worker.scenarios] for worker in pack(scenarios, workers, START_S)]
    assert packed == [[f"test_{number}" for number in numbers] for numbers in order]


def test_scenario_that_runs_alone_comes_first_with_its_own_lab() -> None:
    first, second = pack(
        [*expected(30, 20), ScenarioEstimate("test_alone", 5, "", is_alone=True)], 2, START_S
    )
    assert [entry.scenario for entry in second.scenarios] == ["test_alone", "test_1"]
    assert planning.zones((first, second), OPTIONS, COMMON) == 2


def stand(duration_s: float, *faults: str, size: Size | None = None) -> list[ScenarioEstimate]:
    return [
        ScenarioEstimate(
            f"test_{fault}_{number}", duration_s, "", size is not None, size=size, standing=fault
        )
        for number, fault in enumerate(faults)
    ]


def stands_in(workers: Sequence[WorkerPlan]) -> list[set[str]]:
    return [{entry.standing for entry in worker.scenarios if entry.standing} for worker in workers]


def test_scenarios_with_the_same_standing_fault_share_a_worker() -> None:
    scenarios = [*expected(50, 45, 40, 35), *stand(30, "swap", "few pods", "swap", "few pods")]
    workers = pack(scenarios, 2, START_S)
    assert sorted(map(sorted, stands_in(workers))) == [["few pods"], ["swap"]]


def test_group_is_split_if_faster_than_reinjecting() -> None:
    workers = pack([*expected(20), *stand(60, *["swap"] * 4)], 2, START_S)
    assert [worker.duration_s for worker in workers] == [140, 120]
    # The duration of a lab start does not matter: none is saved.
    assert stands_in(pack(stand(60, *["swap"] * 4), 2, 600.0)) == [{"swap"}, {"swap"}]
    few = [*expected(60), *stand(40, "swap", "swap")]
    assert stands_in(pack(few, 2, START_S)) == [{"swap"}, set()]


def test_surplus_size_group_is_split_by_standing_fault() -> None:
    scenarios = stand(100, "swap", "few pods", "swap", "few pods", size=SIZES[0])
    assert sorted(map(sorted, stands_in(pack(scenarios, 2, START_S)))) == [["few pods"], ["swap"]]


@given(
    st.lists(
        st.tuples(st.floats(0, 600), st.sampled_from(["", "swap", "few pods"])), min_size=1, max_size=30
    ),
    st.integers(1, 8),
)
def test_scenarios_are_planned_once_evenly_and_standing_groups_pay_off(
    durations: list[tuple[float, str]], workers: int
) -> None:
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
    assert critical(packed).duration_s <= critical(apart).duration_s + STANDING_S + 1e-6
    longest = max(duration_s for duration_s, _ in durations)
    total = sum(duration_s for duration_s, _ in durations)
    at_most = max(longest, total / workers) + (1 - 1 / workers) * longest
    assert critical(apart).duration_s <= at_most + 1e-6


def test_scenarios_with_the_same_lab_size_are_grouped_and_come_first() -> None:
    large = [
        ScenarioEstimate(f"test_large_{size.nodes}_{n}", 10, "", True, size=size)
        for n in (1, 2)
        for size in SIZES
    ]
    workers = pack(
        [*expected(25, 1), ScenarioEstimate("test_alone", 0.5, "", is_alone=True), *large], 2, START_S
    )
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
    assert critical(pack([*large, *others], 5, START_S)).duration_s == 100


def test_shared_lab_is_limited_in_size_and_has_no_idle_zone() -> None:
    workers = pack(expected(*[10.0] * 60), 60, START_S)
    assert planning.zones(workers, OPTIONS, COMMON) == 50
    idle = WorkerPlan((ScenarioEstimate("test_swap", 0.0, f"{NOT_HERE}lab-lacks"),))
    assert planning.zones((*workers[:3], idle), OPTIONS, COMMON) == 3


def test_movable_scenarios_are_the_unshared_ones_longest_first() -> None:
    swap = [ScenarioEstimate("test_swap", 7, "", standing="swap")]
    idle = [ScenarioEstimate("test_idle", 0.0, f"{NOT_HERE}lab-lacks")]
    alone = [ScenarioEstimate("test_alone", 60, "", is_alone=True)]
    workers = pack([*expected(50, 40, 30, 20), *swap, *idle, *alone], 2, START_S)
    assert [entry.scenario for entry in movable(workers)] == ["test_1", "test_2", "test_3"]
    assert movable(workers[:0]) == ()


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


def report(
    nodeid: str, when: Any, took_s: float, worker: str, outcome: Any, ended: bool
) -> pytest.TestReport:
    properties = [(ENDED, True)] if ended and when == "teardown" else []
    record = pytest.TestReport(
        nodeid, (nodeid, 0, nodeid), {}, outcome, None, when, duration=took_s, user_properties=properties
    )
    record.worker_id = worker  # type: ignore[attr-defined]
    return record


WHOLE = (("setup", 12.0), ("call", 20.0), ("teardown", 2.0))


def reported(
    recorder: DurationRecorder,
    nodeid: str,
    worker: str,
    phases: Sequence[tuple[str, float]] = WHOLE,
    outcome: str = "passed",
    ended: bool = True,
) -> None:
    for when, duration_s in phases:
        of_it = outcome if when == "call" else "passed"
        recorder.pytest_runtest_logreport(report(nodeid, when, duration_s, worker, of_it, ended))


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


def store_plan(run: Path, workers: Sequence[WorkerPlan]) -> None:
    planning.write(run, workers, 10.0)
    planning.write_times(run, {"test_0": 50.0, "test_1": 35.0, "test_2": 5.0, START: 12.0})


def test_run_ends_with_planned_and_actual_duration(tmp_path: Path) -> None:
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s"
    assert planning.worker_of(tmp_path) == {}
    store_plan(tmp_path, pack(expected(40, 30, 5), 2, START_S))
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s, planned 50 s"
    assert planning.worker_of(tmp_path) == {"test_0": "worker 1", "test_1": "worker 2"}, "test_2 moves"


def test_description_lists_workers_scenarios_end_and_unavailable_ones() -> None:
    workers = pack(
        [*expected(40, 30, 5), ScenarioEstimate("test_swap", 0.0, f"{NOT_HERE}lab-lacks")], 2, START_S
    )
    lines = list(planning.describe(workers, OPTIONS, 15.0, COMMON, 0))
    assert lines[0] == "worker 1: 40 s in a process lab, profile fast, 2 nodes, zones: 1, the critical path"
    assert lines[-2:] == [
        "not here: test_swap  (lab-lacks)",
        "expected end: 55 s (15 s for the start of a lab); scenarios together: 75 s",
    ]


@pytest.mark.parametrize(
    ("needs", "targets"),
    [
        (Needs(), ""),
        (Needs(faulted=2), "2 of 3 nodes"),
        (Needs(components=("etcd",)), "etcd"),
        (Needs(faulted=1, components=("etcd",)), "1 of 3 nodes, etcd"),
    ],
)
def test_targets_are_counted_nodes_and_named_components(needs: Needs, targets: str) -> None:
    assert planning.targets(needs, 3) == targets


SLOTS = """
import threading

from nodeproof.session.scheduling import PlanScheduling

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


def ran(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)


def slots_ran(cwd: Path, kills: set[int]) -> tuple[int, list[list[str]]]:
    """Return the exit status, and for each of six tests the workers that ran it."""
    (cwd / "conftest.py").write_text(SLOTS)
    (cwd / "test_it.py").write_text(f"KILLS = {kills or ()}\n{TESTS}")
    process = ran(cwd, sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")
    return process.returncode, [(cwd / f"{number}.ran").read_text().split() for number in range(6)]


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


def planned(cwd: Path, workers: int) -> subprocess.CompletedProcess[str]:
    return ran(cwd, str(Path(sys.executable).with_name("nodeproof")), "plan", "-n", str(workers))


def test_plan_of_the_shipped_scenarios_starts_nothing(tmp_path: Path) -> None:
    process = planned(tmp_path, 3)
    assert process.returncode == 0, process.stderr
    workers = [line for line in process.stdout.splitlines() if line.startswith("worker ")]
    assert len(workers) == 3
    assert any("zone of a process lab, profile fast, 3 nodes in each, zones: " in line for line in workers)
    assert any("in a process lab, profile fast, 52 nodes, zones: 50 + 2" in line for line in workers)
    assert sum("the critical path" in line for line in workers) == 1
    assert process.stdout.count("test_pods_of_partitioned_node_are_evicted_after_toleration") == 1
    # On any machine: most are planned by shipped durations.
    assert process.stdout.count("(earlier runs)") > 50
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


def schedule_by(groups: Mapping[str, str], hook: object = None) -> PlanScheduling:
    """Return the scheduling of two workers."""
    config = SimpleNamespace(getvalue=lambda _name: ["popen", "popen"], hook=hook, option=SimpleNamespace())
    return PlanScheduling(cast(pytest.Config, config), lambda: groups)


def collect(scheduling: PlanScheduling, *workers: Worker) -> None:
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, list(NAMES))


def test_worker_death_before_scheduling_ends_no_other() -> None:
    scheduling = schedule_by({})
    early, late, replaced = Worker("gw0"), Worker("gw1"), Worker("gw2")
    collect(scheduling, early)
    scheduling.add_node(late)
    assert scheduling.remove_node(late) is None
    assert not early.shutting_down
    with pytest.raises(KeyError):
        scheduling.remove_node(Worker("unregistered"))
    collect(scheduling, replaced)
    scheduling.schedule()
    for worker in (early, replaced):
        for index in list(worker.indices):
            scheduling.mark_test_complete(worker, index)
    assert sorted([*early.indices, *replaced.indices]) == [0, 1, 2]


def test_different_collections_fail_the_run_and_run_nothing() -> None:
    reports: list[pytest.CollectReport] = []
    hook = SimpleNamespace(pytest_collectreport=lambda report: reports.append(report))
    scheduling = schedule_by({}, hook)
    first, second = Worker("gw0"), Worker("gw1")
    collect(scheduling, first)
    scheduling.add_node(second)
    scheduling.add_node_collection(second, NAMES[1:])
    scheduling.schedule()
    assert [(report.nodeid, report.outcome) for report in reports] == [("gw1", "failed")]
    assert not first.indices + second.indices
    assert scheduling.tests_finished


def test_first_idle_worker_takes_movable_tests() -> None:
    tests = ["long", "short", *(f"moves {number}" for number in range(6))]
    scheduling = schedule_by({"long": "worker 1", "short": "worker 2"})
    slow, fast = Worker("gw0"), Worker("gw1")
    for worker in (slow, fast):
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    completed = 0
    while completed < len(fast.indices):
        scheduling.mark_test_complete(fast, fast.indices[completed])
        completed += 1
    # xdist gives a worker two tests in advance.
    assert len(slow.indices) <= 3
    assert sorted([*slow.indices, *fast.indices]) == list(range(len(tests)))
