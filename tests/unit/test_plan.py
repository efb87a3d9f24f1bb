"""The plan of a run: what runs in which slot, how long it is expected to last, and what became of that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.ground.profiles import DOCUMENTED, FAST, symbols
from nodeproof.model.plan import NOT_HERE, STANDING_S, Expected, Size, Slot, critical, movable, pack
from nodeproof.report.rundir import TIMES
from nodeproof.session import planning
from nodeproof.session.options import Options
from nodeproof.session.times import ENDED, START, Times

OPTIONS = Options("process", "fast", "v1.36.3", "build", (), 0, 0, "process")
COMMON = Size(2, 1)
SIZES = (Size(9, 3), Size(27, 3))
DURATIONS = st.lists(st.floats(0, 600), min_size=1, max_size=30)
RUN_LIMIT_S = 240.0
START_S = 15.0


def expected(*durations: float) -> list[Expected]:
    return [Expected(f"test_{number}", lasts_s, "") for number, lasts_s in enumerate(durations)]


@given(DURATIONS, st.integers(1, 8))
def test_every_scenario_is_in_one_slot_and_none_waits_for_longer_than_it_must(
    durations: list[float], slots: int
) -> None:
    packed = pack(expected(*durations), slots, START_S)
    names = [each.scenario for slot in packed for each in slot.scenarios]
    assert sorted(names) == sorted(each.scenario for each in expected(*durations))
    assert len(packed) == min(slots, len(durations))
    at_least = max(max(durations), sum(durations) / slots)
    assert critical(packed).lasts_s <= at_least + (1 - 1 / slots) * max(durations) + 1e-6


def test_a_long_scenario_has_a_slot_of_its_own_and_is_begun_first() -> None:
    long, *others = pack(expected(5, 40, 105, 40, 20), 2, START_S)
    assert [each.lasts_s for each in long.scenarios] == [105]
    assert [[each.lasts_s for each in slot.scenarios] for slot in others] == [[40, 40, 20, 5]]


def test_what_takes_as_long_stays_in_its_order() -> None:
    (slot,) = pack(expected(10, 5, 10, 10, 5), 1, START_S)
    assert [each.scenario for each in slot.scenarios] == ["test_0", "test_2", "test_3", "test_1", "test_4"]


def test_what_is_alone_comes_first_and_has_its_slots_lab_to_itself() -> None:
    first, second = pack([*expected(30, 20), Expected("test_alone", 5, "", is_alone=True)], 2, START_S)
    assert [each.scenario for each in second.scenarios] == ["test_alone", "test_1"]
    assert planning.zones((first, second), OPTIONS, COMMON) == 2


def test_those_before_which_the_same_is_put_in_come_one_after_another() -> None:
    asked = [
        Expected(f"test_{number}", 10 - number, "", standing=("", "swap", "", "swap")[number])
        for number in range(4)
    ]
    (slot,) = pack(asked, 1, START_S)
    assert [each.scenario for each in slot.scenarios] == ["test_0", "test_2", "test_1", "test_3"]


def stand(lasts_s: float, *asked: str, size: Size | None = None) -> list[Expected]:
    return [
        Expected(f"test_{each}_{number}", lasts_s, "", size is not None, size=size, standing=each)
        for number, each in enumerate(asked)
    ]


def stands_in(slots: Sequence[Slot]) -> list[set[str]]:
    return [{each.standing for each in slot.scenarios if each.standing} for slot in slots]


def test_those_before_which_the_same_is_put_in_share_a_slot() -> None:
    asked = [*expected(50, 45, 40, 35), *stand(30, "swap", "few pods", "swap", "few pods")]
    slots = pack(asked, 2, START_S)
    assert sorted(map(sorted, stands_in(slots))) == [["few pods"], ["swap"]]


def test_they_are_apart_where_that_gains_more_than_it_costs_to_put_it_in_again() -> None:
    slots = pack([*expected(20), *stand(60, *["swap"] * 4)], 2, START_S)
    assert [slot.lasts_s for slot in slots] == [140, 120]
    # However long labs take to start: none is saved.
    assert stands_in(pack(stand(60, *["swap"] * 4), 2, 600.0)) == [{"swap"}, {"swap"}]
    few = [*expected(60), *stand(40, "swap", "swap")]
    assert stands_in(pack(few, 2, START_S)) == [{"swap"}, set()]


def test_a_lab_of_a_size_that_is_one_too_many_is_shared_out_by_what_stands_in_it() -> None:
    asked = stand(100, "swap", "few pods", "swap", "few pods", size=SIZES[0])
    assert sorted(map(sorted, stands_in(pack(asked, 2, START_S)))) == [["few pods"], ["swap"]]


@given(
    st.lists(st.tuples(st.floats(0, 600), st.sampled_from(["", "swap", "few pods"])), min_size=1, max_size=30)
)
def test_what_stands_costs_the_longest_slot_no_more_than_it_saves(asked: list[tuple[float, str]]) -> None:
    named = [Expected(f"test_{n}", lasts_s, "", standing=each) for n, (lasts_s, each) in enumerate(asked)]
    packed = pack(named, 3, START_S)
    assert sorted(each.scenario for slot in packed for each in slot.scenarios) == sorted(
        each.scenario for each in named
    )
    apart = pack([replace(each, standing="") for each in named], 3, START_S)
    assert critical(packed).lasts_s <= critical(apart).lasts_s + STANDING_S + 1e-6


def test_those_with_labs_of_one_size_go_together_and_come_first() -> None:
    large = [
        Expected(f"test_large_{size.nodes}_{n}", 10, "", True, size=size) for n in (1, 2) for size in SIZES
    ]
    slots = pack([*expected(25, 1), Expected("test_alone", 0.5, "", is_alone=True), *large], 2, START_S)
    for slot in slots:
        sizes = [each.size for each in slot.scenarios]
        assert sizes == sorted(sizes, key=lambda size: (size is None, size or COMMON))
    for size in SIZES:
        assert sorted(sum(each.size == size for each in slot.scenarios) for slot in slots) == [0, 2]


def test_those_with_labs_of_one_size_are_apart_where_that_gains_more_than_a_lab_costs() -> None:
    large = [Expected(f"test_large_{n}", 50, "", True, size=SIZES[0]) for n in range(4)]
    others = expected(*[100.0] * 3)
    assert [slot.lasts_s for slot in pack([*large, *others], 3, 100.0)] == [200, 200, 100]
    assert {len(slot.scenarios) for slot in pack([*large, *others], 5, START_S)} == {1, 2}
    assert critical(pack([*large, *others], 5, START_S)).lasts_s == 100


def test_a_shared_lab_is_no_larger_than_a_lab_may_be_and_has_no_zone_for_what_does_not_run() -> None:
    slots = pack(expected(*[10.0] * 60), 60, START_S)
    assert planning.zones(slots, OPTIONS, COMMON) == 50
    idle = Slot((Expected("test_swap", 0.0, f"{NOT_HERE}lab-lacks"),))
    assert planning.zones((*slots[:3], idle), OPTIONS, COMMON) == 3


def test_others_take_what_shares_nothing_in_its_slot_longest_first() -> None:
    swap = [Expected("test_swap", 7, "", standing="swap")]
    idle = [Expected("test_idle", 0.0, f"{NOT_HERE}lab-lacks")]
    alone = [Expected("test_alone", 60, "", is_alone=True)]
    slots = pack([*expected(50, 40, 30, 20), *swap, *idle, *alone], 2, START_S)
    assert [each.scenario for each in movable(slots)] == ["test_1", "test_2", "test_3"]
    assert movable(slots[:0]) == ()


@pytest.mark.parametrize(("profile", "grace_s", "toleration_s"), [(FAST, 12, 10), (DOCUMENTED, 50, 300)])
def test_formulas_are_of_the_profile(profile: object, grace_s: float, toleration_s: float) -> None:
    told = symbols(profile)  # type: ignore[arg-type]
    assert (told["G"], told["T"]) == (grace_s, toleration_s)


def keep(out: Path, name: str, times: Mapping[str, float] | str) -> None:
    (out / name).mkdir()
    text = times if isinstance(times, str) else json.dumps(times)
    (out / name / TIMES).write_text(text)


def test_the_last_runs_of_the_same_lab_and_profile_tell_how_long_it_takes(tmp_path: Path) -> None:
    for day in range(1, 8):
        keep(tmp_path, f"2026010{day}-000000-fast-process-0000", {"test_it": day, START: 10})
    keep(tmp_path, "20260109-000000-fast-process-0000", "{torn")
    keep(tmp_path, "20260109-000000-documented-process-0000", {"test_it": 300})
    keep(tmp_path, "20260109-000000-fast-libvirt-0000", {"test_it": 400})
    # The torn one tells nothing, and of those before it the last five do.
    assert planning.earlier(tmp_path, OPTIONS) == {"test_it": 5, START: 10}
    assert planning.earlier(tmp_path / "none", OPTIONS) == {}


def test_who_has_no_earlier_runs_plans_by_the_times_that_are_shipped(tmp_path: Path) -> None:
    shipped = planning.shipped(OPTIONS)
    assert planning.durations(None, tmp_path, OPTIONS) == shipped
    assert planning.shipped(replace(OPTIONS, profile="documented", kind="libvirt")) == {}
    folder = tmp_path / "20261001-120000-fast-process-1"
    folder.mkdir()
    took = {START: 1.0, next(name for name in shipped if name != START): 2.0, "test_it": 3.0}
    planning.write_times(folder, took)
    assert planning.durations(None, tmp_path, OPTIONS) == {**shipped, **took}
    assert planning.durations(str(folder / TIMES), tmp_path, OPTIONS) == took


def test_shipped_times_are_of_scenarios_that_there_are() -> None:
    for scenario in planning.shipped(OPTIONS).keys() - {START}:
        file, _, name = scenario.removeprefix("scenarios/").partition("::")
        text = (scenarios_dir() / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in text, scenario


def report(
    nodeid: str, when: Any, took_s: float, worker: str, outcome: Any, ended: bool
) -> pytest.TestReport:
    told = [(ENDED, True)] if ended and when == "teardown" else []
    made = pytest.TestReport(
        nodeid, (nodeid, 0, nodeid), {}, outcome, None, when, duration=took_s, user_properties=told
    )
    made.worker_id = worker  # type: ignore[attr-defined]
    return made


WHOLE = (("setup", 12.0), ("call", 20.0), ("teardown", 2.0))


def reported(
    times: Times,
    nodeid: str,
    worker: str,
    phases: Sequence[tuple[str, float]] = WHOLE,
    outcome: str = "passed",
    ended: bool = True,
) -> None:
    for when, duration_s in phases:
        of_it = outcome if when == "call" else "passed"
        times.pytest_runtest_logreport(report(nodeid, when, duration_s, worker, of_it, ended))


def test_a_workers_first_scenario_waits_for_its_lab() -> None:
    times = Times()
    for nodeid, worker in (("one", "gw0"), ("two", "gw0"), ("three", "gw1")):
        reported(times, nodeid, worker)
    scenarios = {"one": 22.0, "two": 34.0, "three": 22.0}
    assert times.taken(scenarios, starts_labs=True) == {**scenarios, START: 12}
    assert times.taken(scenarios, starts_labs=False) == scenarios


def test_what_did_not_come_to_its_end_or_is_no_scenario_tells_nothing() -> None:
    times = Times()
    reported(times, "interrupted", "gw0", WHOLE[:1])
    reported(times, "crashed", "gw1", [("setup", 12.0), ("???", 0.0)])
    reported(times, "no scenario", "gw2")
    reported(times, "skipped", "gw3", [("setup", 0.0), ("teardown", 0.0)], ended=False)
    reported(times, "broke off", "gw4", outcome="failed", ended=False)
    scenarios = {"interrupted", "crashed", "skipped", "broke off"}
    assert times.taken(scenarios, starts_labs=True) == {}


@pytest.mark.parametrize("outcome", ["passed", "skipped", "failed"])
def test_a_scenario_takes_its_time_whatever_its_verdict(outcome: str) -> None:
    """And what is no scenario waits for no lab, though its worker ran it first."""
    times = Times()
    reported(times, "no scenario", "gw0", [("setup", 0.1), ("call", 0.1), ("teardown", 0.1)], ended=False)
    reported(times, "it", "gw0", outcome=outcome)
    assert times.taken({"it"}, starts_labs=True) == {"it": 22.0, START: 12.0}


def kept(run: Path, slots: Sequence[Slot]) -> None:
    planning.write(run, slots, 10.0)
    planning.write_times(run, {"test_0": 50.0, "test_1": 35.0, "test_2": 5.0, START: 12.0})


def test_a_run_ends_with_what_was_planned_beside_what_it_took(tmp_path: Path) -> None:
    kept(tmp_path, pack(expected(40, 30, 5), 2, START_S))
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s, planned 50 s"
    assert planning.slot_of(tmp_path) == {"test_0": "slot 1", "test_1": "slot 2"}, "test_2 moves"


def test_a_run_without_a_plan_compares_nothing(tmp_path: Path) -> None:
    assert planning.compare(tmp_path, 70.0) == "took 1 min 10 s"
    assert planning.slot_of(tmp_path) == {}


def test_people_read_slots_their_scenarios_the_end_and_what_is_not_for_this_lab() -> None:
    slots = pack([*expected(40, 30, 5), Expected("test_swap", 0.0, f"{NOT_HERE}lab-lacks")], 2, START_S)
    said = list(planning.describe(slots, OPTIONS, 15.0, COMMON, 0))
    assert said[0] == "slot 1: 40 s in a process lab, profile fast, 2 nodes, zones: 1, the critical path"
    assert said[-2:] == [
        "not here: test_swap  (lab-lacks)",
        "expected end: 55 s (15 s for the start of a lab); scenarios together: 75 s",
    ]


def test_people_read_what_stands_and_where_it_stands_already() -> None:
    swap = json.dumps([{"fault": "swap", "id": "", "node": "", "size_mib": 256}])
    slots = pack([*expected(10), *stand(5, swap, swap)], 1, START_S)
    said = list(planning.describe(slots, OPTIONS, 15.0, COMMON, 0))
    stands = [line.strip() for line in said if "injected" in line]
    assert stands == ["injected before it: swap size_mib=256", "injected before it: the same"]


SLOTS = """
import threading

