"""The table of bugs as a file: how far it came, for whoever goes on with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof.report.rundir import write_json
from tests.sensitivity.bugs import Bug
from tests.sensitivity.running import CAUGHT, Tried

TABLE = "table.json"
Json = Any
MadeOf = Callable[[Bug], str]


class Keeper:
    """Writes what was caught as soon as it was, beside what is `known` already; `made_of` names what a try
    of a bug is made of.
    """

    def __init__(self, path: Path, made_of: MadeOf, known: Iterable[Tried]) -> None:
        self._path = path
        self._made_of = made_of
        self._caught = list(known)
        self._lock = threading.Lock()
        self.write(self._caught)

    def add(self, tried: Tried) -> None:
        """Keep one more."""
        with self._lock:
            self._caught.append(tried)
            self.write(self._caught)

    def write(self, tried: Iterable[Tried]) -> None:
        """Keep these, and nothing else."""
        write_json(self._path, [{"made_of": self._made_of(each.bug), **_told(each)} for each in tried])


def kept(path: Path, made_of: MadeOf, bugs: Iterable[Bug]) -> Sequence[Tried]:
    """What a table has as caught of these bugs, by tries that are made of the same; none without one."""
    if not path.exists():
        return []
    rows = {(row["bug"], row.get("made_of")): row for row in json.loads(path.read_text())}
    found = ((bug, rows.get((bug.name, made_of(bug)), {})) for bug in bugs)
    return [_tried(bug, row) for bug, row in found if row.get("outcome") == CAUGHT]


def _tried(bug: Bug, row: Mapping[str, Json]) -> Tried:
    fell, stood, codes = (frozenset(row[part]) for part in ("fell", "stood", "codes"))
    return Tried(bug, fell, stood, codes, row["took_s"], at_first=row["at_first"])


def _told(tried: Tried) -> Mapping[str, Json]:
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
        "said": "" if tried.outcome == CAUGHT else tried.said,
    }
