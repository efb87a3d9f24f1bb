"""A run as its reports read it: what of it is there, claim by claim, in the order of the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from nodeproof.model.claim import CONTRARY, MOVED, Claim
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Verdict
from nodeproof.report import declared, rechecked, rundir
from nodeproof.report.outcome import verdict_of, worst_by_claim
from nodeproof.report.plain import counted
from nodeproof.report.rundir import Row, RunFacts
from nodeproof.report.sections import Section, sections

Json = Any
State = Literal["deviates", "open", "skipped", "conforms", "silent"]
"""What a run says of a claim. `open` should have been proven and was not, `skipped` cannot be proven by this
run, `silent` is not judged.
"""
SIGNS: Mapping[State, str] = {"deviates": "✗", "open": "?", "skipped": "○", "conforms": "✓", "silent": "·"}
"""Of each state, so that none is told by its colour alone."""


@dataclass(frozen=True)
class Load:
    """How loaded the host was: slack of each scenario and its limit (s), and what had to be run again."""

    slacks_s: tuple[float, ...]
    limit_s: float
    run_again: int

    def __str__(self) -> str:
        told = "slack was not written down"
        if self.slacks_s:
            middle, most = median(self.slacks_s), max(self.slacks_s)
            told = f"slack {middle:.2f} s in the median, {most:.2f} s at most (limit {self.limit_s:g} s)"
        again = f"; run again because of it: {self.run_again}" if self.run_again else ""
        return f"{told}{again}"


@dataclass(frozen=True)
class Entry:
    """A claim and what a run says of it: its rows, the one that decides it first.

    `claim` is None where the catalogue does not have it; `silence` says why there are no rows.
    """

    id: str
    claim: Claim | None
    rows: tuple[Row, ...]
    silence: str = ""
    is_missing: bool = False
    """Whether the run was to judge it, and did not."""

    @property
    def verdict(self) -> Verdict | None:
        """What decides it."""
        return verdict_of(self.rows[0]) if self.rows else None

    @property
    def state(self) -> State:
        """What the run says of it."""
        if self.verdict is None:
            return "open" if self.is_missing else "silent"
        if self.verdict.outcome == "unproven":
            return "skipped" if self.verdict.is_skip else "open"
        return self.verdict.outcome

    @property
    def label(self) -> str:
        """The verdict in words."""
        if self.verdict is None:
            return "no verdict" if self.is_missing else "not judged"
        return self.verdict.label

    @property
    def area(self) -> str:
        """The claim's area, which its id begins with."""
        return self.claim.area if self.claim else self.id.partition(".")[0]

    @property
    def statement(self) -> str:
        """The claim in our own words."""
        return self.claim.statement if self.claim else f"{self.id} (not in this catalogue)"

    @property
    def differs(self) -> bool:
        """Whether page and code differ in a way that is known, and not because the cluster deviates."""
        return bool(self.rows) and self.state != "deviates" and self.rows[0]["page"]["agreement"] == "differs"

    @property
    def drift(self) -> str:
        """What is known of where page and code differ."""
        return self.rows[0]["page"]["drift"] if self.rows else self.claim.drift if self.claim else ""

    @property
    def difference(self) -> str:
        """What the page says, and what the version has where that is a constant; empty where none differs."""
        page = self.rows[0]["page"] if self.differs else {}
        if not page.get("says"):
            return ""
        if page["cluster"]:
            return f"the page says {page['says']}, {self.rows[0]['kubernetes_version']} has {page['cluster']}"
        return f"the page says that {_remark(page['says'])[1]}"

    def said(self) -> list[tuple[str, str]]:
        """Which versions of the page say it (`v1.18, v1.24 say so`), and the remark where one says it
        otherwise.
        """
        by_remark: dict[str | bool, list[str]] = {}
        for version in self.claim.page_versions if self.claim else ():
            by_remark.setdefault(self.claim.page[version] if self.claim else "", []).append(version)
        return [_heading(versions, said) for said, versions in by_remark.items()]


