"""The Nodes page, judged: one HTML file in a run's site that reads as the documentation does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import behaviours, digest, files, html, plain, since
from nodeproof.report.digest import Digest, Entry, State
from nodeproof.report.evidence import Evidence, Finder
from nodeproof.report.outcome import verdict_of
from nodeproof.report.rechecked import named
from nodeproof.report.rundir import Row, RunFacts
from nodeproof.report.sections import Section
from nodeproof.report.since import Since
from nodeproof.report.table import duration

FILE = "page.html"
LABELS: Mapping[State, str] = {
    "deviates": "deviate",
    "open": "should have been proven",
    "skipped": "cannot be proven here",
    "conforms": "conform",
    "silent": "not judged",
}
"""What several claims do that are in a state."""

MEANINGS: Mapping[str, str] = {
    "not-applicable": "the claim does not hold for this Kubernetes version",
    "lab-lacks": "this lab has not got what the claim needs",
    "scaled": "the profile changes the value in question, or the window would also admit its half or double",
    "not-injected": "no probe proved the fault, or it did not last as long as it had to",
    "no-anchor": "what the claim starts from did not come",
    "gap": "a watch was blind at the time that matters, or nothing proves that it was not",
    "component-died": "a component ended that no fault was to end",
    "host-too-loaded": "time cannot be told well enough on this host",
    "check-failed": "the check itself could not be evaluated",
}
"""Of each code of what is unproven."""

_NOTHING = "none"
"""What is measured of what did not come, as was right."""


def label_of(state: State, claims: int) -> str:
    """What so many claims do that are in a state."""
    return f"{LABELS[state]}s" if claims == 1 and state in ("deviates", "conforms") else LABELS[state]


def write(run: Path, claims: Mapping[str, Claim]) -> Path:
    """Write `<run>/site/page.html`, also of a run that is not whole.

    Raises Problem where there is no run, and where the page cannot be written.
    """
    found = digest.read(run)
    site = found.run / "site"
    try:
        files.make_folder(site)
    except OSError as error:
        said = "the page cannot be written"
        raise Problem(
            said, str(site), "make the run's folder one that you may write to", str(error)
        ) from error
    return html.write(site / FILE, render(found, claims))


def render(found: Digest, claims: Mapping[str, Claim]) -> str:
    """The page as text; its links are those of a file in the run's site."""
    return html.render("page.html", run=View(found, claims, Finder.of(found.run)))


@dataclass(frozen=True)
class View:
    """What the template shows of a run."""

    digest: Digest
    claims: Mapping[str, Claim]
    finder: Finder

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Every claim."""
        return digest.entries(self.digest, self.claims)

    @property
    def kubernetes_version(self) -> str:
        """Of the cluster."""
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
    def load(self) -> str:
        """How loaded the host was."""
        left = sum(row["code"] == "host-too-loaded" for row in self.digest.rows)
        blind = f"; too loaded to tell: {plain.counted(left, 'verdict')}" if left else ""
        return f"{self.digest.load}{blind}"

    @property
    def name(self) -> str:
        """The run's name; of a shard, which it is: what is not judged here is another's."""
        shard = self.facts.shard if self.facts else None
        part = f", shard {shard.get('number')}/{shard.get('of')}" if isinstance(shard, dict) else ""
        return f"{named(self.digest.run)}{part}"

    @property
    def facts(self) -> RunFacts | None:
        """What `run.json` says."""
        return self.digest.facts

    @property
    def began(self) -> str:
        """To the minute, in UTC."""
        return f"{self.facts.began[:16].replace('T', ' ')} UTC" if self.facts else ""

    @property
    def lasted(self) -> str:
        """How long it took."""
        return duration(self.facts.duration_s) if self.facts and self.facts.ended else ""

    @property
    def differing_settings(self) -> str:
        """How many settings of the lab are not the default."""
        number = len(self.facts.settings) if self.facts else 0
        return plain.counted(number, "setting of the lab is", "settings of the lab are")

    @property
    def missing(self) -> Sequence[str]:
        """What of the run is not there."""
        return self.digest.missing

    @property
    def is_judged_again(self) -> bool:
        """Whether these are not the verdicts that the run ended with."""
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
    def counts(self) -> Sequence[tuple[State, str, int]]:
        """How many claims are in each state, and what those do."""
        told = Counter(entry.state for entry in self.entries)
        return [(state, label_of(state, told[state]), told[state]) for state in LABELS]

    @property
    def deviating(self) -> Sequence[Entry]:
        """Claims that deviate, in the order of the page."""
        return self._in("deviates")

    @property
    def open(self) -> Sequence[Entry]:
        """Claims that should have been proven."""
        return self._in("open")

    @property
    def skipped(self) -> Sequence[tuple[str, str, Sequence[Entry]]]:
        """Claims that this run cannot prove, by code and reason."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in self._in("skipped"):
            row = entry.rows[0]
            found.setdefault((row["code"], row["reason"]), []).append(entry)
        return [(code, reason, entries) for (code, reason), entries in sorted(found.items())]

    @property
    def codes(self) -> Sequence[tuple[str, str]]:
        """The codes of what is unproven, with their meaning."""
        found = {entry.rows[0]["code"] for entry in (*self.open, *self._in("skipped")) if entry.rows}
        return [(code, meaning) for code, meaning in MEANINGS.items() if code in found]

    @property
    def differing(self) -> Sequence[Entry]:
        """Claims on which page and code differ, and which do not deviate."""
        return [entry for entry in self._ordered if entry.differs]

    @property
    def sections(self) -> Sequence[tuple[Section, Sequence[Entry]]]:
        """All claims under the page's headings."""
        return self._sections

    def since(self, entry: Entry) -> str:
        """Since when a claim deviates; nothing where the run does not tell when it was."""
        return str(self._since.get(entry.id, ""))

    def evidence(self, nodeid: str) -> Evidence:
        """Where a scenario's evidence is."""
        return self.finder.find(nodeid)

    def title(self, nodeid: str) -> str:
        """A scenario in words."""
        return behaviours.title(nodeid)

    def measured(self, row: Row) -> str:
        """The measured value with its unit."""
        return digest.measured_of(row)

    def measured_apart(self, row: Row) -> str:
        """The same where the row's reason does not tell it: a time, or what is not among its words."""
        told = row["measured"]
        if told and not told["unit"] and (told["value"] == _NOTHING or _said(told["value"]) in row["reason"]):
            return ""
        return digest.measured_of(row)

    def label(self, row: Row) -> str:
        """A row's verdict in words."""
        return verdict_of(row).label

    def state(self, row: Row) -> State:
        """A row's verdict as a state."""
        return Entry("", None, (row,)).state

    @cached_property
    def _since(self) -> Mapping[str, Since]:
        return since.deviating(self.digest.run, self.facts, self.digest.rows) if self.facts else {}

    @cached_property
    def _sections(self) -> Sequence[tuple[Section, Sequence[Entry]]]:
        return digest.by_section(self.entries)

    @cached_property
    def _ordered(self) -> Sequence[Entry]:
        return [entry for _section, found in self._sections for entry in found]

    def _in(self, state: State) -> Sequence[Entry]:
        return [entry for entry in self._ordered if entry.state == state]


def _said(value: float | str) -> str:
    """A number as reasons have it."""
    return value if isinstance(value, str) else f"{value:g}"
