"""The command line as a user runs it: in its own process and folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import proc
from nodeproof.report import rundir
from tests.waiting import eventually

TIMEOUT_S = 300.0
PHASE_TIMEOUT_S, ENDS_TIMEOUT_S = 150.0, 240.0
"""How long a run in the background takes to its next phase, and to its end (s)."""
TOP = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class CompletedCommand:
    """A finished command."""

    status: int
    stdout: str
    stderr: str


def nodeproof(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> CompletedCommand:
    """Run `nodeproof` to its end; its output is kept with the test's result."""
    argv = [sys.executable, "-m", "nodeproof.cli", *arguments]
    process = proc.run(argv, timeout_s=timeout_s, cwd=cwd, env={**os.environ, **(env or {})}, check=False)
    print(process.stdout, process.stderr)
    return CompletedCommand(process.status, process.stdout, process.stderr)


def start(*arguments: str, cwd: Path, log: Path) -> proc.Process:
    """Start `nodeproof` in the background, in its own session."""
    return proc.start([sys.executable, "-m", "nodeproof.cli", *arguments], log=log, cwd=cwd, own_session=True)


def check_refused(process: CompletedCommand, *words: str, status: int = 2) -> None:
    """Assert that the last message of a command has these words, and that there is no traceback."""
    output = process.stderr + process.stdout
    assert process.status == status, process
    messages = [line for line in output.splitlines() if "nodeproof:" in line]
    assert messages and all(word in messages[-1] for word in words), process
    assert "Traceback" not in output


@dataclass(frozen=True)
class Running:
    """A run in the background, its folder, and the file of its output."""

    process: proc.Process
    folder: Path
    log: Path

    def wait(self, timeout_s: float = ENDS_TIMEOUT_S) -> int:
        """Return its exit code once it has ended."""
        return self.process.wait(timeout=timeout_s)


def is_injected(run: Path) -> bool:
    """Return whether a fault is injected."""
    return "injected" in steps(run)


def two_are_injected(run: Path) -> bool:
    """Return whether two scenarios of a run have injected a fault."""
    return steps(run).count("injected") == 2


@contextmanager
def running(*arguments: str, cwd: Path, until: Callable[[Path], object] = is_injected) -> Iterator[Running]:
    """Start `nodeproof run`, wait until `until` holds for its folder, and kill it when the context ends."""
    log = cwd / "log"
    process = start("run", "--no-site", *arguments, cwd=cwd, log=log)
    try:
        folder = eventually(lambda: the_run(cwd), PHASE_TIMEOUT_S)
        assert folder is not None, log.read_text()
        assert eventually(lambda: until(folder), PHASE_TIMEOUT_S), log.read_text()
        yield Running(process, folder, log)
    finally:
        process.kill()
        process.wait(timeout=ENDS_TIMEOUT_S)


def verdicts_of(run: Path | None) -> dict[str, tuple[str, str | None]]:
    """Return verdict and code of each claim of a run."""
    assert run is not None
    return {row["claim"]: (row["verdict"], row["code"]) for row in rundir.read_verdicts(run)}


def the_run(cwd: Path) -> Path | None:
    """Return the folder of the only run below a working folder, or None."""
    runs = [path for path in (cwd / "reports" / "out").glob("2*") if path.is_dir()]
    return runs[0] if runs else None


def labs_of(run: Path) -> list[str]:
    """Return the names of the labs that a run started."""
    return sorted(path.name for path in (run / "labs").glob("*") if path.is_dir())


def steps(run: Path) -> list[str]:
    """Return the fault steps in all histories of a run, as far as they are written."""
    recorded = []
    for path in run.glob("scenarios/*/history.jsonl"):
        for line in path.read_text().splitlines():
            entry: Mapping[str, Any] = json.loads(line) if line.endswith("}") else {}
            if entry.get("kind") == "fault":
                recorded.append(str(entry["step"]))
    return recorded
