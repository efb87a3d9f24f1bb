"""The judged page that the documentation shows: kept recordings of real clusters, judged as one run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeproof import catalogue
from nodeproof.model.slack import slack_s
from nodeproof.report import page, recheck, recovery, rundir
from tests.golden_runs import FIELDS, JUDGMENTS, RUNS, thawed

NAME = "kept-recordings"
SCENARIOS = (
    "admission-flags",
    "cordon",
    "daemons",
    "joined",
    "node-made-by-hand",
    "node-restriction",
    "not-ready",
    "out-of-service",
    "reboot",
    "recovery",
    "two-of-three",
    "unreachable",
)
"""Recordings of labs of one kind, profile and version, without a bug compiled in."""


def write_run(folder: Path) -> Path:
    """Write the run, judged by today's code, into an empty folder, and return its own folder."""
    run = folder / NAME
    for name in SCENARIOS:
        with thawed(RUNS / name) as scenario:
            shutil.copytree(scenario.folder, run / "scenarios" / name)
    shutil.copy(RUNS / FIELDS, run)
    recorded_s = sum(_complete(scenario) for scenario in rundir.read_scenarios(run))
    stored = rundir.read_run(run)
    # The recordings are of several runs: the duration is theirs, as if one had followed another.
    ended = datetime.fromisoformat(stored.began) + timedelta(seconds=recorded_s)
    rundir.write_facts(run, replace(recheck.reconstruct_facts(stored), ended=ended.isoformat()))
    judged = recheck.recheck(run, catalogue.load(())).digest.run
    shutil.copy(judged / rundir.VERDICTS, run)
    shutil.rmtree(judged)
    return run


def _complete(scenario: rundir.Scenario) -> float:
    """Write what the recording is kept without, recoveries and slack; return its duration (s)."""
    history, configuration = scenario.history(), scenario.configuration()
    recovery.write(scenario.folder, history, configuration)
    slack = {"s": round(slack_s(history, configuration), 3), "limit_s": configuration.slack_limit_s}
    rundir.write_json(scenario.folder / JUDGMENTS, {**scenario.content, "slack": slack})
    return history.ended_t - history.began_t


def judged_page() -> str:
    """Return the page of the run."""
    with TemporaryDirectory(prefix="nodeproof-showpiece-") as folder:
        return page.write(write_run(Path(folder)), catalogue.load(())).read_text()
