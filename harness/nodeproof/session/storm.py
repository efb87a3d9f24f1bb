"""The schedule of a run's storm: made from a seed, or read from a file or an earlier run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodeproof.checks.storm_coverage import coverage
from nodeproof.model.history import History
from nodeproof.model.problem import Problem
from nodeproof.model.schedule import (
    POSSIBLE,
    Combination,
    Schedule,
    coverage_from_json,
    expected_end_s,
    generate,
)
from nodeproof.report import rundir

if TYPE_CHECKING:
    from nodeproof.scenario.lab import Lab

OPTION = "--storm"
FIXTURE = "schedule"
FILE, COVERAGE = "schedule.json", "coverage.json"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the storm without `--storm`, and everything else with it.

    Raises:
        Problem: The option is invalid.
    """
    source, runs = config.getoption("storm"), config.getoption("storm_coverage")
    if runs and (not source or minutes_of(source) is None):
        raise Problem("only a storm of so many minutes takes a coverage", "--storm-coverage", "leave it out")
    read_coverage(map(Path, runs))
    if source and minutes_of(source) is None:
        path = schedule_file(Path(source))
        Schedule.from_json(rundir.read_json(path), str(path))
    others = [item for item in items if (FIXTURE in getattr(item, "fixturenames", ())) != bool(source)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def schedule_for(config: pytest.Config, lab: Lab, folder: Path) -> Schedule:
    """Return the schedule of a storm, and store it in the folder of its scenario.

    Raises:
        Problem: The file that the option names is invalid for this lab.
    """
    met = read_coverage(map(Path, config.getoption("storm_coverage")))
    schedule = _schedule(config.getoption("storm"), config.getoption("storm_seed"), met, lab)
    rundir.write_json(folder / FILE, schedule.to_json())
    return schedule


def _schedule(source: str, seed: int, met: Collection[Combination], lab: Lab) -> Schedule:
    minutes = minutes_of(source)
    if minutes is not None:
        return generate(seed, 60 * minutes, len(lab.targets), lab.configuration["G"], lab.toleration_s, met)
    path = schedule_file(Path(source))
    schedule = Schedule.from_json(rundir.read_json(path), str(path))
    schedule.check_targets(len(lab.targets), str(path))
    return schedule


def minutes_of(source: str) -> float | None:
    """Return a number of minutes, or None for a path."""
    try:
        minutes = float(source)
    except ValueError:
        return None
    return minutes if 0 < minutes < float("inf") else None


def expected_s(item: pytest.Item, grace_s: float) -> float | None:
    """Return how long the storm's faults are expected to take (s); None if the item is no storm.

    Raises:
        Problem: The file that the option names is invalid.
    """
    if FIXTURE not in getattr(item, "fixturenames", ()):
        return None
    source = item.config.getoption("storm")
    minutes = minutes_of(source)
    if minutes is not None:
        return 60 * minutes
    path = schedule_file(Path(source))
    return expected_end_s(Schedule.from_json(rundir.read_json(path), str(path)).steps, grace_s)


def schedule_file(path: Path) -> Path:
    """Return the schedule of a run's folder, or the path of a file.

    Raises:
        Problem: There is no such file, or the run had no storm.
    """
    if path.is_file():
        return path.resolve()
    schedules = sorted(path.glob(f"scenarios/*/{FILE}"))
    if not schedules:
        message = (
            "no schedule of a storm" if path.is_dir() else "no such file or run, and no number of minutes"
        )
        raise Problem(message, f"{OPTION} {path}", f"use minutes, a {FILE} or the folder of a storm's run")
    return schedules[0].resolve()


def store_coverage(folder: Path, history: History) -> None:
    """Store what the storm of a scenario met; another scenario has no schedule."""
    path = folder / FILE
    if path.exists():
        schedule = Schedule.from_json(rundir.read_json(path), str(path))
        rundir.write_json(folder / COVERAGE, sorted(coverage(schedule.steps, history)))


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
    met, path = read_coverage([run]), schedule_file(run)
    earlier = Schedule.from_json(rundir.read_json(path), str(path)).coverage
    line = f"coverage: {len(met)} of {len(POSSIBLE)} combinations of fault and cluster state"
    return f"{line}, {len(met.difference(earlier))} of them new" if earlier else line
