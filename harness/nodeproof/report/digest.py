"""A run as its reports read it: verdicts by claim in the order of the page, exit code, missing parts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from nodeproof.model.claim import CONTRARY, MOVED, Claim
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Outcome, Verdict
from nodeproof.report import recovery, rundir
from nodeproof.report.plain import Section, counted, duration, sections
from nodeproof.report.recovery import Cell
from nodeproof.report.rundir import Row, RunFacts, StoredRun

State = Literal["deviates", "open", "known", "skipped", "conforms", "silent"]
"""A claim's state in a run: `open` should have been proven and was not, `known` deviates as reported,
`skipped` cannot be proven by this run, `silent` is not judged.
"""
SIGNS: Mapping[State, str] = {
    "deviates": "✗",
    "open": "?",
    "known": "≠",
    "skipped": "○",
    "conforms": "✓",
    "silent": "·",
}
"""A sign for each state, so that colour is not the only difference."""
LABELS: Mapping[State, str] = {
    "deviates": "deviate",
    "open": "should have been proven",
    "known": "known and reported",
    "skipped": "cannot be proven here",
    "conforms": "conform",
    "silent": "not judged",
}
"""States of claims, as predicates of several claims."""

MEANINGS: Mapping[str, str] = {
    "not-applicable": "the claim does not hold for this Kubernetes version",
    "lab-lacks": "this lab does not have what the claim needs",
    "scaled": "the profile changes the value in question, or the window would also admit its half or double",
    "settings-unknown": "the setting that decides the claim cannot be read from this cluster",
    "not-met": "nothing occurred that the invariant of a storm is about",
    "aborted": "a condition of the cluster's owner ended the fault before its time",
    "not-injected": "no probe confirmed the fault, it was refused, ended too early, or cut off nothing",
    "no-anchor": "the event from which the window is counted did not occur",
    "gap": "a watch had a gap at the relevant time, or nothing proves that it had none",
    "component-died": "a component ended that no fault was meant to end",
    "host-too-loaded": "the host was too busy to measure times precisely enough",
    "check-failed": "the check itself could not be evaluated",
}
"""Meanings of the codes of unproven claims."""
EVIDENCE = ("timeline.svg", "rates.svg", "timeline.png", "rates.png", "history.jsonl")
"""Files of a scenario that pages link to; runs of earlier versions have bitmaps."""
_NO_EVENT = "none"
"""The measured value if an event rightly did not occur."""
CONFORMS, DEVIATES, ABORTED, UNPROVEN = 0, 1, 2, 3
MAX_EARLIER_RUNS = 50
"""Earlier runs that are searched for the first deviation of a claim."""
_CLAIM = "--claim"


def verdict_of(row: Row) -> Verdict:
    """Return a row's outcome, code and reason; its window and measured value stay in the row."""
    return Verdict(
        row["verdict"],
        row["code"] or "",
        row["reason"],
        last_state=row["last_state"],
        reported=row.get("reported", ""),
        kubelet_version=row.get("kubelet_version", ""),
    )


def state_of(row: Row) -> State:
    """Return the state that a row alone gives its claim."""
    verdict = verdict_of(row)
    if verdict.outcome == "unproven":
        return "skipped" if verdict.is_skip else "open"
    return "known" if verdict.is_known else verdict.outcome


def measured_of(row: Row) -> str:
    """Return the measured value with its unit, or an empty text."""
    measured = row["measured"]
    return str(Measured(measured["value"], measured["unit"])) if measured else ""


def measured_beside(row: Row) -> str:
    """Return the measured value if the row's reason does not contain it."""
    measured = row["measured"]
    if measured and not measured["unit"]:
        value = measured["value"]
        text = value if isinstance(value, str) else f"{value:g}"
        if value == _NO_EVENT or text in row["reason"]:
            return ""
    return measured_of(row)


def details_of(row: Row) -> dict[str, str]:
    """Return window, observed value, last state and other versions of a row, as far as it has them."""
    window = row["window"]["arithmetic"] if row["window"] else ""
    details = {
        "window": window,
        "observed": measured_of(row),
        "last seen": row["last_state"],
        "kubelet": row.get("kubelet_version", ""),
        "kubelets": describe_kubelets(row),
        "upgraded to": row.get("upgraded_to", ""),
    }
    return {name: text for name, text in details.items() if text}


