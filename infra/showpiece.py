"""The judged page that the documentation shows: kept recordings of real clusters, judged as one run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeproof import catalogue
from nodeproof.report import page, recheck, recovery, rundir
from tests.golden_runs import FIELDS, RUNS, thawed

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
    for scenario in rundir.read_scenarios(run):
        recovery.write(scenario.folder, scenario.history(), scenario.configuration())
    stored = rundir.read_run(run)
    # The recordings are whole; only the times of their own runs are not kept.
    facts = replace(recheck.reconstruct_facts(stored), ended=stored.began)
    rundir.write_facts(run, facts)
    judged = recheck.recheck(run, catalogue.load(())).digest.run
    shutil.copy(judged / rundir.VERDICTS, run)
    shutil.rmtree(judged)
    return run


def judged_page() -> str:
    """Return the page of the run."""
    with TemporaryDirectory(prefix="nodeproof-showpiece-") as folder:
        return page.write(write_run(Path(folder)), catalogue.load(())).read_text()
