"""Runs side by side: a matrix of several, the changes from the first to the last one, and versions.

Changes are other verdicts, other settings, and measured times with the settings that moved them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from packaging.version import Version

from nodeproof.model.claim import CONTRARY, MOVED, Claim, Constant, includes, release
from nodeproof.model.formula import SYMBOLS, field_at
from nodeproof.model.overrides import without_source
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import duration_s
from nodeproof.report import digest, page, rundir
from nodeproof.report.digest import Digest, Entry
from nodeproof.report.page import render_template
from nodeproof.report.plain import COLUMNS, LONG, SECTIONS, Section, aligned, on_terminal, wrapped
from nodeproof.report.rundir import Row

Key = tuple[str, str]
"""A component, and the path of a setting in what it reports."""
Times = tuple[float, ...]
"""Measured times of a claim in one run (s), in order."""
Reported = Mapping[str, Mapping[Key, str]]
"""The settings that a run's components reported, by the folder of each scenario."""

ABSENT = "absent"
MAX_ABSENT = 20
"""Claims that are named of those that only one run has: between two kinds of lab they are hundreds."""
_MEASURED, _STATEMENT = 24, 100
"""Characters of a measured value in the matrix, and of a statement before measured times."""
_SYMBOL = re.compile(rf"\b(?:[0-9.]+)?({'|'.join(sorted(SYMBOLS, key=len, reverse=True))})\b")
_CHOOSES_NONE = re.compile(r" (?:--(?:run|source)[= ]|-n[= ]?)\S+")
_SINCE = re.compile(r">=\s*([0-9]+\.[0-9]+)")
_LEAST_CHANGE, _LEAST_CHANGE_S = 0.25, 1.0
"""Change of a median, as a share of the smaller one and in seconds, below which it is noise of one run."""


@dataclass(frozen=True)
class Line:
    """A claim across runs; None for a run that neither judged it nor was to."""

    id: str
    entries: tuple[Entry | None, ...]

    @property
    def entry(self) -> Entry:
        """The claim in the first run that has it."""
        return next(entry for entry in self.entries if entry)

    @property
    def labels(self) -> tuple[str, ...]:
        """The verdict of each run."""
        return tuple(entry.label if entry else ABSENT for entry in self.entries)

    @property
    def is_same(self) -> bool:
        """Whether all runs that have it agree."""
        return len({*self.labels} - {ABSENT}) == 1


@dataclass(frozen=True)
class TimeChange:
    """A claim's times in both runs, and the settings of the claim that differ, in words."""

    claim: Line
    before: Times
    after: Times
    causes: tuple[str, ...] = ()

    @property
    def is_apart(self) -> bool:
        """Whether each run measured several times and no time is in both ranges."""
        several = min(len(self.before), len(self.after)) > 1
        return several and (self.before[-1] < self.after[0] or self.after[-1] < self.before[0])

    @property
    def line(self) -> str:
        """In words: `A node is lost (a.claim): 41.2 s -> 51.3 s; a-period 40 s -> 50 s`."""
        subject, claim = on_terminal(self.claim.id), self.claim.entry.claim
        if claim:
            subject = f"{on_terminal(claim.statement, _STATEMENT).rstrip('.')} ({subject})"
        medians = f"{_seconds(median(self.before))} s -> {_seconds(median(self.after))} s"
        return "; ".join([f"{subject}: {medians}", *self.causes])


@dataclass(frozen=True)
class Setting:
    """A setting that a claim depends on; `share` is the part of it that counts."""

    key: Key
    name: str
    unit: str
    share: float = 1.0
    constant: Constant | None = None

    @classmethod
    def of(cls, constant: Constant) -> Setting:
        """Return the setting that a constant of the catalogue is the default of."""
        return cls((constant.component, constant.reported), constant.name, constant.unit, constant=constant)

    def in_words(self, value: float | str) -> str:
        """Return a value with its unit."""
        return f"{value:g} {self.unit}".strip() if isinstance(value, float) else on_terminal(value)

    def default(self, version: str) -> tuple[float, str] | None:
        """Return the default in a version, and the versions that have it, if the catalogue knows it."""
        values = self.constant.values if self.constant else ()
        with contextlib.suppress(ValueError):
            return next(
                ((value, versions) for versions, value in values if includes(versions, version)), None
            )
        return None