def describe_kubelets(row: Row) -> str:
    """Return the nodes whose kubelet has another version than the API server; empty without any."""
    return ", ".join(f"{node} {version}" for node, version in sorted(row.get("node_versions", {}).items()))


def failure_message(
    verdicts: Iterable[tuple[str, Verdict]], claims: Mapping[str, Claim], kubernetes_version: str
) -> str:
    """Return what a scenario's failure shows in pytest and Allure: the claims that did not conform, by id."""
    parts = []
    for claim, verdict in verdicts:
        if verdict.outcome != "conforms":
            details = {"claim": claims[claim].statement} if claim in claims else {}
            details |= details_of(verdict.to_json()) | {"cluster": f"Kubernetes {kubernetes_version}"}
            parts += [f"{claim} {verdict.label}: {verdict.reason}", *listed(details, "  ")]
    return "\n".join(parts)


def listed(details: Mapping[str, str], indent: str = "") -> list[str]:
    """Return a line for each detail, with their texts below each other."""
    return [f"{indent}{f'{name}:':<10} {text}" for name, text in details.items()]


def verdict_lines(verdicts: Iterable[tuple[str, Verdict]]) -> str:
    """Return a line for each verdict of a scenario."""
    lines = []
    for claim, verdict in verdicts:
        window = f"  window {verdict.window.arithmetic}" if verdict.window else ""
        lines.append(f"{claim}: {verdict.label}: {verdict.reason}{window}")
    return "\n".join(lines)


def worst_by_claim(rows: Iterable[Row]) -> Mapping[str, Row]:
    """Return the row that decides each claim, in the order of first appearance.

    Within a scenario a skip outranks conforms: the claim is not wholly proven there. Between scenarios it
    does not: what one could not prove in this profile or lab, another has proven. Of verdicts that are alike,
    one with a window decides: it was observed, and a constant was only read.
    """

    def within(row: Row) -> tuple[int, bool]:
        return verdict_of(row).rank, row["window"] is None

    def across(row: Row) -> tuple[int, bool]:
        rank, has_no_window = within(row)
        return 5 if verdict_of(row).is_skip else rank, has_no_window

    by_scenario: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = (row["claim"], row["scenario"])
        by_scenario[place] = min(by_scenario.get(place, row), row, key=within)
    worst: dict[str, Row] = {}
    for (claim, _scenario), row in by_scenario.items():
        worst[claim] = min(worst.get(claim, row), row, key=across)
    return worst


def outcome_in(run: Path, claim: str) -> Outcome:
    """Return the outcome of a claim in a run's folder; `unproven` if it was not judged."""
    with contextlib.suppress(Problem):
        if row := worst_by_claim(rundir.read_verdicts(run)).get(claim):
            return verdict_of(row).outcome
    return "unproven"


def totals(worst: Iterable[Row]) -> str:
    """Count claims by their worst verdict: `conforms 12  deviates 0  unproven 3 (scaled: 2, gap: 1)`.

    Claims that deviate as reported, and those that do not any more, follow if there are any.
    """
    verdicts = [verdict_of(row) for row in worst]
    outcomes = Counter("reported" if verdict.is_known else verdict.outcome for verdict in verdicts)
    outcomes["fixed?"] = sum(bool(verdict.reported) and not verdict.is_known for verdict in verdicts)
    codes = Counter[str](verdict.code for verdict in verdicts if verdict.outcome == "unproven")
    names = ["conforms", "deviates", *(name for name in ("reported", "fixed?") if outcomes[name]), "unproven"]
    counts = "  ".join(f"{name} {outcomes[name]}" for name in names)
    return f"{counts} {count_codes(codes)}".rstrip()


def count_codes(codes: Counter[str]) -> str:
    """Return the number of each code, the most frequent first: `(scaled: 2, gap: 1)`."""
    counts = ", ".join(f"{code}: {count}" for code, count in codes.most_common())
    return f"({counts})" if counts else ""