@dataclass(frozen=True)
class Digest:
    """What of a run is there. `missing` says, a sentence each, what is not."""

    run: Path
    facts: RunFacts | None
    rows: tuple[Row, ...]
    load: Load
    missing: tuple[str, ...]
    is_judged_again: bool = False
    """Whether the rows are not those that the run ended with."""

    @property
    def is_whole(self) -> bool:
        """Whether it ran to its end and everything can be read."""
        return not self.missing

    @property
    def kubernetes_version(self) -> str:
        """The version, or all that its rows name."""
        return self._told("kubernetes_version")

    @property
    def lab(self) -> str:
        """The kind of lab."""
        return self._told("lab")

    @property
    def profile(self) -> str:
        """The profile of times."""
        return self._told("profile")

    @property
    def selected(self) -> frozenset[str]:
        """The claims that it was to judge, as far as is known."""
        return frozenset(self.facts.selected) if self.facts else frozenset()

    @cached_property
    def by_claim(self) -> Mapping[str, tuple[Row, ...]]:
        """The rows of each claim, the one that decides it first."""
        found: dict[str, list[Row]] = {claim: [row] for claim, row in worst_by_claim(self.rows).items()}
        for row in self.rows:
            if row is not found[row["claim"]][0]:
                found[row["claim"]].append(row)
        return {claim: tuple(rows) for claim, rows in found.items()}

    def _told(self, name: str) -> str:
        if self.facts:
            return str(getattr(self.facts, name))
        return ", ".join(sorted({row[name] for row in self.rows})) or "unknown"


def read(run: Path) -> Digest:
    """Read a run, whatever of it is there.

    Raises Problem where nothing of a run is, or where a newer version wrote it.
    """
    run = run.resolve()
    parts = ("run.json", "verdicts.json", "scenarios")
    if not any((run / part).exists() for part in parts):
        raise Problem("this is no run's folder", str(run), "name a folder below reports/out")
    missing: list[str] = []
    rows, facts = _rows(run, missing), _facts(run, missing)
    if not rows:
        missing.append("No scenario left a verdict.")
    missing += [*declared.said(declared.without_verdict(run, rows)), *rechecked.lost(run)]
    slacks = _slacks(run)
    limit = max((limit for _slack, limit in slacks), default=0.0)
    load = Load(tuple(slack for slack, _limit in slacks), limit, rundir.run_again(run))
    return Digest(run, facts, rows, load, tuple(missing), rechecked.is_one(run))


def entries(digest: Digest, claims: Mapping[str, Claim]) -> list[Entry]:
    """Every claim of the catalogue, and those that only the run has."""
    return [
        _entry(name, claims.get(name), digest)
        for name in dict.fromkeys([*claims, *digest.by_claim, *sorted(digest.selected)])
    ]


def by_section(found: Iterable[Entry]) -> list[tuple[Section, list[Entry]]]:
    """Claims under the headings of the page, in its order; headings without any are there, too."""
    found = list(found)
    return [
        (section, [entry for entry in found if entry.area in section.areas])
        for section in sections(entry.area for entry in found)
    ]


def measured_of(row: Row) -> str:
    """The measured value with its unit; empty where nothing was."""
    told = row["measured"]
    return str(Measured(told["value"], told["unit"])) if told else ""


_REMARKS: Mapping[str, str] = {
    CONTRARY: "say{s} otherwise",
    "variant: ": "word{s} it otherwise",
    MOVED: "ha{ve} it elsewhere",
    "true (": "say{s} so",
}
"""How a remark of the catalogue on a version of the page begins, and what that is in words."""


def _heading(versions: Sequence[str], said: str | bool) -> tuple[str, str]:
    kind, remark = ("say{s} so", "") if said is True else _remark(str(said))
    verb = kind.format(**({"s": "s", "ve": "s"} if len(versions) == 1 else {"s": "", "ve": "ve"}))
    return f"{', '.join(versions)} {verb}", remark


def _remark(said: str) -> tuple[str, str]:
    """What kind of remark it is, and the remark itself."""
    for begin, kind in _REMARKS.items():
        if said.startswith(begin):
            remark = said.removeprefix(begin)
            return kind, remark.removesuffix(")") if begin.endswith("(") else remark
    return "say{s} of it", said


