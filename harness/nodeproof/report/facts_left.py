"""What a run was, also where it was killed before it could write that down: as far as what it left tells."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard
from nodeproof.report import declared, files, rundir, shards
from nodeproof.report.digest import Digest
from nodeproof.report.rundir import RunFacts

Json = Any
BROKEN_OFF = "broken-off"
"""Why a run broke off, written as soon as that is known."""
_STAMP = re.compile(r"(\d{8}-\d{6})-")


def read(told: Digest) -> RunFacts:
    """The facts of a run: its own, else rebuilt, without an end. What nothing tells is empty.

    Raises Problem where its `shard.json` is malformed.
    """
    if told.facts is not None:
        return told.facts
    run, shard, labs = told.run, shards.read(told.run), list(_labs(told.run))
    version = shard.kubernetes_version if shard else told.kubernetes_version
    return RunFacts(
        run=run.name,
        began=shard.began if shard else _began(run),
        ended="",
        lab=shard.lab if shard else told.lab,
        profile=shard.profile if shard else told.profile,
        kubernetes_version=labs[0]["kubernetes_version"] if labs else version,
        command="",
        components=labs[0]["components"] if labs else {},
        settings=(),
        quarantined=tuple(sorted({node for lab in labs for node in lab["quarantined"]})),
        selected=_selected(told, shard),
        exit_reason=_exit_reason(run),
        shard=shard.to_json() if shard else None,
    )


def no_end(told: Digest) -> str:
    """Why nothing says when a run ended, where it did say it and that is lost; empty of any other."""
    if told.facts is None and (told.run / "run.json").exists():
        return "run.json is malformed: when the run ended, and whether it did, nothing says."
    return ""


def _labs(run: Path) -> Iterator[Json]:
    """What was written down of each lab once it stood, where all of it is there."""
    for path in files.entries(run / "labs"):
        if path.suffix != ".json":
            continue
        with contextlib.suppress(Problem):
            lab = rundir.read_json(path)
            if isinstance(lab, dict) and lab.keys() >= {"kubernetes_version", "components", "quarantined"}:
                yield lab


def _selected(told: Digest, shard: Shard | None) -> tuple[str, ...]:
    """The claims that it was to judge; where it does not say, those that it judged."""
    scenarios = declared.read(told.run)
    if scenarios is None and shard is not None:
        scenarios = shard.parts[shard.number - 1]
    parts = scenarios.values() if scenarios is not None else (tuple(told.by_claim),)
    return tuple(sorted({claim for claims in parts for claim in claims}))


def _exit_reason(run: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return files.read_text(run / BROKEN_OFF)
    return ""


def _began(run: Path) -> str:
    """By the folder's name; under another name, when the first recording began."""
    stamp = _STAMP.match(run.name)
    with contextlib.suppress(ValueError):
        if stamp:
            return datetime.strptime(f"{stamp[1]}+0000", "%Y%m%d-%H%M%S%z").isoformat()
    began = min(_recordings(run), default=None)
    return datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds") if began is not None else ""


def _recordings(run: Path) -> Iterator[float]:
    """When each recording began (s since 1970)."""
    for folder in files.entries(run / "scenarios"):
        with (
            contextlib.suppress(OSError, ValueError, KeyError, TypeError),
            files.opened(folder / "history.jsonl") as lines,
        ):
            entry = json.loads(lines.readline())
            yield float(entry["t"]) + float(entry["wall_offset_s"])
