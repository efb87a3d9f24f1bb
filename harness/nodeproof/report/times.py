"""Measured times of two runs beside each other, in words, and the settings by which they moved."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodeproof.model.claim import Claim, Constant, includes
from nodeproof.model.duration import duration_s
from nodeproof.model.problem import Problem
from nodeproof.model.symbols import SYMBOLS
from nodeproof.report import files, rundir
from nodeproof.report.digest import Digest, Entry
from nodeproof.report.plain import on_terminal
from nodeproof.report.table import COLUMNS

Json = Any
Key = tuple[str, str]
"""A component, and the path of a setting in what it reports."""
_STATEMENT = 100
"""Characters of a claim's statement."""
_SYMBOL = re.compile(rf"\b(?:[0-9.]+)?({'|'.join(sorted(SYMBOLS, key=len, reverse=True))})\b")
_SINCE = re.compile(r">=\s*([0-9]+\.[0-9]+)")


@dataclass(frozen=True)
class Times:
    """What a claim measured in one run (s), in order; there is at least one."""

    values_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle one."""
        return median(self.values_s)

    def meets(self, other: Times) -> bool:
        """Whether they have values in common, from least to most."""
        return self.values_s[0] <= other.values_s[-1] and other.values_s[0] <= self.values_s[-1]

    def __str__(self) -> str:
        least, most = self.values_s[0], self.values_s[-1]
        if len(self.values_s) == 1:
            return f"{_number(least)} s once"
        return f"{_number(least)} to {_number(most)} s, n={len(self.values_s)}"


@dataclass(frozen=True)
class Moved:
    """A claim's times in both runs; `because` says each setting that it uses and that differs."""

    claim: str
    before: Times
    after: Times
    statement: str = ""
    because: tuple[str, ...] = ()

    @property
    def is_apart(self) -> bool:
        """Whether several were measured and the runs have no value in common."""
        several = min(len(self.before.values_s), len(self.after.values_s)) > 1
        return several and not self.before.meets(self.after)

    @property
    def line(self) -> str:
        """In words: `A node is lost (a.claim): 41.2 s -> 51.3 s; a-period 40 s -> 50 s`."""
        name, said = on_terminal(self.claim), on_terminal(self.statement, _STATEMENT).rstrip(".")
        medians = f"{_number(self.before.median_s)} s -> {_number(self.after.median_s)} s"
        return "; ".join([f"{said} ({name}): {medians}" if said else f"{name}: {medians}", *self.because])


@dataclass(frozen=True)
class Configured:
    """What a run's components reported of these settings, by the folder of each scenario."""

    version: str
    told: Mapping[str, Mapping[Key, str]]

    @classmethod
    def of(cls, run: Digest, keys: Iterable[Key]) -> Configured:
        """Reads every scenario's configuration; one that cannot be read tells nothing."""
        asked, told = sorted(set(keys)), {}
        for folder in files.entries(run.run / "scenarios"):
            try:
                reported = rundir.read_json(folder / "configuration.json")["reported"]
            except (Problem, KeyError, TypeError):
                continue
            values = {key: _at(reported, *key) for key in asked}
            told[folder.name] = {key: value for key, value in values.items() if value}
        return cls(run.kubernetes_version, told)

    def mostly(self, key: Key, folders: Iterable[str] | None = None) -> str:
        """What most of these scenarios were told, or most of all; empty where none was."""
        asked = self.told if folders is None else folders
        seen = Counter(self.told[name][key] for name in asked if key in self.told.get(name, {}))
        return seen.most_common(1)[0][0] if seen else ""


@dataclass(frozen=True)
class _Setting:
    key: Key
    name: str
    unit: str
    share: float = 1.0
    constant: Constant | None = None

    def in_words(self, value: float | str) -> str:
        return f"{value:g} {self.unit}".strip() if isinstance(value, float) else on_terminal(value)


