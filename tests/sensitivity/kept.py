"""The table of bugs as a file: how far it came, for whoever goes on with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from nodeproof.model.pattern import Json
from nodeproof.report.rundir import write_json
from tests.sensitivity.bugs import Bug
from tests.sensitivity.running import CAUGHT, Tried

TABLE = "table.json"
DigestOf = Callable[[Bug], str]


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
        write_json(
            self._path, [{"made_of": self._digest_of(result.bug), **_to_row(result)} for result in tried]
        )


def read_caught(path: Path, digest_of: DigestOf, bugs: Iterable[Bug]) -> Sequence[Tried]:
    """Return a table's caught tries of these bugs that are made of the same; none without a table."""
    if not path.exists():
        return []
    rows = {(row["bug"], row.get("made_of")): row for row in json.loads(path.read_text())}
    pairs = ((bug, rows.get((bug.name, digest_of(bug)), {})) for bug in bugs)
    return [_tried(bug, row) for bug, row in pairs if row.get("outcome") == CAUGHT]


def _tried(bug: Bug, row: Mapping[str, Json]) -> Tried:
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
