"""The command line as a user runs it: in its own process and folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import proc

TIMEOUT_S = 300.0
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
