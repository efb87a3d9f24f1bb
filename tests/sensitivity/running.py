"""Run the scenario that must catch a bug, and keep which claims fell as a table that can be continued."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.catalogue import scenarios_dir
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.report import rundir
from nodeproof.report.digest import verdict_of
from tests.sensitivity.bugs import Bug
from tests.sensitivity.build import with_bug

RUN_TIMEOUT_S = 900.0
CAUGHT, TABLE = "caught", "table.json"
DigestOf = Callable[[Bug], str]
_LAST_LINES = 12


@dataclass(frozen=True)
class Tried:
    """What became of a bug: which claims fell, which others had a verdict, and how long that took (s)."""

    bug: Bug
    fell: frozenset[str]
    stood: frozenset[str]
    codes: frozenset[str]
    took_s: float
    message: str = ""
    at_first: str = ""
    """The outcome of a first try, where this is the second."""

    @property
    def outcome(self) -> str:
        """`caught`, or what is wrong."""
        if not self.fell | self.stood | self.codes:
            return "the cluster does not come up"
        missed = sorted(set(self.bug.falls) - self.fell)
        if missed:
            return f"missed by {', '.join(missed)}"
        more = sorted(self.fell - {*self.bug.falls, *self.bug.may})
        return f"fell too: {', '.join(more)}" if more else CAUGHT


def run_bug(bug: Bug, executables: Path, keep: Path) -> Tried:
    """Start a lab that has the bug, and run its scenario on it. `keep` gets the run's folder."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nodeproof-bug-") as folder:
        components = Path(folder, "bin")
        with_bug(executables, bug, components)
        try:
            process = proc.run(
                _command(bug, components, keep),
                timeout_s=RUN_TIMEOUT_S,
                cwd=Path(folder),
                env={**os.environ, "XDG_STATE_HOME": f"{folder}/state"},
                check=False,
            )
            output = process.stdout + process.stderr
        except proc.CommandFailed as failed:
            output = str(failed)
    last = "\n".join(output.strip().splitlines()[-_LAST_LINES:])
    return _tried(bug, keep, time.monotonic() - began, last)


def _command(bug: Bug, components: Path, keep: Path) -> Sequence[str]:
    scenario = scenarios_dir() / bug.scenario
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    argv += ["--rootdir", str(scenario.parent), "--run", str(keep), "--profile", bug.profile, *bug.options]
    argv += [str(scenario)]
    if bug.upgrades_from:
        argv += ["--kubernetes-version", bug.upgrades_from, "--upgrade-to", str(components)]
    else:
        argv += ["--components", str(components)]
    return [*argv, "-k", bug.select] if bug.select else argv


def _tried(bug: Bug, run: Path, took_s: float, output: str) -> Tried:
    try:
        rows = rundir.read_verdicts(run)
    except Problem:
        rows = ()
    judged = [row for row in rows if row["code"] not in ("lab-lacks", "scaled", "not-applicable")]
    fell = frozenset(str(row["claim"]) for row in judged if verdict_of(row).is_failure)
    stood = frozenset(str(row["claim"]) for row in judged if row["verdict"] == "conforms") - fell
    codes = frozenset(str(row["code"]) for row in judged if row["code"])
    return Tried(bug, fell, stood, codes, took_s, output)


class Keeper:
    """The file of caught bugs, written as soon as one is caught.

    It begins with the known `results`; `digest_of` names what a try of a bug is made of.
    """

    def __init__(self, path: Path, digest_of: DigestOf, results: Iterable[Tried]) -> None:
        self._path = path
        self._digest_of = digest_of
        self._caught = list(results)
        self._lock = threading.Lock()
        self.write(self._caught)

    def add(self, tried: Tried) -> None:
        """Keep one more."""
        with self._lock:
            self._caught.append(tried)
            self.write(self._caught)

    def write(self, tried: Iterable[Tried]) -> None:
        """Keep these, and nothing else."""
        rundir.write_json(
            self._path, [{"made_of": self._digest_of(result.bug), **_to_row(result)} for result in tried]
        )


def read_caught(path: Path, digest_of: DigestOf, bugs: Iterable[Bug]) -> Sequence[Tried]:
    """Return a table's caught tries of these bugs that are made of the same; none without a table."""
    if not path.exists():
        return []
    rows = {(row["bug"], row.get("made_of")): row for row in json.loads(path.read_text())}
    pairs = ((bug, rows.get((bug.name, digest_of(bug)), {})) for bug in bugs)
    return [_tried_of(bug, row) for bug, row in pairs if row.get("outcome") == CAUGHT]


def _tried_of(bug: Bug, row: Mapping[str, Json]) -> Tried:
    fell, stood, codes = (frozenset(row[part]) for part in ("fell", "stood", "codes"))
    return Tried(bug, fell, stood, codes, row["took_s"], at_first=row["at_first"])


def _to_row(tried: Tried) -> Mapping[str, Json]:
    return {
        "bug": tried.bug.name,
        "of": tried.bug.of,
        "falls": list(tried.bug.falls),
        "may": list(tried.bug.may),
        "fell": sorted(tried.fell),
        "stood": sorted(tried.stood),
        "codes": sorted(tried.codes),
        "outcome": tried.outcome,
        "at_first": tried.at_first,
        "took_s": round(tried.took_s, 1),
        "said": "" if tried.outcome == CAUGHT else tried.message,
    }
