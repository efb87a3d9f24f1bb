"""Judge a stored run again with today's code: no cluster, no lab, only the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.checks.judge import judge
from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Configuration
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import rundir
from nodeproof.report.outcome import verdict_of
from nodeproof.report.rundir import Row, Scenario

FILE = "verdicts.recheck.json"
ABSENT = "absent"
Recorded = tuple[History, Configuration]


@dataclass(frozen=True)
class Difference:
    """One judgment whose verdict is not what it was; a label is `absent` where only the other side has it."""

    scenario: str
    claim: str
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        return f"{self.claim} in {self.scenario}: {self.before} -> {self.after}: {self.reason}"


@dataclass(frozen=True)
class Again:
    """A stored scenario with what it comes to today: its judgments' verdicts, and the rows, of which those
    that were never judged from a recording (skips) are as they were.
    """

    scenario: Scenario
    judged: tuple[tuple[Judgment, Verdict], ...]
    rows: tuple[Row, ...]
    history: History | None
    """None where nothing was judged from it."""

    @property
    def verdicts(self) -> list[tuple[str, Verdict]]:
        """Claim and verdict of all rows."""
        carried = self.rows[len(self.judged) :]
        judged = [(judgment.claim, verdict) for judgment, verdict in self.judged]
        return judged + [(row["claim"], verdict_of(row)) for row in carried]

    @property
    def is_changed(self) -> bool:
        """Whether any verdict is another than the stored one, or says something else."""
        told = [(row["claim"], verdict_of(row)) for row in self.scenario.rows]
        return told != [(row["claim"], verdict_of(row)) for row in self.rows]


def recheck(run: Path, claims: Mapping[str, Claim]) -> list[Row]:
    """Judge all stored scenarios again and write the rows to `verdicts.recheck.json`.

    Rows that were never judged from a recording (skips) are carried over. A check that today's code cannot
    evaluate is `check-failed`. Raises Problem on a missing or malformed file, and on a claim that the
    catalogue does not have.
    """
    return keep(run, (row for scenario in rundir.read_scenarios(run) for row in again(scenario, claims).rows))


def keep(run: Path, rows: Iterable[Row]) -> list[Row]:
    """Write rows to `verdicts.recheck.json` and give them."""
    kept = list(rows)
    rundir.write_json(run / FILE, kept)
    return kept


def rejudge(scenario: Scenario, claims: Mapping[str, Claim]) -> list[tuple[Judgment, Verdict]]:
    """Judge one stored scenario again. Raises Problem like `recheck`."""
    return list(again(scenario, claims).judged)


def recorded(scenario: Scenario) -> Recorded | None:
    """What a stored scenario is judged from; None where nothing is. Raises Problem on a missing or malformed
    file.
    """
    return (scenario.history(), scenario.configuration()) if scenario.judgments else None


def again(scenario: Scenario, claims: Mapping[str, Claim]) -> Again:
    """Judge one stored scenario again, with its rows. Raises Problem like `recheck`."""
    return judged_from(recorded(scenario), scenario, claims)


def judged_from(told: Recorded | None, scenario: Scenario, claims: Mapping[str, Claim]) -> Again:
    """The same from what was read. Raises Problem on a claim, or a constant, that the catalogue lacks."""
    if told is None:
        return Again(scenario, (), scenario.rows, None)
    history, configuration = told
    judged = tuple(
        (judgment, _judge(scenario, judgment, claims, history, configuration))
        for judgment in scenario.judgments
    )
    rows = tuple(
        rundir.row(claims[judgment.claim], scenario.nodeid, verdict, configuration)
        for judgment, verdict in judged
    )
    return Again(scenario, judged, rows + scenario.rows[len(judged) :], history)


def differences(old: Iterable[Row], new: Iterable[Row]) -> list[Difference]:
    """The judgments whose outcome or code differs, paired by scenario, claim and order."""
    before, after = _numbered(old), _numbered(new)
    found = []
    for key in {**before, **after}:
        was, now = before.get(key), after.get(key)
        labels = _label(was), _label(now)
        if labels[0] != labels[1]:
            reason = str((now or was or {})["reason"])
            found.append(Difference(key[0], key[1], labels[0], labels[1], reason))
    return found


def _judge(
    scenario: Scenario,
    judgment: Judgment,
    claims: Mapping[str, Claim],
    history: History,
    configuration: Configuration,
) -> Verdict:
    where = str(scenario.folder / "judgments.json")
    claim = claims.get(judgment.claim)
    if claim is None:
        next_step = "check the run with the version of nodeproof that wrote it"
        raise Problem(f"the catalogue has no claim {judgment.claim}", where, next_step)
    return judge(claim, judgment.check, history, configuration)


def _numbered(rows: Iterable[Row]) -> Mapping[tuple[str, str, int], Row]:
    numbered: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        nth = 0
        while (row["scenario"], row["claim"], nth) in numbered:
            nth += 1
        numbered[row["scenario"], row["claim"], nth] = row
    return numbered


def _label(row: Row | None) -> str:
    return verdict_of(row).label if row else ABSENT