def exit_code(
    rows: Iterable[Row],
    named: Collection[str],
    selected: Collection[str],
    abort_reason: str = "",
    *,
    is_whole: bool = True,
) -> int:
    """Return the exit code of a run.

    1 if a claim deviates, and not as reported; else 3 if a selected claim is unproven and not skipped; else
    2 if the run was aborted; else 3 if a claim `named` by the user is not proven, a selected one has no
    verdict, or the run is not whole; else 0.
    """
    verdicts = {claim: verdict_of(row) for claim, row in worst_by_claim(rows).items()}
    if any(verdict.is_failure for verdict in verdicts.values()):
        return DEVIATES
    judged = [verdicts[claim] for claim in selected if claim in verdicts]
    if any(verdict.outcome == "unproven" and not verdict.is_skip for verdict in judged):
        return UNPROVEN
    if abort_reason:
        return ABORTED
    proven = {claim for claim, verdict in verdicts.items() if verdict.is_proven}
    is_complete = is_whole and proven.issuperset(named) and verdicts.keys() >= set(selected)
    return CONFORMS if is_complete else UNPROVEN


def named_claims(facts: RunFacts, arguments: Sequence[str] | None = None) -> list[str]:
    """Return the claims that a command line selects with `--claim`; of a shard, only its own.

    Without `arguments`, the recorded command line counts; a merged run has those of its shards.
    """
    if arguments is None:
        arguments = facts.command.replace("; ", " ").split()
    option = f"{_CLAIM}="
    claims = [argument.removeprefix(option) for argument in arguments if argument.startswith(option)]
    claims += [value for name, value in pairwise(arguments) if name == _CLAIM]
    return [claim for claim in claims if facts.shard is None or claim in facts.selected]


@dataclass(frozen=True)
class Load:
    """How loaded the host was: slack of each scenario and its limit (s), and the number of retries."""

    slacks_s: tuple[float, ...]
    limit_s: float
    retries: int

    def __str__(self) -> str:
        text = "slack was not written down"
        if self.slacks_s:
            middle, most = median(self.slacks_s), max(self.slacks_s)
            text = f"slack {middle:.2f} s in the median, {most:.2f} s at most (limit {self.limit_s:g} s)"
        return f"{text}; tries that ran again: {self.retries}" if self.retries else text


@dataclass(frozen=True)
class Entry:
    """A claim in a run: its rows, the one that decides it first.

    `claim` is None if the catalogue does not have it; `silence` says why there are no rows; `is_missing` if
    the run was to judge it and did not.
    """

    id: str
    claim: Claim | None
    rows: tuple[Row, ...]
    silence: str = ""
    is_missing: bool = False

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict that decides it."""
        return verdict_of(self.rows[0]) if self.rows else None

    @property
    def state(self) -> State:
        """The claim's state in the run."""
        if self.rows:
            return state_of(self.rows[0])
        return "open" if self.is_missing else "silent"

    @property
    def label(self) -> str:
        """The verdict in words."""
        if self.verdict is None:
            return "no verdict" if self.is_missing else "not judged"
        return self.verdict.label

    @property
    def reason(self) -> str:
        """The reason of the verdict, or why there is none."""
        return self.verdict.reason if self.verdict else self.silence

    @property
    def measured(self) -> str:
        """The measured value of the row that decides it."""
        return measured_of(self.rows[0]) if self.rows else ""

    @property
    def reported(self) -> str:
        """The issue by which it is known to deviate, if the verdict names one."""
        return self.verdict.reported if self.verdict else ""

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
        """Whether page and code are known to differ, and the cluster does not deviate."""
        return (
            bool(self.rows)
            and self.state not in ("deviates", "known")
            and self.rows[0]["page"]["agreement"] == "differs"
        )

    @property
    def drift(self) -> str:
        """The known difference between page and code."""
        return self.rows[0]["page"]["drift"] if self.rows else self.claim.drift if self.claim else ""

    @property
    def difference(self) -> str:
        """The page's text, and the version's constant if there is one; empty if they do not differ."""
        page = self.rows[0]["page"] if self.differs else {}
        if not page.get("says"):
            return ""
        if page["cluster"]:
            version = self.rows[0].get("kubelet_version") or self.rows[0]["kubernetes_version"]
            return f"the page says {page['says']}, {version} has {page['cluster']}"
        return f"the page says that {_split_remark(page['says'])[1]}"

    def page_versions(self) -> list[tuple[str, str]]:
        """Return the versions of the page that say it (`v1.18, v1.24 say so`), with the remark on them."""
        by_remark: dict[str | bool, list[str]] = {}
        for version in self.claim.page_versions if self.claim else ():
            by_remark.setdefault(self.claim.page[version] if self.claim else "", []).append(version)
        return [_describe_versions(versions, remark) for remark, versions in by_remark.items()]


