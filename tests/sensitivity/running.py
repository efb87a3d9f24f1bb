"""Run the scenario that must catch a bug, and keep the claims that deviate in a table."""

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
from tests.sensitivity.build import write_executables

RUN_TIMEOUT_S = 900.0
CAUGHT, TABLE = "caught", "table.json"
DigestOf = Callable[[Bug], str]
_LAST_LINES = 12


@dataclass(frozen=True)
class Try:
    """One try of a bug: the claims that deviate and conform, codes of others, and how long it took (s)."""

    bug: Bug
    deviating: frozenset[str]
    conforming: frozenset[str]
    codes: frozenset[str]
    took_s: float
    message: str = ""
    at_first: str = ""
    """The outcome of a first try, where this is the second."""

    @property
    def outcome(self) -> str:
        """`caught`, or why not."""
        if not self.deviating | self.conforming | self.codes:
            return "the cluster does not come up"
        missed = sorted(set(self.bug.falls) - self.deviating)
        if missed:
            return f"missed by {', '.join(missed)}"
        unexpected = sorted(self.deviating - {*self.bug.falls, *self.bug.may})
        return f"deviates too: {', '.join(unexpected)}" if unexpected else CAUGHT


def run_bug(bug: Bug, executables: Path, run: Path) -> Try:
    """Start a lab that has the bug, and run its scenario on it. `run` is the folder of the run."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nodeproof-bug-") as folder:
        components = Path(folder, "bin")
        write_executables(executables, bug, components)
        try:
            process = proc.run(
                _command(bug, components, run),
                timeout_s=RUN_TIMEOUT_S,
                cwd=Path(folder),
                env={**os.environ, "XDG_STATE_HOME": f"{folder}/state"},
                check=False,
            )
            output = process.stdout + process.stderr
        except proc.CommandFailed as failed:
            output = str(failed)
    last = "\n".join(output.strip().splitlines()[-_LAST_LINES:])
    return _read_try(bug, run, time.monotonic() - began, last)


def _command(bug: Bug, components: Path, run: Path) -> Sequence[str]:
    scenario = scenarios_dir() / bug.scenario
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    argv += ["--rootdir", str(scenario.parent), "--run", str(run), "--profile", bug.profile, *bug.options]
    argv += [str(scenario)]
    if bug.upgrades_from:
        argv += ["--kubernetes-version", bug.upgrades_from, "--upgrade-to", str(components)]
    else:
        argv += ["--components", str(components)]
    return [*argv, "-k", bug.select] if bug.select else argv


def _read_try(bug: Bug, run: Path, took_s: float, output: str) -> Try:
    try:
        rows = rundir.read_verdicts(run)
    except Problem:
        rows = ()
    judged = [row for row in rows if row["code"] not in ("lab-lacks", "scaled", "not-applicable")]
    deviating = frozenset(str(row["claim"]) for row in judged if verdict_of(row).is_failure)
    conforming = frozenset(str(row["claim"]) for row in judged if row["verdict"] == "conforms") - deviating
    codes = frozenset(str(row["code"]) for row in judged if row["code"])
    return Try(bug, deviating, conforming, codes, took_s, output)


class CaughtFile:
    """The file of caught bugs, written whenever one is caught.

    It begins with the earlier `results`; `digest_of` identifies the inputs of a try.
    """

    def __init__(self, path: Path, digest_of: DigestOf, results: Iterable[Try]) -> None:
        self._path = path
        self._digest_of = digest_of
        self._caught = list(results)
        self._lock = threading.Lock()
        self.write(self._caught)

    def add(self, bug_try: Try) -> None:
        """Add a caught bug."""
        with self._lock:
            self._caught.append(bug_try)
            self.write(self._caught)

    def write(self, tries: Iterable[Try]) -> None:
        """Replace the content of the file."""
        rundir.write_json(
            self._path, [{"made_of": self._digest_of(result.bug), **_to_row(result)} for result in tries]
        )


def read_caught(path: Path, digest_of: DigestOf, bugs: Iterable[Bug]) -> Sequence[Try]:
    """Return a table's caught tries of these bugs with the same inputs; none without a table."""
    if not path.exists():
        return []
    rows = {(row["bug"], row.get("made_of")): row for row in json.loads(path.read_text())}
    pairs = ((bug, rows.get((bug.name, digest_of(bug)), {})) for bug in bugs)
    return [_from_row(bug, row) for bug, row in pairs if row.get("outcome") == CAUGHT]


def _from_row(bug: Bug, row: Mapping[str, Json]) -> Try:
    deviating, conforming, codes = (frozenset(row[part]) for part in ("fell", "stood", "codes"))
    return Try(bug, deviating, conforming, codes, row["took_s"], at_first=row["at_first"])


def _to_row(bug_try: Try) -> Mapping[str, Json]:
    return {
        "bug": bug_try.bug.name,
        "of": bug_try.bug.of,
        "falls": list(bug_try.bug.falls),
        "may": list(bug_try.bug.may),
        "fell": sorted(bug_try.deviating),
        "stood": sorted(bug_try.conforming),
        "codes": sorted(bug_try.codes),
        "outcome": bug_try.outcome,
        "at_first": bug_try.at_first,
        "took_s": round(bug_try.took_s, 1),
        "said": "" if bug_try.outcome == CAUGHT else bug_try.message,
    }