@dataclass(frozen=True)
class Comparison:
    """The claims that at least one run has, under the headings of the page."""

    runs: tuple[Digest, ...]
    sections: Sequence[tuple[Section, Sequence[Line]]]

    @property
    def claims(self) -> Mapping[str, Claim]:
        """The catalogue."""
        return self.runs[0].claims

    @cached_property
    def lines(self) -> Sequence[Line]:
        """All claims, in the order of the page."""
        return [line for _section, lines in self.sections for line in lines]

    @property
    def differing(self) -> int:
        """The number of claims on which runs differ."""
        return sum(not line.is_same for line in self.lines)

    def counts(self, number: int) -> str:
        """Count the claims of one run by state."""
        states = digest.count_states(filter(None, (line.entries[number] for line in self.lines)))
        return ", ".join(f"{count} {label}" for _state, label, count in states if count) or "no verdict"

    @cached_property
    def changes(self) -> Sequence[Line]:
        """Claims whose verdict changed, or which only the first or only the last run has."""
        return [line for line in self.lines if line.labels[0] != line.labels[-1]]

    @cached_property
    def regressions(self) -> Sequence[Line]:
        """Changes for the worse; they make the exit code 1."""
        return [line for line in self.changes if self._is_regression(*line.entries)]

    def _is_regression(self, before: Entry | None, after: Entry | None) -> bool:
        """Return whether a claim deviates that did not, or was proven and should have been again.

        A known deviation is none here.

        A claim that the later run does not have counts if that run is not whole, or was to run the same
        scenarios. A lab kind, profile and version that could prove a claim can prove it again.
        """
        if before is None or before.state not in ("conforms", "deviates", "known"):
            return False
        first, last = self.runs[0], self.runs[-1]
        is_same_setup = without_source(first.setup) == without_source(last.setup)
        if after is None:
            return not last.is_whole or (is_same_setup and _selection(first) == _selection(last) != "")
        if after.state == "skipped":
            return is_same_setup
        return after.state == "open" or (after.state == "deviates" and before.state != "deviates")

    @cached_property
    def settings(self) -> Sequence[tuple[str, str, str]]:
        """The settings that differ, with both values."""
        before, after = self.runs
        pairs = list(zip(("Kubernetes", "lab", "profile"), before.setup, after.setup, strict=False))
        for (component, path), setting in self._constants.items():
            shipped = [setting.default(run.kubernetes_version) for run in self.runs]
            old, new = (f"{setting.in_words(one[0])} ({one[1]})" if one else "" for one in shipped)
            pairs.append((f"default of {setting.name}", old, new))
            old, new = (_most_common(reported, setting.key) for reported in self._reported)
            pairs.append((f"{component} {path}", old, new))
        changed = [(name, on_terminal(old), on_terminal(new)) for name, old, new in pairs if old and new]
        was, now = ({*run.facts.settings} if run.facts else set[str]() for run in self.runs)
        changed += [("not upstream's", on_terminal(setting), "-") for setting in sorted(was - now)]
        changed += [("not upstream's", "-", on_terminal(setting)) for setting in sorted(now - was)]
        return [change for change in changed if change[1] != change[2]]

    @cached_property
    def times(self) -> Sequence[TimeChange]:
        """The times of the claims of which both runs measured any."""
        changes = []
        for line in self.lines:
            before, after = line.entries
            old, new = measured_times(before), measured_times(after)
            if before and after and old and new:
                used = self._used(self.claims.get(line.id), [*before.rows, *after.rows])
                causes = (self._describe_change(setting, (before, after)) for setting in used)
                changes.append(TimeChange(line, old, new, tuple(filter(None, causes))))
        return changes

    def _used(self, claim: Claim | None, rows: Iterable[Row]) -> Iterable[Setting]:
        """Return the settings that a claim depends on: its constants, and the symbols of its windows."""
        own = [Setting.of(constant) for constant in claim.constants] if claim else []
        by_key = {setting.key: setting for setting in own}
        windows = " ".join(row["window"]["arithmetic"] for row in rows if row["window"])
        for name in dict.fromkeys(_SYMBOL.findall(windows)):
            symbol = SYMBOLS[name]
            key = (symbol.component, symbol.path)
            title, _, unit = symbol.meaning.removesuffix(")").partition(" (")
            by_key.setdefault(key, self._constants.get(key, Setting(key, title, unit, symbol.share)))
        return [*own, *(setting for setting in by_key.values() if setting not in own)]

    def _describe_change(self, setting: Setting, entries: tuple[Entry, Entry]) -> str:
        """Return how a setting differs: its reported values, else the defaults; empty if it does not."""
        values = [_value_of(setting, entry, run) for entry, run in zip(entries, self._reported, strict=True)]
        shipped = [setting.default(run.kubernetes_version) for run in self.runs]
        defaults = [default[0] if default else None for default in shipped]
        is_reported = None not in values
        old, new = values if is_reported else defaults
        if old is None or new is None or old == new:
            return ""
        change = f"{setting.name} {setting.in_words(old)} -> {setting.in_words(new)}"
        if not is_reported:
            change = f"default of {change}"
        elif values != defaults:
            return change
        begins = [match[1] for default in shipped if default and (match := _SINCE.search(default[1]))]
        since = max(map(Version, begins), default="")
        return f"{change}, the default changed{f' in {since}' if since else ''}"

    @cached_property
    def _constants(self) -> Mapping[Key, Setting]:
        """The catalogue's constants that a component reports."""
        settings = [Setting.of(constant) for claim in self.claims.values() for constant in claim.constants]
        return {setting.key: setting for setting in settings if setting.key[1]}

    @cached_property
    def _reported(self) -> tuple[Reported, ...]:
        keys = {*self._constants, *((symbol.component, symbol.path) for symbol in SYMBOLS.values())}
        return tuple(_read_reported(run, keys) for run in self.runs)