@dataclass(frozen=True)
class Digest:
    """What all reports show of a run. `missing` has a sentence for each part that is not there."""

    run: Path
    claims: Mapping[str, Claim]
    """The catalogue."""
    facts: RunFacts | None
    rows: tuple[Row, ...]
    load: Load
    missing: tuple[str, ...]
    is_judged_again: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it ran to its end and everything can be read."""
        return not self.missing

    @property
    def name(self) -> str:
        """The run's name; of a rechecked one also the folder inside it."""
        return rundir.display_name(self.run)

    @property
    def name_with_shard(self) -> str:
        """The run's name, and its shard."""
        shard = self.facts.shard if self.facts else None
        part = f", shard {shard.get('number')}/{shard.get('of')}" if isinstance(shard, dict) else ""
        return f"{self.name}{part}"

    @property
    def kubernetes_version(self) -> str:
        """The version, or all that its rows name."""
        return self._fact("kubernetes_version")

    @property
    def lab(self) -> str:
        """The kind of lab."""
        return self._fact("lab")

    @property
    def profile(self) -> str:
        """The profile of times."""
        return self._fact("profile")

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings of the user."""
        return self.facts.overrides if self.facts else ()

    @property
    def setup(self) -> tuple[str, ...]:
        """Kubernetes version, lab kind, profile, and the user's settings: what the run can prove."""
        return self.kubernetes_version, self.lab, self.profile, *self.overrides

    @property
    def selected(self) -> frozenset[str]:
        """The claims that it was to judge, as far as is known."""
        return frozenset(self.facts.selected) if self.facts else frozenset()

    @property
    def host(self) -> str:
        """The load of the host, and the number of verdicts that it prevented."""
        lost = sum(row["code"] == "host-too-loaded" for row in self.rows)
        return f"{self.load}; host too busy: {counted(lost, 'verdict')}" if lost else str(self.load)

    @property
    def began(self) -> str:
        """The start of the run to the minute, in UTC."""
        return f"{self.facts.began[:16].replace('T', ' ')} UTC" if self.facts else ""

    @property
    def lasted(self) -> str:
        """The duration of a complete run."""
        return duration(self.facts.duration_s) if self.facts and self.facts.ended else ""

    @property
    def differing_settings(self) -> str:
        """The number of settings that are not upstream's defaults."""
        number = len(self.facts.settings) if self.facts else 0
        return counted(number, "setting of the lab is", "settings of the lab are")

    @property
    def has_allure(self) -> bool:
        """Whether Allure's page is beside the run's page."""
        return (self.run / "site" / "index.html").is_file()

    @cached_property
    def by_claim(self) -> Mapping[str, tuple[Row, ...]]:
        """The rows of each claim, the one that decides it first."""
        claims: dict[str, list[Row]] = {claim: [row] for claim, row in worst_by_claim(self.rows).items()}
        for row in self.rows:
            if row is not claims[row["claim"]][0]:
                claims[row["claim"]].append(row)
        return {claim: tuple(rows) for claim, rows in claims.items()}

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Every claim of the catalogue, then those that only the run has."""
        return [
            self._entry(name, self.claims.get(name))
            for name in dict.fromkeys([*self.claims, *self.by_claim, *sorted(self.selected)])
        ]

    @cached_property
    def sections(self) -> Sequence[tuple[Section, Sequence[Entry]]]:
        """Every claim under its heading of the Kubernetes page."""
        return by_section(self.entries)

    @cached_property
    def since(self) -> Mapping[str, Since]:
        """Since when each deviating claim deviates, as far as earlier runs show it."""
        return _deviating_since(self.run, self.facts, self.rows) if self.facts else {}

    @cached_property
    def recoveries(self) -> Mapping[str, Mapping[str, Cell]]:
        """How nodes recovered, by kind of fault and measure; the earlier runs are of the same version."""
        run = rundir.recorded_run(self.run)
        earlier = earlier_runs(run, self.facts) if self.facts else ()
        version = self.kubernetes_version
        folders = [folder for other, folder in earlier if other.kubernetes_version == version]
        return recovery.table(recovery.read(run), map(recovery.read, folders))

    @property
    def counts(self) -> Sequence[tuple[State, str, int]]:
        """Each state with its predicate and its number of claims."""
        return count_states(self.entries)

    @property
    def totals(self) -> str:
        """The number of judged claims by verdict."""
        return totals(rows[0] for rows in self.by_claim.values())

    @property
    def skipped(self) -> Sequence[tuple[str, str, Sequence[Entry]]]:
        """Claims that this run cannot prove, by code and reason."""
        by_reason: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.in_state("skipped"):
            row = entry.rows[0]
            by_reason.setdefault((row["code"], row["reason"]), []).append(entry)
        return [(code, reason, entries) for (code, reason), entries in sorted(by_reason.items())]

    @property
    def codes(self) -> Sequence[tuple[str, str]]:
        """The codes of unproven claims, with their meanings."""
        unproven = [*self.in_state("open"), *self.in_state("skipped")]
        used = {entry.rows[0]["code"] for entry in unproven if entry.rows}
        return [(code, meaning) for code, meaning in MEANINGS.items() if code in used]

    @property
    def differing(self) -> Sequence[Entry]:
        """Claims on which page and code differ, and which do not deviate."""
        return [entry for _section, entries in self.sections for entry in entries if entry.differs]

    def in_state(self, state: State) -> Sequence[Entry]:
        return [entry for _section, entries in self.sections for entry in entries if entry.state == state]

    def evidence(self, nodeid: str) -> Sequence[tuple[str, str]]:
        """Return name and address of the files of a scenario."""
        folder = rundir.slug(nodeid)
        return [
            (name.partition(".")[0], f"../scenarios/{folder}/{name}")
            for name in EVIDENCE
            if (self.run / "scenarios" / folder / name).is_file()
        ]

    def _entry(self, name: str, claim: Claim | None) -> Entry:
        if rows := self.by_claim.get(name, ()):
            return Entry(name, claim, rows)
        if name in self.selected:
            return Entry(name, claim, (), "It was to be judged, and the run has no verdict on it.", True)
        if claim is not None and claim.status == "planned":
            return Entry(name, claim, (), "No scenario judges it yet.")
        if claim is not None and claim.status != "judged":
            return Entry(name, claim, (), f"{claim.status}: {claim.reason}")
        return Entry(name, claim, (), "Not part of this run.")

    def _fact(self, name: str) -> str:
        return str(getattr(self.facts, name)) if self.facts else common(self.rows, name)


def common(rows: Iterable[Row], name: str) -> str:
    """Return what all rows have in this field, or all that they have."""
    return ", ".join(sorted({str(row[name]) for row in rows})) or "unknown"


def read(run: Path, claims: Mapping[str, Claim]) -> Digest:
    """Read a run, whatever of it is there.

    Raises:
        Problem: There is no run, or a newer version wrote it.
    """
    stored = rundir.read_run(run)
    parts = (rundir.RUN, rundir.VERDICTS, "scenarios")
    if not any((stored.folder / part).exists() for part in parts):
        raise Problem("this is no run's folder", str(stored.folder), "name a folder below reports/out")
    rows = tuple(row for row in stored.rows if is_row(row))
    lost, no_end = rundir.read_recheck(stored.folder)
    missing = [*_missing_verdicts(stored, len(stored.rows) - len(rows)), *_missing_end(stored, no_end)]
    if not rows:
        missing.append("No scenario left a verdict.")
    missing += [*rundir.sentences_without_verdict(rundir.without_verdict(stored.folder, rows)), *lost]
    slacks = [scenario.slack_s for scenario in stored.scenarios if scenario.slack_s]
    limit_s = max((limit_s for _slack_s, limit_s in slacks), default=0.0)
    load = Load(tuple(slack_s for slack_s, _limit_s in slacks), limit_s, rundir.run_again(stored.folder))
    is_rechecked = rundir.is_rechecked(stored.folder)
    return Digest(stored.folder, claims, stored.facts, rows, load, tuple(missing), is_rechecked)


def count_states(entries: Iterable[Entry]) -> Sequence[tuple[State, str, int]]:
    """Return each state with its predicate and the number of claims in it."""
    numbers = Counter(entry.state for entry in entries)
    one = {"deviates": "deviates", "conforms": "conforms"}
    return [
        (state, one.get(state, label) if numbers[state] == 1 else label, numbers[state])
        for state, label in LABELS.items()
    ]


def by_section(entries: Iterable[Entry]) -> list[tuple[Section, list[Entry]]]:
    """Return claims under all headings of the page, in its order."""
    entries = list(entries)
    return [
        (section, [entry for entry in entries if entry.area in section.areas])
        for section in sections(entry.area for entry in entries)
    ]


_REMARKS: Mapping[str, str] = {
    CONTRARY: "say{s} otherwise",
    "variant: ": "word{s} it otherwise",
    MOVED: "ha{ve} it elsewhere",
    "true (": "say{s} so",
}
"""Beginnings of the catalogue's remarks on a version of the page, with what they mean."""


