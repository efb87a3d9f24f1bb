"""Which shard a run is, as it says itself: from its beginning, so that one that died has said it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard
from nodeproof.report import digest, rundir
from nodeproof.report.rundir import RunFacts

Json = Any
FILE = "shard.json"


def write(run: Path, shard: Shard) -> None:
    """Write `shard.json`."""
    rundir.write_json(run / FILE, shard.to_json())


def read(run: Path) -> Shard | None:
    """From what it left when it began, or else in the end; None of a run that is no shard.

    Raises Problem where that is malformed.
    """
    path, told = run / FILE, facts(run)
    try:
        if path.exists():
            return _shard(path, rundir.read_json(path))
    except Problem:
        if not told or not told.shard:
            raise
    return _shard(run / "run.json", told.shard) if told and told.shard else None


def facts(run: Path) -> RunFacts | None:
    """What `run.json` says; None where it cannot be read. Raises Problem where a newer version wrote it."""
    try:
        found = rundir.read_facts(run)
    except rundir.NewerFormat:
        raise
    except Problem:
        return None
    return found if digest.are_whole(found) else None


def _shard(path: Path, data: Json) -> Shard:
    try:
        return Shard.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise rundir.malformed(path, f"not a shard: {error}") from error
