"""The page of a run: its verdicts under the headings of the Kubernetes page, in one HTML file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import digest, files, html, plain
from nodeproof.report.digest import Digest, Entry, Since, State
from nodeproof.report.evidence import Finder
from nodeproof.report.rundir import Row, display_name
from nodeproof.report.sections import Section

FILE = "page.html"
LABELS: Mapping[State, str] = {
    "deviates": "deviate",
    "open": "should have been proven",
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
    "not-injected": "no probe confirmed the fault, or it ended too early",
    "no-anchor": "the event from which the window is counted did not occur",
    "gap": "a watch had a gap at the relevant time, or nothing proves that it had none",
    "component-died": "a component ended that no fault was meant to end",
    "host-too-loaded": "the host was too busy to measure times precisely enough",
    "check-failed": "the check itself could not be evaluated",
}
"""Meanings of the codes of unproven claims."""

_NO_EVENT = "none"
"""The measured value if an event rightly did not occur."""


def label_of(state: State, claims: int) -> str:
    """Return the predicate of a number of claims in a state."""
    return f"{LABELS[state]}s" if claims == 1 and state in ("deviates", "conforms") else LABELS[state]


def write(run: Path, claims: Mapping[str, Claim]) -> Path:
    """Write `<run>/site/page.html`, also for an incomplete run.

    Raises:
        Problem: The folder is no run, or the page cannot be written.
    """
    run_digest = digest.read(run)
    site = run_digest.run / "site"
    try:
        files.make_folder(site)
    except OSError as error:
        raise Problem(
            "the page cannot be written", str(site), "make the run's folder writable", str(error)
        ) from error
    return html.write_html(site / FILE, render(run_digest, claims))


def render(run_digest: Digest, claims: Mapping[str, Claim]) -> str:
    """Return the page; its links are relative to the run's site."""
    return html.render_template("page.html", run=View(run_digest, claims, Finder.of(run_digest.run)))


@dataclass(frozen=True)
class View:
    """What the templates show of a run."""

    digest: Digest
    claims: Mapping[str, Claim]
    finder: Finder

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Every claim."""
        return digest.entries(self.digest, self.claims)

    @cached_property
    def sections(self) -> Sequence[tuple[Section, Sequence[Entry]]]:
        """Every claim under its heading of the Kubernetes page."""
        return digest.by_section(self.entries)

    @property
    def kubernetes_version(self) -> str:
        """The version of the cluster."""
        return self.digest.kubernetes_version

    @property
    def lab(self) -> str:
        """The kind of lab."""
        return self.digest.lab

    @property
    def profile(self) -> str:
        """The profile of times."""
        return self.digest.profile

    @property
    def overrides(self) -> Sequence[str]:
        """The settings of the user."""
        return self.digest.overrides

    @property
    def missing(self) -> Sequence[str]:
        """Sentences on what the run lacks."""
        return self.digest.missing

    @property
    def is_judged_again(self) -> bool:
        """Whether `recheck` judged the recordings again."""
        return self.digest.is_judged_again

    @property
    def has_rows(self) -> bool:
        """Whether anything was judged."""
        return bool(self.digest.rows)

    @property
    def has_allure(self) -> bool:
        """Whether Allure's site is beside the page."""
        return bool(self.finder.pages) or (self.digest.run / "site" / "index.html").is_file()

    @property
    def load(self) -> str:
        """The load of the host, and the number of verdicts that it prevented."""
        lost = sum(row["code"] == "host-too-loaded" for row in self.digest.rows)
        verdicts = f"; host too busy: {plain.counted(lost, 'verdict')}" if lost else ""
        return f"{self.digest.load}{verdicts}"

    @property
    def name(self) -> str:
        """The run's name, and its shard."""
        shard = self.digest.facts.shard if self.digest.facts else None
        part = f", shard {shard.get('number')}/{shard.get('of')}" if isinstance(shard, dict) else ""
        return f"{display_name(self.digest.run)}{part}"

    @property
    def began(self) -> str:
        """The start of the run to the minute, in UTC."""
        facts = self.digest.facts
        return f"{facts.began[:16].replace('T', ' ')} UTC" if facts else ""

    @property
    def lasted(self) -> str:
        """The duration of a complete run."""
        facts = self.digest.facts
        return plain.duration(facts.duration_s) if facts and facts.ended else ""

    @property
    def differing_settings(self) -> str:
        """The number of settings that are not upstream's defaults."""
        number = len(self.digest.facts.settings) if self.digest.facts else 0
        return plain.counted(number, "setting of the lab is", "settings of the lab are")

    @property
    def counts(self) -> Sequence[tuple[State, str, int]]:
        """Each state with its predicate and its number of claims."""
        numbers = Counter(entry.state for entry in self.entries)
        return [(state, label_of(state, numbers[state]), numbers[state]) for state in LABELS]

    @property
    def deviating(self) -> Sequence[Entry]:
        """Claims that deviate, in the order of the Kubernetes page."""
        return self._in("deviates")

    @property
    def open(self) -> Sequence[Entry]:
        """Claims that should have been proven."""
        return self._in("open")

    @property
    def skipped(self) -> Sequence[tuple[str, str, Sequence[Entry]]]:
        """Claims that this run cannot prove, by code and reason."""
        by_reason: dict[tuple[str, str], list[Entry]] = {}
        for entry in self._in("skipped"):
            row = entry.rows[0]
            by_reason.setdefault((row["code"], row["reason"]), []).append(entry)
        return [(code, reason, entries) for (code, reason), entries in sorted(by_reason.items())]

    @property
    def codes(self) -> Sequence[tuple[str, str]]:
        """The codes of unproven claims, with their meanings."""
        used = {entry.rows[0]["code"] for entry in (*self.open, *self._in("skipped")) if entry.rows}
        return [(code, meaning) for code, meaning in MEANINGS.items() if code in used]

    @property
    def differing(self) -> Sequence[Entry]:
        """Claims on which page and code differ, and which do not deviate."""
        return [entry for _section, entries in self.sections for entry in entries if entry.differs]

    def since(self, entry: Entry) -> str:
        """Return since when a claim deviates; empty if no earlier run is known."""
        return str(self._since.get(entry.id, ""))

    def entry_of(self, row: Row) -> Entry:
        """Return one row as an entry, for its state and label."""
        return Entry("", None, (row,))

    def measured_beside(self, row: Row) -> str:
        """Return the measured value if the row's reason does not contain it."""
        measured = row["measured"]
        if measured and not measured["unit"]:
            value = measured["value"]
            text = value if isinstance(value, str) else f"{value:g}"
            if value == _NO_EVENT or text in row["reason"]:
                return ""
        return digest.measured_of(row)

    @cached_property
    def _since(self) -> Mapping[str, Since]:
        run = self.digest
        return digest.deviating_since(run.run, run.facts, run.rows) if run.facts else {}

    def _in(self, state: State) -> Sequence[Entry]:
        return [entry for _section, entries in self.sections for entry in entries if entry.state == state]
