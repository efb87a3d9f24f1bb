"""A run's storm: its schedule, from a seed, a file or an earlier run, and the smallest one that deviates."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodeproof import catalogue, proc
from nodeproof.cache import Report, time_left
from nodeproof.checks.invariants import violated_s
from nodeproof.checks.storm_coverage import coverage, injected
from nodeproof.model.history import Entry, History
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import (
    POSSIBLE,
    RATE_TIMES,
    Combination,
    Judge,
    Schedule,
    Shrunk,
    Steps,
    Trial,
    choose_faults,
    coverage_from_json,
    expected_end_s,
    generate,
    shrink,
)
from nodeproof.report import digest, rundir
from nodeproof.report.plain import counted

if TYPE_CHECKING:
    from nodeproof.scenario.lab import Lab

OPTION = "--storm"
_FAULTS = "--storm-faults"
FIXTURE = "schedule"
FILE, COVERAGE = "schedule.json", "coverage.json"


def others(config: pytest.Config, items: Sequence[pytest.Item]) -> Set[pytest.Item]:
    """Return what does not run: the storm without `--storm`, and everything else with it.

    Raises:
        Problem: The option is invalid.
    """
    source, runs, faults = _source(config), config.getoption("storm_coverage"), _faults(config)
    if (runs or faults) and not isinstance(source, float):
        option = "--storm-coverage" if runs else _FAULTS
        raise Problem("only a storm of so many minutes takes this option", option, "leave it out")
    read_coverage(map(Path, runs))
    return {item for item in items if _is_storm(item) != (source is not None)}


def _is_storm(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())


def schedule_for(config: pytest.Config, lab: Lab, folder: Path) -> Schedule:
    """Return the schedule of a storm, and store it in the folder of its scenario.

    Raises:
        Problem: The file that the option names is invalid for this lab.
    """
    schedule = _source(config)
    if isinstance(schedule, Schedule):
        schedule.check_targets(len(lab.targets), config.getoption("storm"))
    else:
        met = read_coverage(map(Path, config.getoption("storm_coverage")))
        seed, duration_s = config.getoption("storm_seed"), 60 * float(config.getoption("storm"))
        grace_s = lab.configuration["G"]
        faults = _faults(config)
        schedule = generate(seed, duration_s, len(lab.targets), grace_s, lab.toleration_s, met, faults)
    rundir.write_json(folder / FILE, schedule.to_json())
    return schedule


def expected_s(item: pytest.Item, grace_s: float) -> float | None:
    """Return how long the storm's faults are expected to take (s); None if the item is no storm.

    Raises:
        Problem: The file that the option names is invalid.
    """
    source = _source(item.config) if _is_storm(item) else None
    if isinstance(source, Schedule):
        return expected_end_s(source.steps, grace_s)
    return None if source is None else 60 * source


def _faults(config: pytest.Config) -> tuple[str, ...]:
    """Return the kinds of faults of `--storm-faults`; none for all. Raises Problem."""
    names = config.getoption("storm_faults")
    return choose_faults(names.split(",") if names else [], _FAULTS)


def _source(config: pytest.Config) -> float | Schedule | None:
    """Return the minutes or the schedule of `--storm`; None without it. Raises Problem."""
    source = config.getoption("storm")
    with contextlib.suppress(ValueError):
        if 0 < float(source) < float("inf"):
            return float(source)
    return read_schedule(schedule_file(Path(source))) if source else None


def schedule_file(path: Path) -> Path:
    """Return the schedule of a run's folder, or the path of a file.

    Raises:
        Problem: There is no such file, or the run had no storm.
    """
    if path.is_file():
        return path.resolve()
    schedules = sorted(path.glob(f"scenarios/*/{FILE}"))
    if not schedules:
        absent = "no such file or run, and no number of minutes"
        message = "no schedule of a storm" if path.is_dir() else absent
        raise Problem(message, f"{OPTION} {path}", f"use minutes, a {FILE} or the folder of a storm's run")
    return schedules[0].resolve()


def read_schedule(path: Path) -> Schedule:
    """Read a schedule. Raises Problem."""
    return Schedule.from_json(rundir.read_json(path), str(path))


def store_coverage(folder: Path, history: History) -> None:
    """Store what the storm of a scenario met; another scenario has no schedule."""
    path = folder / FILE
    if path.exists():
        rundir.write_json(folder / COVERAGE, sorted(coverage(read_schedule(path).steps, history)))


def read_coverage(runs: Iterable[Path]) -> frozenset[Combination]:
    """Return what the storms of these runs met.

    Raises:
        Problem: A run has no coverage, or it is malformed.
    """
    met: set[Combination] = set()
    for run in runs:
        paths = sorted(run.glob(f"scenarios/*/{COVERAGE}"))
        if not paths:
            raise Problem("no coverage of a storm", f"{run}", "name the folder of a storm's run")
        for path in paths:
            met |= {*coverage_from_json(rundir.read_json(path), str(path))}
    return frozenset(met)


def coverage_summary(run: Path) -> str:
    """Return what the storm of a run met, in one line. Raises Problem if it was not stored."""
    met, earlier = read_coverage([run]), read_schedule(schedule_file(run)).coverage
    line = f"coverage: {len(met)} of {len(POSSIBLE)} combinations of fault and cluster state"
    return f"{line}, {len(met.difference(earlier))} of them new" if earlier else line


SCENARIO = "test_smallest_schedule.py"
_STORM = "storm/test_storm.py"
_START_S = 20.0
"""About how long (s) a run takes beside its recording: mostly to start the lab."""
_NEXT_STEP = "name the folder of a storm's run in which an invariant deviates"


@dataclass(frozen=True)
class Deviation:
    """An invariant that deviated in a storm, with what is needed to find the smallest schedule.

    Args:
        claim: identifier of the invariant.
        reason: the reason of its verdict.
        schedule: the schedule of the storm.
        history: the recording.
        grace_s: node monitor grace period (s).
        took_s: about how long a run of it takes (s).
    """

    claim: str
    reason: str
    schedule: Schedule
    history: History
    grace_s: float
    took_s: float


def read_deviation(run: Path) -> Deviation:
    """Read the first invariant that deviated in a run.

    Raises:
        Problem: The run had no storm, or no invariant deviated.
    """
    storms = [scenario for scenario in rundir.read_scenarios(run) if (scenario.folder / FILE).exists()]
    if not storms:
        raise Problem("the run had no storm", str(run), _NEXT_STEP)
    for scenario in storms:
        for row in scenario.rows:
            if row["verdict"] == "deviates":
                schedule = read_schedule(scenario.folder / FILE)
                history, grace_s = scenario.history(), scenario.configuration()["G"]
                # The run may have had more scenarios, or more tries.
                took_s = _START_S + history.ended_t - history.began_t
                return Deviation(row["claim"], row["reason"], schedule, history, grace_s, took_s)
    raise Problem("no invariant deviated in the run", str(run), _NEXT_STEP)


def shrink_deviation(deviation: Deviation, minutes: float, judge: Judge, report: Report) -> Shrunk:
    """Return the smallest schedule found with storms of at most so many minutes; report each of them."""
    began_t = time.monotonic()

    def judge_reported(steps: Steps) -> Trial:
        rest = time_left(60 * minutes + began_t - time.monotonic())
        report(f"a storm with {counted(len(steps), 'fault')}; of {minutes:g} min for all storms, {rest}")
        return judge(steps)

    steps, grace_s = deviation.schedule.steps, deviation.grace_s
    return shrink(steps, guesses(deviation), deviation.took_s, 60 * minutes, grace_s, judge_reported)


def guesses(deviation: Deviation) -> Sequence[Sequence[int]]:
    """Return the numbers of the steps that may suffice, the cheapest first.

    Two faults usually meet: the last two on the nodes that the reason names, or the last of all. Then all
    steps on these nodes and on components, and all before the deviation.
    """
    entries = dict(injected(deviation.schedule.steps, deviation.history))
    after_s = violated_s(deviation.reason)
    until_t = float("inf") if after_s is None else deviation.history.began_t + after_s
    before = [number for number, entry in entries.items() if entry.t <= until_t]
    words, steps = set(re.findall(r"[\w-]+", deviation.reason)), deviation.schedule.steps
    named = [number for number in before if words & set(_objects(entries[number]))]
    touched = [number for number in before if number in named or isinstance(steps[number].target, str)]
    return named[-2:], before[-3:], touched, before


def _objects(entry: Entry) -> Iterator[str]:
    """Yield what the arguments of a fault name."""
    yield from (str(value) for key, value in entry.data["fault"].items() if key != "fault")


def judge_by_storms(claim: str, seed: int, out: Path, options: Sequence[str]) -> Judge:
    """Return a judge that runs a storm with the steps, in a new folder for each storm.

    Args:
        claim: identifier of the invariant that must deviate.
        seed: seed of the original schedule.
        out: folder of the runs.
        options: other options of `nodeproof storm`.
    """
    out.mkdir(parents=True)
    number = 0

    def judge(steps: Steps) -> Trial:
        nonlocal number
        number += 1
        file, run = out / f"{number}.json", out / str(number)
        rundir.write_json(file, Schedule(seed, steps).to_json())
        argv = [sys.executable, "-m", "nodeproof.cli", "storm", "--no-site", "--schedule", str(file)]
        began_t = time.monotonic()
        # Another attempt is the search's decision, and only one claim matters.
        proc.foreground([*argv, f"--run={run}", "--again=0", *options])
        return Trial(digest.outcome_in(run, claim), time.monotonic() - began_t)

    return judge


def scenario_text(schedule: Schedule) -> str:
    """Return a pytest scenario that runs the storm with this schedule."""
    text = (catalogue.scenarios_dir() / _STORM).read_text()
    text = text.replace("import Schedule\n", "import Schedule, Step\n", 1)
    text = text.replace(f", {FIXTURE}: Schedule)", ")", 1).replace(", schedule", ", SCHEDULE")
    text = text.replace("test_invariants_hold_in_a_storm", "test_invariants_hold_with_smallest_schedule")
    constant = f"SCHEDULE = Schedule(\n    seed={schedule.seed},\n    steps=(\n"
    constant += "".join(f"        {step!r},\n" for step in schedule.steps) + "    ),\n)\n"
    head, body = text.split("\n@needs(", 1)
    return f"{head}{constant}\n\n@needs({body}"


def repeat(steps: Steps, judge: Judge) -> str:
    """Repeat a schedule, and return how often it deviated; a storm that proves nothing does not count."""
    outcomes = [judge(steps).outcome for _time in range(RATE_TIMES)]
    deviating, judged = outcomes.count("deviates"), len(outcomes) - outcomes.count("unproven")
    return f"{deviating} of {judged} storms"


def summary(deviation: Deviation, shrunk: Shrunk) -> str:
    """Return the result in one line."""
    extent = "no step can be left out" if shrunk.is_minimal else "the budget or load ended the search"
    return (
        f"{deviation.claim} deviates with {len(shrunk.steps)} of {len(deviation.schedule.steps)} faults "
        f"({extent}): {shrunk.deviating} of {shrunk.judged} storms, {shrunk.spent_s / 60:.1f} min"
    )