def moved(
    before: Entry | None,
    after: Entry | None,
    runs: tuple[Configured, Configured],
    claims: Mapping[str, Claim],
    constants: Mapping[Key, Constant],
) -> Moved | None:
    """A claim's times, where both runs measured any; `constants` are the catalogue's that are reported."""
    if before is None or after is None:
        return None
    old, new = _times(before), _times(after)
    if not old or not new:
        return None
    claim, rows = claims.get(before.id), [*before.rows, *after.rows]
    windows = " ".join(row["window"]["arithmetic"] for row in rows if row["window"])
    told = (_because(each, (before, after), runs) for each in _used(claim, windows, constants))
    return Moved(before.id, old, new, claim.statement if claim else "", tuple(filter(None, told)))


def lines(times: Sequence[Moved]) -> Iterator[str]:
    """For a terminal: what has no value in common first, then what a setting may have moved."""
    for each in sorted(times, key=lambda each: (not each.is_apart, not each.because)):
        yield from textwrap.wrap(
            each.line, COLUMNS, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
        yield f"      A {each.before}; B {each.after}{': apart' if each.is_apart else ''}"


def default(constant: Constant, version: str) -> tuple[float, str] | None:
    """A constant, and the versions that have it; None where the catalogue does not say."""
    try:
        found = [(value, versions) for versions, value in constant.values if includes(versions, version)]
    except ValueError:
        return None
    return found[0] if found else None


def _times(entry: Entry) -> Times | None:
    """What was measured in seconds, where the verdict stands on it."""
    told = [row["measured"] for row in entry.rows if row["verdict"] != "unproven"]
    values = [
        float(each["value"])
        for each in told
        if each and each["unit"] == "s" and isinstance(each["value"], int | float)
    ]
    return Times(tuple(sorted(values))) if values else None


def _used(claim: Claim | None, windows: str, constants: Mapping[Key, Constant]) -> Iterator[_Setting]:
    """The settings of a claim: its constants, and the symbols of its windows."""
    own = claim.constants if claim else ()
    for constant in own:
        yield _Setting((constant.component, constant.reported), constant.name, constant.unit, 1.0, constant)
    known = {(constant.component, constant.reported) for constant in own}
    for found in dict.fromkeys(_SYMBOL.findall(windows)):
        symbol = SYMBOLS[found]
        key = (symbol.component, symbol.path)
        if key in known:
            continue
        if key in constants:
            yield _Setting(key, constants[key].name, constants[key].unit, 1.0, constants[key])
        else:
            name, _, unit = symbol.meaning.removesuffix(")").partition(" (")
            yield _Setting(key, name, unit, symbol.share)


def _because(setting: _Setting, entries: tuple[Entry, Entry], runs: tuple[Configured, Configured]) -> str:
    """That a setting differs: as it ran, or else by the default of each version; empty where it does not."""
    ran = [_ran(setting, entry, run) for entry, run in zip(entries, runs, strict=True)]
    known = [default(setting.constant, run.version) if setting.constant else None for run in runs]
    defaults = [each[0] if each else None for each in known]
    old, new = ran if None not in ran else defaults
    if old is None or new is None or old == new:
        return ""
    said = f"{setting.name} {setting.in_words(old)} -> {setting.in_words(new)}"
    if ran == defaults:
        return f"{said}, {_changed(known)}"
    return said if None not in ran else f"default of {said}, {_changed(known)}"


def _changed(known: Sequence[tuple[float, str] | None]) -> str:
    """Since when the later version's default holds: the later of both begins."""
    begin = [found[1] for each in known if each and (found := _SINCE.search(each[1]))]
    since = max(begin, key=lambda version: [int(part) for part in version.split(".")], default="")
    return f"the default changed in {since}" if since else "the default changed"


def _ran(setting: _Setting, entry: Entry, run: Configured) -> float | str | None:
    """What the claim's scenarios ran with; None where no component told."""
    value = run.mostly(setting.key, [rundir.slug(row["scenario"]) for row in entry.rows])
    if not value:
        return None
    for number in (duration_s, float):
        try:
            return setting.share * number(value)
        except ValueError:
            continue
    return value


def _at(reported: Json, component: str, path: str) -> str:
    value = reported.get(component) if isinstance(reported, dict) else None
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _number(seconds: float) -> str:
    """As exact as a reader can use: `41.2`, `2.04`, `0.006`."""
    digits = 1 if abs(seconds) >= 10 else 2 if abs(seconds) >= 1 else 3
    return f"{seconds:.{digits}f}"
