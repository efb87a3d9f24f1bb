"""What a process of a run does just now: told in its own file, a JSON object a line, for who shows it."""

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
_WORTH_TELLING_S = 1.0
"""An end that moved by less is the one that was told."""


@dataclass
class Telling:
    """One process's own words: which scenario it is in, which step, until when at the latest that lasts.

    The folder comes with the first of them; once it is gone nobody listens any more.
    """

    run: Path
    name: str
    _until_t: float = field(default=0.0, init=False)
    _has_begun: bool = field(default=False, init=False)

    def began(self, scenario: str) -> None:
        """A scenario begins."""
        self._tell(scenario=scenario, since_t=round(time.monotonic(), 3))

    def ended(self) -> None:
        """The scenario is over, and nothing is done for now."""
        self._tell(ended=True)

    def step(self, text: str) -> AbstractContextManager[object]:
        """A step of the scenario begins; also the report's."""
        self._until_t = 0.0
        self._tell(step=text)
        step: AbstractContextManager[object] = allure.step(text)
        return step

    def until(self, t: float) -> None:
        """The step lasts until then (s, monotonic) at the latest."""
        if abs(t - self._until_t) > _WORTH_TELLING_S:
            self._until_t = t
            self._tell(until_t=round(t, 3))

    def say(self, line: str) -> bool:
        """A line for people; False where nobody listens."""
        return self._tell(said=line)

    def _tell(self, **data: Json) -> bool:
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
    """What one process does."""

    scenario: str = ""
    since_t: float = 0.0
    step: str = ""
    until_t: float = 0.0


class Board:
    """What all of them do, read as they tell it; for one thread."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._read: dict[str, int] = {}
        self.doing: dict[str, Doing] = {}

    def look(self) -> Iterator[str]:
        """Read what is new; gives the lines for people."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for told in self._new(path):
                if "said" in told:
                    yield str(told["said"])
                elif "ended" in told:
                    self.doing.pop(path.stem, None)
                else:
                    self._take(self.doing.setdefault(path.stem, Doing()), told)

    def _new(self, path: Path) -> Iterator[dict[str, Json]]:
        with path.open() as lines:
            lines.seek(self._read.get(path.stem, 0))
            for line in lines:
                if line.endswith("\n"):
                    self._read[path.stem] = self._read.get(path.stem, 0) + len(line.encode())
                    yield json.loads(line)

    def _take(self, doing: Doing, told: dict[str, Json]) -> None:
        if "scenario" in told:
            doing.scenario, doing.since_t = str(told["scenario"]), float(told["since_t"])
            doing.step, doing.until_t = "a clean lab", 0.0
        elif "step" in told:
            doing.step, doing.until_t = str(told["step"]), 0.0
        else:
            doing.until_t = float(told["until_t"])
