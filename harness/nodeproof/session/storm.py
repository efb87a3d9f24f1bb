"""The schedule of a run's storm: made from a seed, or read from a file or an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodeproof.model.problem import Problem
from nodeproof.model.schedule import Schedule, generate
from nodeproof.report import rundir

if TYPE_CHECKING:
    from nodeproof.scenario.lab import Lab

OPTION = "--storm"
FIXTURE = "schedule"
FILE = "schedule.json"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the storm without `--storm`, and everything else with it.

    Raises:
        Problem: The option is invalid.
    """
    source = config.getoption("storm")
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
    schedule = _schedule(config.getoption("storm"), config.getoption("storm_seed"), lab)
    rundir.write_json(folder / FILE, schedule.to_json())
    return schedule


def _schedule(source: str, seed: int, lab: Lab) -> Schedule:
    minutes = minutes_of(source)
    if minutes is not None:
        return generate(seed, 60 * minutes, len(lab.targets), lab.configuration["G"], lab.toleration_s)
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
