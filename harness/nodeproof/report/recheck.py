"""A stored run judged again with today's code, without a cluster: `<run>/recheck`, a run's folder itself.

Recorded files are linked, and the run itself stays as it was recorded.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.checks.judge import judge
from nodeproof.model.claim import Claim
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import allure, digest, plain, rundir, tables, timeline
from nodeproof.report.digest import Digest, verdict_of
from nodeproof.report.rundir import Row, RunFacts, Scenario, StoredRun, Unreadable

FILE = "verdicts.recheck.json"
ABSENT = "absent"
_LAB_FIELDS = {"kubernetes_version", "components", "quarantined"}
_LINKED = (
    *(rundir.TIMES, rundir.DECLARED, rundir.FIELDS, rundir.SHARD, rundir.PLAN, rundir.TOO_LOADED),
    allure.RESULTS,
)


@dataclass(frozen=True)
class Difference:
    """A changed verdict; a label is `absent` if only the other side has the judgment."""

    scenario: str
    claim: str
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        return f"{self.claim} in {self.scenario}: {self.before} -> {self.after}: {self.reason}"


@dataclass(frozen=True)
class Rejudged:
    """A stored scenario with today's verdicts and rows; rows not judged from a recording are as stored."""

    scenario: Scenario
    judged: tuple[tuple[Judgment, Verdict], ...]
    rows: tuple[Row, ...]
    history: History | None
    """None if nothing was judged from it."""

    @property
    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Claim and verdict of all rows."""
        stored = self.rows[len(self.judged) :]
        judged = [(judgment.claim, verdict) for judgment, verdict in self.judged]
        return judged + [(row["claim"], verdict_of(row)) for row in stored]

    @property
    def is_changed(self) -> bool:
        """Whether a verdict or its reason is not the stored one."""
        return [*map(verdict_of, self.scenario.rows)] != [*map(verdict_of, self.rows)]


@dataclass(frozen=True)
class Rechecked:
    """A run that was judged again, with its changed verdicts."""

    digest: Digest
    facts: RunFacts
    changed: tuple[Difference, ...]


def recheck(run: Path, claims: Mapping[str, Claim]) -> Rechecked:
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
    failed = "the run that was judged again cannot be written"
    try:
        with rundir.explained(failed, folder, "check permissions and free space of the run's folder"):
            rundir.remove(partial)
            changed = _write(partial, stored, facts, claims)
            rundir.remove(folder)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    rechecked = digest.read(folder, claims)
    rundir.write_report(folder / tables.JUNIT_FILE, tables.junit_xml(rechecked))
    return Rechecked(rechecked, facts, changed)


def _write(
    into: Path, stored: StoredRun, facts: RunFacts, claims: Mapping[str, Claim]
) -> tuple[Difference, ...]:
    for part in ("scenarios", allure.RESULTS):
        (into / part).mkdir(parents=True)
    for name in _LINKED:
        rundir.link(stored.folder / name, into / name)
    rows, lost = _rejudge(into, stored, claims)
    changed = tuple(differences(filter(digest.is_row, stored.rows), rows))
    rundir.write_json(stored.folder / FILE, rows)
    rundir.write_json(into / rundir.VERDICTS, rows)
    rundir.write_facts(into, facts)
    is_lost = stored.facts is None and (stored.folder / rundir.RUN).exists()
    unknown_end = "run.json is malformed: when the run ended, and whether it did, nothing says."
    notes = {
        "run": facts.run,
        "judged": datetime.now(UTC).isoformat(timespec="seconds"),
        "changed": [asdict(difference) for difference in changed],
        "lost": lost,
        "no_end": unknown_end if is_lost else "",
    }
    rundir.write_json(into / rundir.CHANGES, notes)
    return changed


def _rejudge(into: Path, stored: StoredRun, claims: Mapping[str, Claim]) -> tuple[list[Row], list[str]]:
    """Judge and write all scenarios; return their rows, and a sentence on each that cannot be judged."""
    last, rows = allure.last_results(into / allure.RESULTS), list[Row]()
    unreadable = {Path(place).name: problem for place, problem in stored.problems.items() if "/" in place}
    for scenario in stored.scenarios:
        try:
            rejudged = rejudge(scenario, claims)
        except Unreadable as problem:
            unreadable[scenario.folder.name] = problem
            continue
        rows += rejudged.rows
        folder = _write_scenario(into, rejudged)
        _write_result(folder, rejudged, last.get(scenario.nodeid), claims)
    lost = {
        name: f"A scenario cannot be judged again: {problem.line.replace(f'{stored.folder}/', '')}."
        for name, problem in unreadable.items()
    }
    for nodeid, (path, result) in last.items():
        if reason := lost.get(rundir.slug(nodeid)):
            allure.rewrite(path, allure.with_status(result, "broken", reason))
    return rows, list(lost.values())


def _write_scenario(into: Path, rejudged: Rejudged) -> Path:
    """Write the folder of a scenario: its recording, and all that follows from today's verdicts."""
    scenario = rejudged.scenario
    folder = into / "scenarios" / scenario.folder.name
    folder.mkdir()
    for name in ("history.jsonl", "configuration.json"):
        rundir.link(scenario.folder / name, folder / name)
    rundir.write_json(folder / "judgments.json", {**scenario.content, "verdicts": list(rejudged.rows)})
    if rejudged.history is not None:
        title = plain.title(scenario.nodeid)
        timeline.render(rejudged.history, rejudged.judged, folder / "timeline.svg", title)
        timeline.render_rates(rejudged.history, rejudged.judged, folder / "rates.svg")
    return folder