def _describe_versions(versions: Sequence[str], remark: str | bool) -> tuple[str, str]:
    kind, text = ("say{s} so", "") if remark is True else _split_remark(str(remark))
    verb = kind.format(**({"s": "s", "ve": "s"} if len(versions) == 1 else {"s": "", "ve": "ve"}))
    return f"{', '.join(versions)} {verb}", text


def _split_remark(remark: str) -> tuple[str, str]:
    """Return the kind of a remark, and its text."""
    for begin, kind in _REMARKS.items():
        if remark.startswith(begin):
            text = remark.removeprefix(begin)
            return kind, text.removesuffix(")") if begin.endswith("(") else text
    return "say{s} of it", remark


def _missing_end(run: StoredRun, no_end: str) -> Iterator[str]:
    """Yield why a run did not come to its end."""
    if run.facts is None:
        yield f"The run did not come to its end, or lost what it was: {_line(run, rundir.RUN)}."
    elif run.facts.exit_reason:
        # What follows the first line are lines of logs.
        yield f"The run broke off: {run.facts.exit_reason.partition(chr(10))[0]}"
    elif not run.facts.ended:
        yield no_end or "The run has no end: it is under way, or was killed."


def _missing_verdicts(run: StoredRun, malformed: int) -> Iterator[str]:
    """Yield which verdicts are missing; `malformed` is the number of rows that are left out."""
    if run.verdicts is None:
        yield f"Verdicts are those that scenarios left one by one: {_line(run, rundir.VERDICTS)}."
        for place in run.problems:
            if place.startswith("scenarios/"):
                yield f"A scenario's verdicts are lost: {_line(run, place)}."
    if malformed:
        yield f"{counted(malformed, 'verdict is', 'verdicts are')} malformed and left out."


