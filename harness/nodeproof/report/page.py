"""The page of a run: its verdicts under the headings of the Kubernetes page, in one HTML file.

All pages and Markdown are rendered here: text in pages is escaped; nothing is loaded, and no script runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import allure, digest, files, plain, recovery, rundir, sections
from nodeproof.report.digest import Digest, Entry, Since, State
from nodeproof.report.recovery import Cell
from nodeproof.report.rundir import Row
from nodeproof.report.sections import Section

FILE = "page.html"
SHORT = 400
"""Length from which a text is folded."""
EVIDENCE = ("timeline.svg", "rates.svg", "timeline.png", "rates.png", "history.jsonl")
"""Files of a scenario that pages link to; runs of earlier versions have bitmaps."""
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
    "aborted": "a condition of the cluster's owner ended the fault before its time",
    "not-injected": "no probe confirmed the fault, it ended too early, or it did not cut its node off",
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
    return write_html(site / FILE, render(run_digest, claims))


def render(run_digest: Digest, claims: Mapping[str, Claim]) -> str:
    """Return the page; its links are relative to the run's site."""
    return render_template("page.html", run=View(run_digest, claims, allure.addresses(run_digest.run)))


def render_template(template: str, **context: Any) -> str:
    """Return a page from one of `templates`."""
    return _environment().get_template(template).render(**context)


def encodable(text: str) -> str:
    """Replace what no encoding has (half a surrogate pair) by a question mark."""
    return text.encode("utf-8", "replace").decode()


def write_html(path: Path, text: str) -> Path:
    """Write a page in one step.

    Raises:
        Problem: The file cannot be written.
    """
    return files.write_output(path, encodable(text).encode(), "the page cannot be written")


def url_of(path: str) -> str:
    """Return a relative path as a URL."""
    return quote(path, safe="/", errors="replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(disabled_extensions=("md",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        SHORT=SHORT,
        url_of=url_of,
        SIGNS=digest.SIGNS,
        measured_of=digest.measured_of,
        state_of=digest.state_of,
        verdict_of=digest.verdict_of,
        MEASURES=recovery.MEASURES,
        scenario_title=sections.title,
        documents=tuple(sections.DOCUMENTS.values()),
    )
    environment.filters.update(
        code=plain.in_markdown, cell=plain.in_markdown_cell, prose=plain.prose_in_markdown
    )
    return environment


@dataclass(frozen=True)
class View:
    """What the templates show of a run; `allure_pages` has the address of each scenario in Allure, if any."""

    digest: Digest
    claims: Mapping[str, Claim]
    allure_pages: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Every claim."""
        return digest.entries(self.digest, self.claims)

    @cached_property
    def sections(self) -> Sequence[tuple[Section, Sequence[Entry]]]:
        """Every claim under its heading of the Kubernetes page."""
        return digest.by_section(self.entries)

    @property
    def has_allure(self) -> bool:
        """Whether Allure's site is beside the page."""
        return bool(self.allure_pages) or (self.digest.run / "site" / "index.html").is_file()

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
        return f"{self.digest.name}{part}"

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

    @cached_property
    def recoveries(self) -> Mapping[str, Mapping[str, Cell]]:
        """How nodes recovered, by kind of fault and measure; the earlier runs are of the same version."""
        run, facts = rundir.recorded_run(self.digest.run), self.digest.facts
        earlier = digest.earlier_runs(run, facts) if facts else ()
        folders = [
            folder for other, folder in earlier if other.kubernetes_version == self.digest.kubernetes_version
        ]
        return recovery.table(recovery.read(run), map(recovery.read, folders))

    @property
    def counts(self) -> Sequence[tuple[State, str, int]]:
        """Each state with its predicate and its number of claims."""
        numbers = Counter(entry.state for entry in self.entries)
        return [(state, label_of(state, numbers[state]), numbers[state]) for state in LABELS]

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
        used = {
            entry.rows[0]["code"]
            for entry in (*self.in_state("open"), *self.in_state("skipped"))
            if entry.rows
        }
        return [(code, meaning) for code, meaning in MEANINGS.items() if code in used]

    @property
    def differing(self) -> Sequence[Entry]:
        """Claims on which page and code differ, and which do not deviate."""
        return [entry for _section, entries in self.sections for entry in entries if entry.differs]

    def since(self, entry: Entry) -> str:
        """Return since when a claim deviates; empty if no earlier run is known."""
        return str(self._since.get(entry.id, ""))

    def evidence(self, nodeid: str) -> Sequence[tuple[str, str]]:
        """Return name and address of the files of a scenario."""
        folder = rundir.slug(nodeid)
        return [
            (name.partition(".")[0], f"../scenarios/{folder}/{name}")
            for name in EVIDENCE
            if (self.digest.run / "scenarios" / folder / name).is_file()
        ]

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

    def in_state(self, state: State) -> Sequence[Entry]:
        return [entry for _section, entries in self.sections for entry in entries if entry.state == state]