from nodeproof.session.scheduling import Planned

def pytest_xdist_make_scheduler(config, log):
    return Planned(config, log, lambda: {f"test_it.py::test_it[{n}]": f"slot {n % 2}" for n in range(5)})

def pytest_collection_modifyitems(config):
    # Who comes for a dead worker has collected only when the next one is ready, and has not.
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
    # Who came for the first dead worker has little left to do when the second dies.
    if {0, 3} == set(KILLS) and number in (2, 3):
        wait_for({3: "2.ran", 2: "3.ran"}[number])
        threading.Event().wait(1.5 if number == 2 else 0)
    if number in KILLS:
        os._exit(1)
"""


def ran(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)


def slots_ran(cwd: Path, kills: set[int]) -> tuple[int, list[list[str]]]:
    """The status, and for each of six tests the workers that ran it."""
    (cwd / "conftest.py").write_text(SLOTS)
    (cwd / "test_it.py").write_text(f"KILLS = {kills or ()}\n{TESTS}")
    done = ran(cwd, sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")
    return done.returncode, [(cwd / f"{number}.ran").read_text().split() for number in range(6)]


def test_a_slot_is_one_workers_and_what_no_plan_knows_runs_too(tmp_path: Path) -> None:
    status, workers = slots_ran(tmp_path, set())
    assert status == 0
    assert all(len(each) == 1 for each in workers)
    assert workers[0] == workers[2] == workers[4] != workers[1] == workers[3]


@pytest.mark.parametrize("kills", [{2}, {0, 1}, {5}, {0, 3}])
def test_a_dead_workers_slot_goes_on_after_what_it_died_of(kills: set[int], tmp_path: Path) -> None:
    status, workers = slots_ran(tmp_path, kills)
    assert status == 1
    assert [len(each) for each in workers] == [1] * 6


def planned(cwd: Path, slots: int) -> subprocess.CompletedProcess[str]:
    return ran(cwd, str(Path(sys.executable).with_name("nodeproof")), "plan", "-n", str(slots))


def test_the_plan_of_the_shipped_scenarios_starts_nothing_and_names_each_once(tmp_path: Path) -> None:
    done = planned(tmp_path, 3)
    assert done.returncode == 0, done.stderr
    slots = [line for line in done.stdout.splitlines() if line.startswith("slot ")]
    assert len(slots) == 3
    assert any("zone of a process lab, profile fast, 3 nodes in each, zones: " in line for line in slots)
    assert any("in a process lab, profile fast, 52 nodes, zones: 50 + 2" in line for line in slots)
    assert sum("the critical path" in line for line in slots) == 1
    assert done.stdout.count("test_pods_leave_a_partitioned_node_after_their_own_toleration") == 1
    # Wherever it is asked: most are planned by the times that are shipped.
    assert done.stdout.count("(earlier runs)") > 50
    assert list(tmp_path.iterdir()) == []


def test_more_slots_than_the_machine_bears_are_named(tmp_path: Path) -> None:
    done = planned(tmp_path, 999)
    assert done.returncode == 0, done.stderr
    assert "999 slots were requested, but this machine supports" in done.stderr


LARGE = """
from nodeproof.plugin import Judge
from nodeproof.scenario import Stage, claims, needs


