"""A stored run judged again: `<run>/recheck`, a run's folder with today's verdicts and reports.

Recorded files are linked, and the run itself stays as it was recorded.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import allure, digest, files, junit, recheck, rundir, sections, timeline
from nodeproof.report.digest import Digest
from nodeproof.report.recheck import Difference, Rejudged
from nodeproof.report.rundir import Row, RunFacts, StoredRun, Unreadable

Json = Any
_LINKED = (
    rundir.TIMES,
    rundir.DECLARED,
    rundir.FIELDS,
    rundir.SHARD,
    rundir.PLAN,
    rundir.TOO_LOADED,
)
_REWRITTEN = frozenset({"environment.properties"})
"""Allure's results that a site writes."""


@dataclass(frozen=True)
class Rebuilt:
    """A run that was judged again, with its changed verdicts."""

    digest: Digest
    facts: RunFacts
    changed: tuple[Difference, ...]


def rebuild(run: Path, claims: Mapping[str, Claim]) -> Rebuilt:
    """Judge all stored scenarios again, and replace `<run>/recheck` once all but its site is written.

    A scenario with a missing or malformed file is left out, and named in what is missing.

    Raises:
        Problem: There is no run, the folder cannot be written, or the catalogue lacks a claim or a constant.
    """
    stored = rundir.read_run(rundir.recorded_run(run))
    if not (stored.folder / "scenarios").is_dir():
        raise Problem("there are no recordings of a run", str(run), "name a run that has `scenarios`")
    folder, partial = stored.folder / rundir.RECHECK, stored.folder / f".{rundir.RECHECK}"
    facts = stored.facts or reconstruct_facts(stored)
    try:
        files.remove(partial)
        changed = _write(partial, stored, facts, claims)
        files.remove(folder)
        partial.rename(folder)
    except OSError as error:
        failed = "the run that was judged again cannot be written"
        next_step = "check permissions and free space of the run's folder"
        raise Problem(failed, str(folder), next_step, str(error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    junit.write(folder, claims, folder / junit.FILE)
    return Rebuilt(digest.read(folder), facts, changed)


def _write(
    into: Path, stored: StoredRun, facts: RunFacts, claims: Mapping[str, Claim]
) -> tuple[Difference, ...]:
    for part in ("scenarios", "allure-results"):
        (into / part).mkdir(parents=True)
    for name in _LINKED:
        files.link(stored.folder / name, into / name)
    files.link(stored.folder / "allure-results", into / "allure-results", _REWRITTEN)
    rows, lost = _rejudge(into, stored, claims)
    changed = tuple(recheck.differences(filter(digest.is_row, stored.rows), rows))
    rundir.write_json(stored.folder / recheck.FILE, rows)
    rundir.write_json(into / rundir.VERDICTS, rows)
    rundir.write_facts(into, facts)
    is_lost = stored.facts is None and (stored.folder / rundir.RUN).exists()
    no_end = "run.json is malformed: when the run ended, and whether it did, nothing says." if is_lost else ""
    notes = {
        "run": facts.run,
        "judged": datetime.now(UTC).isoformat(timespec="seconds"),
        "changed": [asdict(difference) for difference in changed],
        "lost": lost,
        "no_end": no_end,
    }
    rundir.write_json(into / rundir.CHANGES, notes)
    return changed


def _rejudge(into: Path, stored: StoredRun, claims: Mapping[str, Claim]) -> tuple[list[Row], list[str]]:
    """Judge and write all scenarios; return their rows, and a sentence on each that cannot be judged."""
    results, rows = allure.Results.of(into), list[Row]()
    unreadable = {
        Path(place).name: problem
        for place, problem in stored.problems.items()
        if place.startswith("scenarios/")
    }
    for scenario in stored.scenarios:
        name = scenario.folder.name
        try:
            rejudged = recheck.rejudge(scenario, claims)
        except Unreadable as problem:
            unreadable[name] = problem
            continue
        _write_scenario(into / "scenarios" / name, rejudged)
        results.update(into / "scenarios" / name, rejudged, claims)
        rows += rejudged.rows
    lost = []
    for name, unreadable_file in unreadable.items():
        line = unreadable_file.line.replace(f"{stored.folder}/", "")
        lost.append(f"A scenario cannot be judged again: {line}.")
        results.mark_lost(name, lost[-1])
    return rows, lost


def _write_scenario(folder: Path, rejudged: Rejudged) -> None:
    folder.mkdir()
    scenario = rejudged.scenario
    for name in ("history.jsonl", "configuration.json"):
        files.link(scenario.folder / name, folder / name)
    rundir.write_json(folder / "judgments.json", {**scenario.content, "verdicts": list(rejudged.rows)})
    if rejudged.history is not None:
        title = sections.title(scenario.nodeid)
        timeline.render(rejudged.history, rejudged.judged, folder / "timeline.svg", title)
        timeline.render_rates(rejudged.history, rejudged.judged, folder / "rates.svg")


def reconstruct_facts(run: StoredRun) -> RunFacts:
    """Return the facts of a run that was killed before it wrote them, from its other files.

    `ended` is empty, and so is what nothing shows.
    """
    shard, labs = run.shard, list(_stored_labs(run.folder))
    scenarios = rundir.read_declared(run.folder)
    if scenarios is None:
        scenarios = shard.scenarios if shard else {"": tuple(row["claim"] for row in run.rows)}
    version = shard.kubernetes_version if shard else _common(run.rows, "kubernetes_version")
    return RunFacts(
        run=run.folder.name,
        began=run.began,
        ended="",
        lab=shard.lab if shard else _common(run.rows, "lab"),
        profile=shard.profile if shard else _common(run.rows, "profile"),
        kubernetes_version=labs[0]["kubernetes_version"] if labs else version,
        command="",
        components=labs[0]["components"] if labs else {},
        settings=(),
        quarantined=tuple(sorted({node for lab in labs for node in lab["quarantined"]})),
        selected=tuple(sorted({claim for claims in scenarios.values() for claim in claims})),
        exit_reason=_exit_reason(run.folder),
        shard=shard.to_json() if shard else None,
        overrides=shard.overrides if shard else (),
    )


def _common(rows: Sequence[Row], name: str) -> str:
    """Return what all rows have in this field."""
    return ", ".join(sorted({str(row[name]) for row in rows})) or "unknown"


def _stored_labs(run: Path) -> Iterator[Mapping[str, Json]]:
    """Yield the complete descriptions of the run's labs."""
    for path in files.entries(run / "labs"):
        if path.suffix == ".json":
            with contextlib.suppress(Unreadable):
                lab = rundir.read_json(path)
                if isinstance(lab, dict) and lab.keys() >= {
                    "kubernetes_version",
                    "components",
                    "quarantined",
                }:
                    yield lab


def _exit_reason(run: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return files.read_text(run / rundir.BROKEN_OFF)
    return ""
