"""Where a run is that was judged again: a folder of its own inside the recorded one, laid out like a run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.report import rundir

FOLDER = "recheck"
FILE = "recheck.json"
"""What changed by it, and what was lost of the run; that it is there says which kind of folder this is."""


def is_one(run: Path) -> bool:
    """Whether this folder is of a run that was judged again."""
    return (run / FILE).is_file()


def recorded(run: Path) -> Path:
    """The folder that the run itself wrote, which stays as it was recorded."""
    run = run.resolve()
    return run.parent if is_one(run) else run


def named(run: Path) -> str:
    """A run's name; of one that was judged again, where in the run it is."""
    return f"{run.parent.name}/{run.name}" if is_one(run) else run.name


def no_end(run: Path) -> str:
    """Why nothing says when the recorded run ended; empty where that has no other cause than the run's."""
    with contextlib.suppress(Problem, KeyError, TypeError):
        return str(rundir.read_json(run / FILE)["no_end"])
    return ""


def lost(run: Path) -> tuple[str, ...]:
    """What of the recorded run could not be judged again, a sentence each."""
    with contextlib.suppress(Problem, KeyError, TypeError):
        return tuple(map(str, rundir.read_json(run / FILE)["lost"]))
    return ()
