"""Judge stored scenarios again with today's code: no cluster, no lab, only a run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.checks.judge import judge
from nodeproof.model.claim import Claim
from nodeproof.model.history import History
from nodeproof.model.judgment import Judgment
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Verdict
from nodeproof.report import rundir
from nodeproof.report.digest import verdict_of
from nodeproof.report.rundir import Row, Scenario

FILE = "verdicts.recheck.json"
ABSENT = "absent"


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
        before, after = (
            [(row["claim"], verdict_of(row)) for row in rows] for rows in (self.scenario.rows, self.rows)
        )
        return before != after


def recheck(run: Path, claims: Mapping[str, Claim]) -> list[Row]:
    """Judge all stored scenarios again; return their rows, also written to `verdicts.recheck.json`.

    Raises:
        Problem: A file is missing or malformed, or the catalogue lacks a claim.
    """
    rows = [row for scenario in rundir.read_scenarios(run) for row in rejudge(scenario, claims).rows]
    rundir.write_json(run / FILE, rows)
    return rows


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
            next_step = "check the run with the version of nodeproof that wrote it"
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
    for scenario, claim, number in {**before, **after}:
        was, now = (rows.get((scenario, claim, number)) for rows in (before, after))
        if _label(was) != _label(now):
            reason = str((now or was or {})["reason"])
            changed.append(Difference(scenario, claim, _label(was), _label(now), reason))
    return changed


def _label(row: Row | None) -> str:
    return verdict_of(row).label if row else ABSENT


def _by_judgment(rows: Iterable[Row]) -> Mapping[tuple[str, str, int], Row]:
    """Return rows by scenario, claim and number, as a scenario may judge a claim several times."""
    numbered: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        number = 0
        while (row["scenario"], row["claim"], number) in numbered:
            number += 1
        numbered[row["scenario"], row["claim"], number] = row
    return numbered
