"""Report the progress of a run's processes: each writes a file of JSON lines, which the controller shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import allure

from nodeproof.model import redact

Json = Any
FOLDER = "live"
_MIN_CHANGE_S = 1.0
"""A change of a step's end below this is not reported."""


@dataclass
class Telling:
    """Writes the progress of one process: its scenario, its step, and the latest end of the step.

    It creates the folder with the first line. Once the folder is removed, nobody reads it any more.
    """

    run: Path
    name: str
    _until_t: float = field(default=0.0, init=False)
    _has_begun: bool = field(default=False, init=False)

    def began(self, scenario: str) -> None:
        """Report that a scenario begins."""
        self._write(scenario=scenario, since_t=round(time.monotonic(), 3))

    def ended(self) -> None:
        """Report that the scenario is over."""
        self._write(ended=True)

    def step(self, text: str) -> AbstractContextManager[object]:
        """Report that a step of the scenario begins, also to Allure."""
        self._until_t = 0.0
        self._write(step=text)
        step: AbstractContextManager[object] = allure.step(text)
        return step

    def until(self, t: float) -> None:
        """Report the latest end of the step (s, monotonic)."""
        if abs(t - self._until_t) > _MIN_CHANGE_S:
            self._until_t = t
            self._write(until_t=round(t, 3))

    def say(self, line: str) -> bool:
        """Report a message; return False if nobody reads it."""
        return self._write(said=line)

    def _write(self, **data: Json) -> bool:
        folder = self.run / FOLDER
        try:
            if not self._has_begun:
                folder.mkdir(parents=True, exist_ok=True)
                self._has_begun = True
            with (folder / f"{self.name}.jsonl").open("a") as out:
                out.write(json.dumps(redact.value(data)) + "\n")
        except OSError:
            return False
        return True


@dataclass(order=True)
class Doing:
    """The progress of one process."""

    scenario: str = ""
    since_t: float = 0.0
    step: str = ""
    until_t: float = 0.0


class Board:
    """The progress of all processes, read from their files; for use by one thread."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._offsets: dict[str, int] = {}
        self.doing: dict[str, Doing] = {}

    def look(self) -> Iterator[str]:
        """Read new lines, and yield the messages."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for report in self._read_new(path):
                if "said" in report:
                    yield str(report["said"])
                elif "ended" in report:
                    self.doing.pop(path.stem, None)
                else:
                    self._update(self.doing.setdefault(path.stem, Doing()), report)

    def _read_new(self, path: Path) -> Iterator[dict[str, Json]]:
        with path.open() as lines:
            lines.seek(self._offsets.get(path.stem, 0))
            for line in lines:
                if line.endswith("\n"):
                    self._offsets[path.stem] = self._offsets.get(path.stem, 0) + len(line.encode())
                    yield json.loads(line)

    def _update(self, doing: Doing, report: dict[str, Json]) -> None:
        if "scenario" in report:
            doing.scenario, doing.since_t = str(report["scenario"]), float(report["since_t"])
            doing.step, doing.until_t = "preparing a clean lab", 0.0
        elif "step" in report:
            doing.step, doing.until_t = str(report["step"]), 0.0
        else:
            doing.until_t = float(report["until_t"])