@claims("zones.metrics")
@needs(nodes=9, zones=3)
def test_large(lab: Stage, judge: Judge) -> None: ...


@claims("zones.metrics")
@needs(nodes=5)
def test_small(lab: Stage, judge: Judge) -> None: ...


@claims("zones.metrics")
@needs(nodes=101)
def test_too_large(lab: Stage, judge: Judge) -> None: ...
"""


@pytest.mark.parametrize(
    ("options", "large", "small"),
    [
        (["-n2"], "9 nodes, zones: 3", "5 nodes in each, zones: 1"),
        (["-n0"], "lab, profile fast, 5 nodes, zones: 1, then 9 nodes, zones: 3, the", "slot 1"),
        (["-n2", "--nodes=12", "--zones=3"], "12 nodes, zones: 3", "12 nodes, zones: 3"),
    ],
)
def test_labs_are_as_large_as_their_scenarios_need_unless_somebody_says_so(
    tmp_path: Path, options: list[str], large: str, small: str
) -> None:
    (tmp_path / "test_sizes.py").write_text(LARGE)
    done = ran(tmp_path, str(Path(sys.executable).with_name("nodeproof")), "plan", *options, "test_sizes.py")
    assert done.returncode == 0, done.stderr
    slots = [line for line in done.stdout.splitlines() if line.startswith("slot ")]
    assert any(large in line for line in slots), slots
    assert any(small in line for line in slots), slots
    assert "not here: test_sizes.py::test_too_large  (lab-lacks)" in done.stdout


UNEVEN = LARGE.replace("nodes=9, zones=3", "nodes=(20, 3)")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-n0"], "23 nodes, zones: 20 + 3"),
        (["-n0", "--nodes=23"], "not here: test_sizes.py::test_large  (lab-lacks)"),
        (["-n0", "--zones=2"], "not here: test_sizes.py::test_large  (lab-lacks)"),
    ],
)
def test_zones_are_of_different_sizes_unless_somebody_says_how_many_there_are(
    tmp_path: Path, options: list[str], told: str
) -> None:
    (tmp_path / "test_sizes.py").write_text(UNEVEN)
    done = ran(tmp_path, str(Path(sys.executable).with_name("nodeproof")), "plan", *options, "test_sizes.py")
    assert done.returncode == 0, done.stderr
    assert told in done.stdout