def _entry(name: str, claim: Claim | None, digest: Digest) -> Entry:
    rows = digest.by_claim.get(name, ())
    if rows:
        return Entry(name, claim, rows)
    if name in digest.selected:
        return Entry(name, claim, (), "It was to be judged, and the run has no verdict on it.", True)
    if claim is not None and claim.status == "planned":
        return Entry(name, claim, (), "No scenario judges it yet.")
    if claim is not None and claim.status != "judged":
        return Entry(name, claim, (), f"{claim.status}: {claim.reason}")
    return Entry(name, claim, (), "Not part of this run.")


def _facts(run: Path, missing: list[str]) -> RunFacts | None:
    try:
        facts = rundir.read_facts(run)
    except rundir.NewerFormat:
        raise
    except Problem as problem:
        missing.append(f"The run did not come to its end, or lost what it was: {_said(problem, run)}.")
        return None
    if not are_whole(facts):
        missing.append("run.json is malformed, and nothing of it is shown.")
        return None
    if facts.exit_reason:
        # What follows the first line are lines of logs.
        missing.append(f"The run broke off: {facts.exit_reason.partition(chr(10))[0]}")
    elif not facts.ended:
        missing.append(rechecked.no_end(run) or "The run has no end: it is under way, or was killed.")
    return facts


def are_whole(facts: RunFacts) -> bool:
    """Whether they are what their types say; a file that somebody edited may not."""
    texts = (facts.run, facts.began, facts.ended, facts.lab, facts.profile, facts.kubernetes_version)
    lists = (*facts.settings, *facts.quarantined, *facts.selected)
    told = (*texts, *lists, facts.command, facts.exit_reason)
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return (
            facts.duration_s >= 0
            and all(isinstance(each, str) for each in told)
            and all(isinstance(about, dict) for about in facts.components.values())
        )
    return False


def _rows(run: Path, missing: list[str]) -> tuple[Row, ...]:
    """The merged rows; where they cannot be read, those that each scenario left."""
    try:
        rows = rundir.read_verdicts(run)
    except Problem as problem:
        missing.append(f"Verdicts are those that scenarios left one by one: {_said(problem, run)}.")
        rows = _rows_left(run, missing)
    whole = tuple(row for row in rows if _is_whole(row))
    if len(whole) < len(rows):
        left_out = len(rows) - len(whole)
        missing.append(f"{counted(left_out, 'verdict is', 'verdicts are')} malformed and left out.")
    return whole


def _is_whole(row: Row) -> bool:
    """Whether it has what is shown of it; a file that somebody edited may not."""
    names = ("claim", "reason", "scenario", "last_state", "lab", "profile", "kubernetes_version")
    parts: list[tuple[Json, Mapping[str, type | tuple[type, ...]]]] = [
        (row, dict.fromkeys(names, str)),
        (row["page"], dict.fromkeys(("agreement", "says", "cluster", "drift"), str)),
    ]
    if row["window"] is not None:
        numbers: Mapping[str, Json] = dict.fromkeys(("low_s", "high_s"), (int, float))
        parts.append((row["window"], {**numbers, "arithmetic": str}))
    if row["measured"] is not None:
        parts.append((row["measured"], {"value": (int, float, str), "unit": str}))
    return all(
        isinstance(part, dict) and all(isinstance(part.get(name), kind) for name, kind in kinds.items())
        for part, kinds in parts
    )


def _rows_left(run: Path, missing: list[str]) -> tuple[Row, ...]:
    """The rows that each scenario left, by node id."""
    found: list[rundir.Scenario] = []
    for folder in rundir.judged_folders(run):
        try:
            found.append(rundir.read_scenario(folder))
        except Problem as problem:
            missing.append(f"A scenario's verdicts are lost: {_said(problem, run)}.")
    return tuple(row for scenario in sorted(found, key=lambda each: each.nodeid) for row in scenario.rows)


def _slacks(run: Path) -> list[tuple[float, float]]:
    """The slack of each scenario and its limit (s), where they were written down."""
    found = []
    for folder in rundir.judged_folders(run):
        # Runs of earlier versions do not tell it.
        with contextlib.suppress(Problem, KeyError, TypeError, ValueError):
            told = rundir.read_json(folder / "judgments.json")["slack"]
            found.append((float(told["s"]), float(told["limit_s"])))
    return found


def _said(problem: Problem, run: Path) -> str:
    """What went wrong with a file of the run; where the run lies is nobody's business."""
    return problem.line.replace(f"{run}/", "")
