"""A stored run, judged again, and all that a reader opens made anew of it: in a folder of its own inside the
run, laid out like one. What the run itself said stays as it was recorded.
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
from nodeproof.report import (
    behaviours,
    digest,
    facts_left,
    files,
    junit,
    rates,
    rebuilt_allure,
    recheck,
    rechecked,
    rundir,
    shards,
    timeline,
)
from nodeproof.report.digest import Digest
from nodeproof.report.links import link
from nodeproof.report.recheck import Again, Difference
from nodeproof.report.rundir import Row, RunFacts

Json = Any
_AS_RECORDED = (
    rundir.TIMES,
    rundir.DECLARED,
    rundir.FIELDS,
    shards.FILE,
    "plan.json",
    rundir.TOO_LOADED,
)
_MADE_ANEW = frozenset({"environment.properties"})
"""Of Allure's results: what a site writes, into the same file."""


@dataclass(frozen=True)
class Rebuilt:
    """A run that was judged again: its folder, what it was, its rows, and what of them changed."""

    folder: Path
    facts: RunFacts
    rows: tuple[Row, ...]
    changed: tuple[Difference, ...]
    missing: tuple[str, ...]
    """What of the run is not there, a sentence each."""


def rebuild(run: Path, claims: Mapping[str, Claim]) -> Rebuilt:
    """Judge all stored scenarios again and write `<run>/recheck`: verdicts, pictures, Allure's results and
    JUnit XML; the site is made of it by others. A folder that is there is replaced once all of it is made.

    A scenario of which a file is missing or malformed is left out, and named in what is missing.

    Raises Problem on a claim or a constant that the catalogue lacks, where there is no run, and where the
    folder cannot be written.
    """
    told = digest.read(rechecked.recorded(run))
    folder, unfinished = told.run / rechecked.FOLDER, told.run / f".{rechecked.FOLDER}"
    try:
        files.remove(unfinished)
        for part in ("scenarios", "allure-results"):
            (unfinished / part).mkdir(parents=True)
        made = _fill(unfinished, told, claims)
        files.remove(folder)
        unfinished.rename(folder)
    except OSError as error:
        said = "the run that was judged again cannot be written"
        next_step = "make the run's folder one that you may write to, with nothing else in the way"
        raise Problem(said, str(folder), next_step, str(error)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    junit.write(folder, claims, folder / junit.FILE)
    facts, rows, changed = made
    return Rebuilt(folder, facts, rows, changed, digest.read(folder).missing)


def _fill(
    into: Path, told: Digest, claims: Mapping[str, Claim]
) -> tuple[RunFacts, tuple[Row, ...], tuple[Difference, ...]]:
    facts = facts_left.read(told)
    for name in _AS_RECORDED:
        link(told.run / name, into / name)
    link(told.run / "allure-results", into / "allure-results", _MADE_ANEW)
    lost: list[str] = []
    rows = recheck.keep(told.run, _scenarios(into, told.run, claims, lost))
    changed = tuple(recheck.differences(told.rows, rows))
    rundir.write_json(into / "verdicts.json", rows)
    rundir.write_facts(into, facts)
    rundir.write_json(into / rechecked.FILE, _said(told, facts, changed, lost))
    return facts, tuple(rows), changed


def _scenarios(into: Path, run: Path, claims: Mapping[str, Claim], lost: list[str]) -> Iterator[Row]:
    """The rows of all scenarios, each written with its pictures before the next one is read."""
    results = rebuilt_allure.Results.of(into / "allure-results")
    for path in _judged(run):
        try:
            scenario = rundir.read_scenario(path)
            told = recheck.recorded(scenario)
        except Problem as problem:
            lost.append(f"A scenario cannot be judged again: {problem.line.replace(f'{run}/', '')}.")
            results.lose(path.name, lost[-1])
            continue
        again = recheck.judged_from(told, scenario, claims)
        folder = into / "scenarios" / path.name
        _scenario(folder, again)
        results.tell(folder, again, claims)
        yield from again.rows


def _judged(run: Path) -> Sequence[Path]:
    """The folders of the scenarios that were judged, by node id; those that do not tell it come first."""

    def nodeid(folder: Path) -> str:
        with contextlib.suppress(Problem):
            return rundir.read_scenario(folder).nodeid
        return ""

    if not (run / "scenarios").is_dir():
        raise Problem("nothing is left of this run's recordings", str(run), "name a run that has `scenarios`")
    return sorted(rundir.judged_folders(run), key=nodeid)


def _scenario(folder: Path, again: Again) -> None:
    recorded = again.scenario.folder
    for name in ("history.jsonl", "configuration.json"):
        link(recorded / name, folder / name)
    folder.mkdir(exist_ok=True)
    stored = rundir.read_json(recorded / "judgments.json")
    rundir.write_json(folder / "judgments.json", {**stored, "verdicts": list(again.rows)})
    if again.history is not None:
        judged = list(again.judged)
        title = behaviours.title(again.scenario.nodeid)
        timeline.render(again.history, judged, folder / "timeline.svg", title)
        rates.render(again.history, judged, folder / "rates.svg")


def _said(
    told: Digest, facts: RunFacts, changed: Sequence[Difference], lost: Sequence[str]
) -> Mapping[str, Json]:
    return {
        "run": facts.run,
        "judged": datetime.now(UTC).isoformat(timespec="seconds"),
        "changed": [asdict(each) for each in changed],
        "lost": lost,
        "no_end": facts_left.no_end(told),
    }