def compare(runs: Sequence[Digest]) -> Comparison:
    """Put runs side by side."""
    by_run = [{entry.id: entry for entry in run.entries if entry.rows or entry.is_missing} for run in runs]
    names = dict.fromkeys(name for entries in by_run for name in entries)
    lines = {name: Line(name, tuple(entries.get(name) for entries in by_run)) for name in names}
    by_section = digest.by_section(line.entry for line in lines.values())
    sections = [(section, [lines[entry.id] for entry in entries]) for section, entries in by_section]
    return Comparison(tuple(runs), [section for section in sections if section[1]])


def _selection(run: Digest) -> str:
    """Return the command that chose a run's scenarios, without options that choose none; empty if unknown."""
    return _CHOOSES_NONE.sub("", run.facts.command) if run.facts else ""


def measured_times(entry: Entry | None) -> Times:
    """Return the values in seconds of the rows that prove something."""
    rows = entry.rows if entry else ()
    measured = [row["measured"] for row in rows if row["measured"] and row["verdict"] != "unproven"]
    seconds = (value["value"] for value in measured if value["unit"] == "s")
    return tuple(sorted(float(value) for value in seconds if isinstance(value, int | float)))


def _read_reported(run: Digest, keys: Iterable[Key]) -> Reported:
    """Read every scenario's configuration; one that cannot be read reports nothing."""
    by_scenario = {}
    for folder in rundir.entries(run.run / "scenarios"):
        with contextlib.suppress(Problem, KeyError, TypeError):
            reported = rundir.read_json(folder / "configuration.json")["reported"]
            values = {key: _reported_value(reported, *key) for key in keys}
            by_scenario[folder.name] = {key: value for key, value in values.items() if value}
    return by_scenario


def _most_common(reported: Reported, key: Key, folders: Iterable[str] | None = None) -> str:
    """Return the most common value in these scenarios (default: all), or an empty text."""
    names = reported if folders is None else folders
    values = Counter(reported[name][key] for name in names if key in reported.get(name, {}))
    return values.most_common(1)[0][0] if values else ""


def _value_of(setting: Setting, entry: Entry, reported: Reported) -> float | str | None:
    """Return the value in the claim's scenarios, or None if no component reported it."""
    value = _most_common(reported, setting.key, [rundir.slug(row["scenario"]) for row in entry.rows])
    if not value:
        return None
    for number in (duration_s, float):
        try:
            return setting.share * number(value)
        except ValueError:
            continue
    return value


def _reported_value(reported: Json, component: str, path: str) -> str:
    try:
        value = field_at(path, reported[component])
    except (KeyError, TypeError):
        return ""
    return "" if value is None or isinstance(value, dict | list) else str(value)


def matrix_text(comparison: Comparison) -> str:
    """Return the runs by number and a line for each claim; `*` marks claims on which runs differ."""
    parts = []
    for number, run in enumerate(comparison.runs):
        parts.append(f"{number + 1}  {title_of(run)}  {on_terminal(run.name)}: {comparison.counts(number)}")
        parts += [f"   not whole: {on_terminal(sentence)}" for sentence in run.missing]
    rows = [["", "claim", *(str(number) for number in range(1, len(comparison.runs) + 1))]]
    blank = [""] * len(comparison.runs)
    for section, lines in comparison.sections:
        rows += [["", "", *blank], ["", on_terminal(section.title), *blank]]
        rows += [
            ["" if line.is_same else "*", on_terminal(line.id), *map(_cell, line.entries)] for line in lines
        ]
    last = f"claims: {len(comparison.lines)}; runs differ on {comparison.differing}"
    return "\n".join([*parts, "", *aligned(rows), "", last])