def _write_result(
    folder: Path, rejudged: Rejudged, last: tuple[Path, Json] | None, claims: Mapping[str, Claim]
) -> None:
    """Write the new verdicts into the result of the scenario's last try, or into a first result of it."""
    scenario, verdicts = rejudged.scenario, rejudged.verdicts
    status = allure.status_of([verdict for _claim, verdict in verdicts])
    versions = sorted({str(row["kubernetes_version"]) for row in rejudged.rows})
    failure = digest.failure_message(verdicts, claims, ", ".join(versions))
    message = "" if status == "passed" else failure
    if last is None:
        at_s = (scenario.folder / "judgments.json").stat().st_mtime
        judged = [claim for claim, _verdict in verdicts]
        result = allure.new_result(scenario.nodeid, judged, claims, status, message, at_s)
        path = allure.path_of(folder.parents[1], result)
    elif rejudged.judged:
        path, result = last
        # A scenario that failed for another reason than its verdicts still failed.
        old_status = allure.status_of([*map(verdict_of, scenario.rows)])
        failed_otherwise = result.get("status") != old_status and status in ("passed", "skipped")
        if rejudged.is_changed and not failed_otherwise:
            result = allure.with_status(result, status, message)
    else:
        return
    allure.rewrite(path, result, allure.attachments(folder, verdicts))


def reconstruct_facts(run: StoredRun) -> RunFacts:
    """Return the facts of a run that was killed before it wrote them, from its other files.

    `ended` is empty, and so is what nothing shows.
    """
    shard, labs = run.shard, list(_stored_labs(run.folder))
    scenarios = rundir.read_declared(run.folder)
    if scenarios is None:
        scenarios = shard.scenarios if shard else {"": tuple(row["claim"] for row in run.rows)}
    version = shard.kubernetes_version if shard else digest.common(run.rows, "kubernetes_version")
    return RunFacts(
        run=run.folder.name,
        began=run.began,
        ended="",
        lab=shard.lab if shard else digest.common(run.rows, "lab"),
        profile=shard.profile if shard else digest.common(run.rows, "profile"),
        kubernetes_version=labs[0]["kubernetes_version"] if labs else version,
        command="",
        components=labs[0]["components"] if labs else {},
        settings=(),
        quarantined=tuple(sorted({node for lab in labs for node in lab["quarantined"]})),
        selected=tuple(sorted({claim for claims in scenarios.values() for claim in claims})),
        exit_reason=rundir.read_part(run.folder, rundir.BROKEN_OFF),
        shard=shard.to_json() if shard else None,
        overrides=shard.overrides if shard else (),
    )


def _stored_labs(run: Path) -> Iterator[Mapping[str, Json]]:
    """Yield the complete descriptions of the run's labs."""
    for path in rundir.entries(run / "labs"):
        if path.suffix == ".json":
            with contextlib.suppress(Unreadable):
                lab = rundir.read_json(path)
                if isinstance(lab, dict) and lab.keys() >= _LAB_FIELDS:
                    yield lab


def rejudge(scenario: Scenario, claims: Mapping[str, Claim]) -> Rejudged:
    """Judge a stored scenario again. A check that today's code cannot evaluate is `check-failed`.

    Raises:
        Unreadable: The recording or the configuration is missing or malformed.
        Problem: The catalogue lacks a claim or a constant.
    """
    if not scenario.judgments:
        return Rejudged(scenario, (), scenario.rows, None)
    history, configuration = scenario.history(), scenario.configuration()
    judged, rows = [], []
    for judgment in scenario.judgments:
        if judgment.claim not in claims:
            where = str(scenario.folder / "judgments.json")
            next_step = "name its folder with --claims, or use the version of nodeproof that wrote the run"
            raise Problem(f"the catalogue has no claim {judgment.claim}", where, next_step)
        claim = claims[judgment.claim]
        verdict = judge(claim, judgment.check, history, configuration)
        judged.append((judgment, verdict))
        rows.append(rundir.row(claim, scenario.nodeid, verdict, configuration))
    return Rejudged(scenario, tuple(judged), (*rows, *scenario.rows[len(judged) :]), history)


def differences(old: Iterable[Row], new: Iterable[Row]) -> list[Difference]:
    """Return the judgments whose outcome or code differs, paired by scenario, claim and order."""
    before, after = _by_judgment(old), _by_judgment(new)
    changed = []
    for place, last in {**before, **after}.items():
        was, now = (verdict_of(rows[place]).label if place in rows else ABSENT for rows in (before, after))
        if was != now:
            changed.append(Difference(last["scenario"], last["claim"], was, now, last["reason"]))
    return changed


def _by_judgment(rows: Iterable[Row]) -> Mapping[tuple[str, str, int], Row]:
    """Return rows by scenario, claim and number, as a scenario may judge a claim several times."""
    numbers, by_judgment = Counter[tuple[str, str]](), {}
    for row in rows:
        judged = (row["scenario"], row["claim"])
        by_judgment[(*judged, numbers[judged])] = row
        numbers[judged] += 1
    return by_judgment