def is_row(row: Row) -> bool:
    """Return whether a row has all that is shown of it: somebody may have edited the file."""
    parts: list[tuple[Json, Mapping[str, type | tuple[type, ...]]]] = [
        (row, dict.fromkeys(rundir.ROW_TEXTS, str)),
        (row, {name: str for name in ("upgraded_to", "kubelet_version") if name in row}),
        (row["page"], dict.fromkeys(("agreement", "says", "cluster", "drift"), str)),
    ]
    if row["window"] is not None:
        parts.append((row["window"], {"low_s": (int, float), "high_s": (int, float), "arithmetic": str}))
    versions = row.get("node_versions", {})
    parts.append((versions, dict.fromkeys(versions if isinstance(versions, dict) else (), str)))
    if row["measured"] is not None:
        parts.append((row["measured"], {"value": (int, float, str), "unit": str}))
    return all(
        isinstance(part, dict) and all(isinstance(part.get(name), kind) for name, kind in kinds.items())
        for part, kinds in parts
    )


def _line(run: StoredRun, place: str) -> str:
    """Return why a part of the run cannot be read, as a line that does not show where the run is."""
    return run.problems[place].line.replace(f"{run.folder}/", "")


@dataclass(frozen=True)
class Since:
    """The consecutive runs in which a claim deviates, the earliest first, and the last one in which it
    conformed before. Runs that did not judge the claim do not count.
    """

    runs: tuple[RunFacts, ...]
    conformed: RunFacts | None = None

    @property
    def is_new(self) -> bool:
        """Whether no earlier run deviates."""
        return len(self.runs) == 1

    def __str__(self) -> str:
        latest = self.runs[-1]
        before = f"last conformed on {_began(self.conformed, latest)}" if self.conformed else ""
        if self.is_new:
            return f"since this run; {before or 'no earlier run here judged it'}"
        first = f"since {_began(self.runs[0], latest)}, in {len(self.runs)} consecutive runs"
        return f"{first}; {before}" if before else f"{first}; no earlier run here judged it"