def matrix_markdown(comparison: Comparison) -> str:
    """Return one table, with a line for each heading of the page."""
    return _matrix("matrix.md", comparison, known_sections=SECTIONS, columns=COLUMNS)


def matrix_html(comparison: Comparison, folder: Path) -> str:
    """Return a page of this folder; cells link to the pages of the runs that have one."""
    pages = [run.run / "site" / page.FILE for run in comparison.runs]
    links = [page.url_of(os.path.relpath(path, folder.resolve())) if path.is_file() else "" for path in pages]
    return _matrix("matrix.html", comparison, links=links)


def _matrix(template: str, comparison: Comparison, **context: Any) -> str:
    return render_template(template, comparison=comparison, title=title_of, measured=_measured, **context)


def title_of(run: Digest) -> str:
    """Return what a run can prove: version, lab kind, profile and the user's settings."""
    return on_terminal(" ".join(dict.fromkeys(run.setup)))


def _measured(entry: Entry) -> str:
    return on_terminal(entry.measured, _MEASURED)


def _cell(entry: Entry | None) -> str:
    return f"{entry.label} {_measured(entry)}".strip() if entry else "-"


def changes_text(comparison: Comparison) -> str:
    """Return regressions, other changes, settings and times, and last the claims that only one run has."""
    heads, missing = list[str](), list[str]()
    for letter, run in zip("AB", comparison.runs, strict=True):
        setup = ", ".join(run.setup)
        heads.append(f"{letter} {on_terminal(f'{run.name}: Kubernetes {setup}')}; {run.load}")
        missing += [f"{letter} is not whole: {on_terminal(sentence)}" for sentence in run.missing]
    others = [line for line in comparison.changes if line not in comparison.regressions]
    lists = {
        "regressions": [_describe(line, comparison) for line in comparison.regressions],
        "other verdicts": [_describe(line, comparison) for line in others if ABSENT not in line.labels],
        "set otherwise": [f"  {name}: {old} -> {new}" for name, old, new in comparison.settings],
        "measured times in both": list(_times_text(comparison.times)),
    }
    for letter, number in (("A", 0), ("B", 1)):
        only = [line for line in others if line.labels[1 - number] == ABSENT]
        lists[f"only in {letter}"] = [f"  {on_terminal(line.id)}: {line.labels[number]}" for line in only]
    parts = [*heads, *missing]
    for title, items in lists.items():
        most = MAX_ABSENT if title.startswith("only") else len(items)
        more = [f"  and {len(items) - most} more"] if len(items) > most else []
        parts += ["", f"{title}: {len(items)}", *items[:most], *more]
    return "\n".join(parts)


def _times_text(times: Iterable[TimeChange]) -> Iterator[str]:
    """Yield first the times without common values, then those that a setting may have moved."""
    for change in sorted(times, key=lambda change: (not change.is_apart, not change.causes)):
        ranges = f"A {_range(change.before)}; B {_range(change.after)}"
        apart = ": apart" if change.is_apart else ""
        yield "\n".join([*wrapped(change.line, first=2, rest=4), f"      {ranges}{apart}"])


def _range(times: Times) -> str:
    if len(times) == 1:
        return f"{_seconds(times[0])} s once"
    return f"{_seconds(times[0])} to {_seconds(times[-1])} s, n={len(times)}"


def _seconds(time_s: float) -> str:
    """Return as many digits as a reader can use: `41.2`, `2.04`, `0.006`."""
    digits = 1 if abs(time_s) >= 10 else 2 if abs(time_s) >= 1 else 3
    return f"{time_s:.{digits}f}"


def _describe(line: Line, comparison: Comparison) -> str:
    """Return how a verdict changed, and why: a claim that the last run lacks is a regression here."""
    head = f"  {on_terminal(line.id)}: {line.labels[0]} -> {line.labels[-1]}"
    is_whole, after = comparison.runs[-1].is_whole, line.entries[-1]
    absence = "no scenario of the run judged it" if is_whole else "the run is not whole"
    reason = after.reason if after else absence
    if line.labels[-1] == "conforms":
        return head
    return "\n".join([head, *wrapped(reason, LONG, first=6)])


