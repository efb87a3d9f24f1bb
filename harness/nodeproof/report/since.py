"""Since when a claim deviates, as far as earlier runs in the same kind of lab and the same profile tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.model.problem import Problem
from nodeproof.report import rechecked, rundir
from nodeproof.report.outcome import worst_by_claim
from nodeproof.report.rundir import Row, RunFacts

MOST_RUNS = 50
"""Earlier runs that are looked at."""
Outcomes = Mapping[str, str]
"""What each claim came to in a run: `conforms` or `deviates`; what else it may have come to says nothing."""


@dataclass(frozen=True)
class Since:
    """In which runs in a row a claim deviates, the earliest first, and in which it conformed before that.

    Runs that did not judge the claim are passed over.
    """

    runs: tuple[RunFacts, ...]
    conformed: RunFacts | None = None

    @property
    def is_new(self) -> bool:
        """Whether no run before deviates."""
        return len(self.runs) == 1

    def __str__(self) -> str:
        now = self.runs[-1]
        before = f"it conformed on {_told(self.conformed, now)}" if self.conformed else ""
        if self.is_new:
            return f"since this run: {before or 'no earlier one here judged it'}"
        first = f"since {_told(self.runs[0], now)}, in {len(self.runs)} runs one after the other"
        return f"{first}; before, {before}" if before else f"{first}; no earlier one here judged it"


def deviating(run: Path, facts: RunFacts, rows: Iterable[Row]) -> Mapping[str, Since]:
    """Of each claim that deviates in these rows of a run, since when, by the runs in the folder around it.

    Runs are told apart by kind of lab and profile, not by version: that one deviates with another version is
    what somebody wants to know. Runs that cannot be read, and shards, count for nothing.
    """
    open_claims = {claim for claim, row in worst_by_claim(rows).items() if row["verdict"] == "deviates"}
    chains = {claim: [facts] for claim in open_claims}
    conformed: dict[str, RunFacts] = {}
    for before, outcomes in _earlier(rechecked.recorded(run), facts) if open_claims else ():
        for claim in open_claims & outcomes.keys():
            if outcomes[claim] == "deviates":
                chains[claim].append(before)
            else:
                conformed[claim] = before
        open_claims -= conformed.keys()
        if not open_claims:
            break
    return {
        claim: Since(tuple(reversed(runs)), conformed.get(claim)) for claim, runs in sorted(chains.items())
    }


def _earlier(run: Path, facts: RunFacts) -> Iterator[tuple[RunFacts, Outcomes]]:
    """The runs before, the last one first, each read when it is asked for."""
    found = []
    for folder in {path.parent.resolve() for path in run.parent.glob("*/run.json")} - {run}:
        with contextlib.suppress(Problem, TypeError):
            before = rundir.read_facts(folder)
            alike = (before.lab, before.profile) == (facts.lab, facts.profile)
            if alike and before.shard is None and before.began < facts.began:
                found.append((before.began, before.run, folder, before))
    for _began, _name, folder, before in sorted(found, key=lambda each: each[:2], reverse=True)[:MOST_RUNS]:
        with contextlib.suppress(Problem):
            yield before, _outcomes(folder)


def _outcomes(run: Path) -> Outcomes:
    worst = worst_by_claim(rundir.read_verdicts(run))
    return {claim: row["verdict"] for claim, row in worst.items() if row["verdict"] != "unproven"}


def _told(run: RunFacts, now: RunFacts) -> str:
    """When it began, to the minute in UTC, and its version where that is another."""
    version = (
        f", Kubernetes {run.kubernetes_version}" if run.kubernetes_version != now.kubernetes_version else ""
    )
    return f"{run.began[:16].replace('T', ' ')} UTC (run {run.run}{version})"
