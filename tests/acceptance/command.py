"""The command line as a user runs it: in a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeproof import proc

LIMIT_S = 300.0
TOP = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    stdout: str
    stderr: str


def nodeproof(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
) -> Done:
    """Run `nodeproof` to its end; what it says is kept with the test's result."""
    argv = [sys.executable, "-m", "nodeproof.cli", *arguments]
    done = proc.run(argv, timeout_s=limit_s, cwd=cwd, env={**os.environ, **(env or {})}, check=False)
    print(done.stdout, done.stderr)
    return Done(done.status, done.stdout, done.stderr)


def start(*arguments: str, cwd: Path, log: Path) -> proc.Process:
    """Start `nodeproof` in the background, in a session of its own."""
    return proc.start([sys.executable, "-m", "nodeproof.cli", *arguments], log=log, cwd=cwd, own_session=True)


def the_run(cwd: Path) -> Path | None:
    """The only run's folder below a working folder, once there is one."""
    found = [path for path in (cwd / "reports" / "out").glob("2*") if path.is_dir()]
    return found[0] if found else None


def labs_of(run: Path) -> list[str]:
    """Names of the labs that a run started."""
    return sorted(path.name for path in (run / "labs").iterdir() if path.is_dir())


def steps(run: Path) -> list[str]:
    """The fault steps in all histories of a run, as far as they are written."""
    found = []
    for path in run.glob("scenarios/*/history.jsonl"):
        for line in path.read_text().splitlines():
            entry: Mapping[str, Any] = json.loads(line) if line.endswith("}") else {}
            if entry.get("kind") == "fault":
                found.append(str(entry["step"]))
    return found