def _deviating_since(run: Path, facts: RunFacts, rows: Iterable[Row]) -> Mapping[str, Since]:
    """Return since when each deviating claim of a run deviates, by the runs in the folder around it.

    Only runs of the same lab kind, profile and user's settings count, of any version: a deviation of another
    version is of interest. Runs that cannot be read, and shards, do not count.
    """
    pending = {claim for claim, row in worst_by_claim(rows).items() if verdict_of(row).is_failure}
    chains = {claim: [facts] for claim in pending}
    conformed: dict[str, RunFacts] = {}
    for earlier, outcomes in _proven_outcomes(rundir.recorded_run(run), facts) if pending else ():
        for claim in pending & outcomes.keys():
            if outcomes[claim] == "deviates":
                chains[claim].append(earlier)
            else:
                conformed[claim] = earlier
        pending -= conformed.keys()
        if not pending:
            break
    return {
        claim: Since(tuple(reversed(runs)), conformed.get(claim)) for claim, runs in sorted(chains.items())
    }


def earlier_runs(run: Path, facts: RunFacts) -> Iterator[tuple[RunFacts, Path]]:
    """Yield earlier runs beside one, of the same lab kind, profile and settings, the latest first.

    Shards and runs that cannot be read do not count.
    """
    runs = []
    for folder in {path.parent.resolve() for path in run.parent.glob("*/run.json")} - {run}:
        with contextlib.suppress(Problem, TypeError):
            earlier = rundir.read_facts(folder)
            setups = [(run.lab, run.profile, run.overrides) for run in (earlier, facts)]
            if setups[0] == setups[1] and earlier.shard is None and earlier.began < facts.began:
                runs.append((earlier.began, earlier.run, folder, earlier))
    runs.sort(key=lambda entry: entry[:2], reverse=True)
    yield from ((earlier, folder) for *_order, folder, earlier in runs[:MAX_EARLIER_RUNS])


def _proven_outcomes(run: Path, facts: RunFacts) -> Iterator[tuple[RunFacts, Mapping[str, str]]]:
    """Yield the proven outcomes of each earlier run, by claim; each run is read when needed."""
    for earlier, folder in earlier_runs(run, facts):
        with contextlib.suppress(Problem):
            worst = worst_by_claim(rundir.read_verdicts(folder))
            proven = ("conforms", "deviates")
            yield earlier, {claim: row["verdict"] for claim, row in worst.items() if state_of(row) in proven}


def _began(run: RunFacts, latest: RunFacts) -> str:
    """Return when a run began, to the minute in UTC, and its version if the latest run has another."""
    is_other = run.kubernetes_version != latest.kubernetes_version
    version = f", Kubernetes {run.kubernetes_version}" if is_other else ""
    return f"{run.began[:16].replace('T', ' ')} UTC (run {run.run}{version})"
