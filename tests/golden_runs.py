"""`python -m tests.golden_runs SCENARIO NAME`: keep a stored scenario as `tests/runs/NAME`.

SCENARIO is a folder below `scenarios` of a run; unit tests judge what is kept again.
"""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeproof.report import rundir

RUNS = Path(__file__).resolve().parent / "runs"
OF_BEFORE = RUNS.with_name("runs_of_before")
"""Whole runs as earlier versions wrote them: recorded by these, and kept as they are. What they drew and
copied of logs is left out or as small as it can be.
"""
FIELDS = "fields.json"
"""The fields of API objects of Kubernetes v1.36.3, with which all runs were recorded."""
HISTORY, CONFIGURATION, JUDGMENTS = "history.jsonl", "configuration.json", "judgments.json"


def freeze(scenario: Path, name: str) -> None:
    """Store everything that the verdicts of a scenario are based on."""
    target = RUNS / name
    target.mkdir(parents=True)
    shutil.copy(scenario / JUDGMENTS, target / JUDGMENTS)
    configuration = rundir.read_json(scenario / CONFIGURATION)
    for component in configuration["components"].values():
        # The build machine's paths are private.
        component["path"] = Path(component["path"]).name
    for flags in configuration["flags_set"].values():
        settings = {flag: value.strip('"') for flag, value in flags.items()}
        flags.update({flag: Path(value).name for flag, value in settings.items() if value.startswith("/")})
    rundir.write_json(target / CONFIGURATION, configuration)
    # No time in its header: the same recording gives the same bytes.
    (target / f"{HISTORY}.gz").write_bytes(gzip.compress((scenario / HISTORY).read_bytes(), 9, mtime=0))


def restore(frozen: Path, folder: Path) -> rundir.Scenario:
    """Restore a scenario as the folder of a run."""
    folder.mkdir(parents=True)
    for file in (CONFIGURATION, JUDGMENTS):
        shutil.copy(frozen / file, folder)
    shutil.copy(RUNS / FIELDS, folder.parents[1])
    (folder / HISTORY).write_bytes(gzip.decompress((frozen / f"{HISTORY}.gz").read_bytes()))
    return rundir.read_scenario(folder)


@contextmanager
def thawed(frozen: Path) -> Iterator[rundir.Scenario]:
    """Restore a scenario in a run that ends with the context."""
    with TemporaryDirectory(prefix="nodeproof-") as run:
        yield restore(frozen, Path(run, "scenarios", frozen.name))


def thawed_run(name: str, into: Path) -> Path:
    """Restore a run of an early version."""
    shutil.copytree(OF_BEFORE / name, into)
    for path in into.glob(f"scenarios/*/{HISTORY}.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    return into


if __name__ == "__main__":
    freeze(Path(sys.argv[1]), sys.argv[2])