def versions_markdown(comparison: Comparison) -> str:
    """Return a page in Markdown about runs on several versions of Kubernetes, in the order of the runs."""
    claims = comparison.claims
    return render_template(
        "versions.md",
        comparison=comparison,
        title=title_of,
        verdicts=[(line, _cause(line)) for line in comparison.lines if not line.is_same],
        defaults=list(_changed_defaults(comparison)),
        medians=list(_changed_medians(comparison)),
        changes=list(_changes(comparison)),
        sentences=list(untrue_sentences(claims)),
        page_versions=list(dict.fromkeys(version for claim in claims.values() for version in claim.page)),
        marks={True: "✓", False: "✗", None: ""},
        least=_LEAST_CHANGE,
        least_s=_LEAST_CHANGE_S,
    )


def _cause(line: Line) -> str:
    """Return the versions, the difference and the source that the catalogue names, else the runs' reasons."""
    claim, entries = line.entry.claim, filter(None, line.entries)
    if claim and "not-applicable" in " ".join(line.labels):
        parts = [f"holds for {claim.versions}", claim.drift, *claim.sources]
        return "; ".join(on_terminal(part) for part in parts if part)
    reasons = dict.fromkeys(entry.reason for entry in entries if entry.state != "conforms" and entry.reason)
    return "; ".join(on_terminal(reason, LONG) for reason in reasons)


def _changed_defaults(comparison: Comparison) -> Iterator[tuple[Constant, Sequence[str]]]:
    """Yield the defaults whose values differ between the versions of the runs, each once, with the values."""
    constants = {
        (constant.component, constant.name): constant
        for claim in comparison.claims.values()
        for constant in claim.constants
    }
    for constant in constants.values():
        values = [constant.at(run.kubernetes_version) for run in comparison.runs]
        if len({*values}) > 1:
            yield constant, [f"{value:g} {constant.unit}".strip() for value in values]


def _changed_medians(comparison: Comparison) -> Iterator[tuple[Line, Sequence[float | None]]]:
    """Yield the claims whose median time changes from one run to another by more than a run's noise."""
    for line in comparison.lines:
        times = [measured_times(entry) for entry in line.entries]
        medians = [median(values) if values else None for values in times]
        measured_s = [value for value in medians if value is not None]
        if len(measured_s) < 2 or _is_in_one_window(line, measured_s):
            continue
        least_s = max(_LEAST_CHANGE_S, _LEAST_CHANGE * min(measured_s))
        if max(measured_s) - min(measured_s) > least_s:
            yield line, medians


def _is_in_one_window(line: Line, times_s: Sequence[float]) -> bool:
    """Return whether a window admits all these times, which then depend on the phase of a controller."""
    rows = [row for entry in line.entries if entry for row in entry.rows]
    windows = [row["window"] for row in rows if row["window"]]
    return any(window["low_s"] <= min(times_s) and max(times_s) <= window["high_s"] for window in windows)


def _changes(comparison: Comparison) -> Iterator[tuple[str, Claim, str]]:
    """Yield what the catalogue says changed after the oldest minor of the runs, up to the newest one."""
    minors = [release(run.kubernetes_version).minor for run in comparison.runs]
    for claim in comparison.claims.values():
        for minor, text in claim.changed.items():
            if min(minors) < Version(minor).minor <= max(minors):
                yield minor, claim, text


def untrue_sentences(claims: Mapping[str, Claim]) -> Iterator[tuple[Claim, Mapping[str, bool | None]]]:
    """Yield the claims whose sentence was not true in every version of the page that has it.

    Each comes with the truth by version of the page: None if that page does not have the sentence.
    """
    for claim in claims.values():
        truths = {version: _is_true(claim, version) for version in claim.page}
        if False in truths.values():
            yield claim, truths


def _is_true(claim: Claim, page_version: str) -> bool | None:
    """Return whether a page's sentence described the Kubernetes of that page; None if it has no sentence."""
    remark = claim.page[page_version]
    if remark is False or str(remark).startswith(MOVED):
        return None
    kubernetes = f"{page_version}.0"
    if str(remark).startswith(CONTRARY) or not includes(claim.versions, kubernetes):
        return False
    documented = (constant for constant in claim.constants if constant.page_value is not None)
    return all(constant.page_value == constant.at(kubernetes) for constant in documented)
