"""A storm on a cluster with a compiled bug: an invariant deviates, and again with the faults until then."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.model.schedule import Schedule, subset
from nodeproof.report import rundir
from nodeproof.session.storm import guesses, read_deviation, schedule_file
from tests.acceptance.command import nodeproof
from tests.sensitivity.bugs import Bug, load
from tests.sensitivity.build import build, write_executables

BUG = "node-with-user-taint-gets-half-the-grace-period"
SEED, MINUTES = 2591, 3
"""Two nodes lose their machine and get a taint of users within the first minute."""


@pytest.fixture
def bug() -> Bug:
    return next(bug for bug in load() if bug.name == BUG)


@pytest.fixture
def components_with_bug(bug: Bug, tmp_path: Path) -> Path:
    """Return the folder of executables that have the bug."""
    folder = tmp_path / "bin"
    write_executables(build(load(), print), bug, folder)
    return folder


def deviating(run: Path, components: Path, *options: str) -> set[str]:
    """Run a storm, and return the invariants that deviate."""
    completed = nodeproof(
        "storm", "--no-site", f"--run={run}", f"--components={components}", *options, cwd=run.parent
    )
    assert completed.status == 1
    return {str(row["claim"]) for row in rundir.read_verdicts(run) if row["verdict"] == "deviates"}


@pytest.mark.alone
@pytest.mark.storm
def test_storm_finds_a_compiled_bug_and_the_faults_until_then_repeat_it(
    bug: Bug, components_with_bug: Path, tmp_path: Path
) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "schedule.json"
    assert deviating(first, components_with_bug, f"--minutes={MINUTES}", f"--seed={SEED}") == {*bug.falls}
    deviation = read_deviation(first)
    *_fewer, before = guesses(deviation)
    steps = subset(deviation.schedule.steps, before, deviation.grace_s)
    rundir.write_json(file, Schedule(SEED, steps).to_json())
    assert deviating(second, components_with_bug, f"--schedule={file}") == {*bug.falls}
    assert schedule_file(second).read_text() == file.read_text()
