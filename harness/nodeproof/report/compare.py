"""Two runs beside each other: other verdicts, other times, another configuration."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodeproof.model.claim import Claim, Constant, includes
from nodeproof.model.problem import Problem
from nodeproof.report import digest, rundir
from nodeproof.report.digest import Digest, Entry
from nodeproof.report.plain import on_terminal
from nodeproof.report.sections import SECTIONS
from nodeproof.report.table import COLUMNS

Json = Any
SAME, REGRESSION = 0, 1
PROVEN = ("conforms", "deviates")
ABSENT = "absent"


@dataclass(frozen=True)
class Change:
    """A claim whose verdict is another one; a label is `absent` where only the other run has the claim."""

    claim: str
    before: str
    after: str
    reason: str
    is_regression: bool


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


@dataclass(frozen=True)
class Moved:
    """A claim's times in both runs."""

    claim: str
    before: Times
    after: Times

    @property
    def is_apart(self) -> bool:
        """Whether several were measured and the runs have no value in common."""
        return min(len(self.before.values_s), len(self.after.values_s)) > 1 and not self.before.meets(
            self.after
        )


@dataclass(frozen=True)
class Comparison:
    """What is not the same in two runs."""

    before: Digest
    after: Digest
    changes: tuple[Change, ...]
    times: tuple[Moved, ...]
    settings: tuple[tuple[str, str, str], ...]
    """A name, its value before, and its value after."""

    @property
    def regressions(self) -> tuple[Change, ...]:
        """Changes for the worse, by `is_regression`."""
        return tuple(change for change in self.changes if change.is_regression)

    @property
    def exit_code(self) -> int:
        """1 where anything regressed."""
        return REGRESSION if self.regressions else SAME


def compare(before: Digest, after: Digest, claims: Mapping[str, Claim]) -> Comparison:
    """Compare two runs; `claims` tell which defaults changed between their versions."""
    old, new = (_by_id(run) for run in (before, after))
    ordered = sorted({**old, **new}, key=_place)
    changes = [_change(name, old.get(name), new.get(name), after) for name in ordered]
    times = [_moved(name, old.get(name), new.get(name)) for name in ordered]
    return Comparison(
        before,
        after,
        tuple(change for change in changes if change is not None),
        tuple(moved for moved in times if moved is not None),
        tuple(_settings(before, after, claims)),
    )


def is_regression(before: Entry | None, after: Entry | None, *, after_is_whole: bool) -> bool:
    """Whether a claim is worse off: it conformed and deviates, or it was proven and should have been again.

    A claim that the later run does not have counts where that run is not whole.
    """
    if before is None or before.state not in PROVEN:
        return False
    if after is None:
        return not after_is_whole
    return after.state == "open" or (before.state, after.state) == PROVEN


def render(found: Comparison) -> str:
    """For a terminal: regressions first, then what else changed, what is set otherwise, and times."""
    runs = [f"{sign} {_told(run)}; {run.load}" for sign, run in (("A", found.before), ("B", found.after))]
    parts = [*runs, *_not_whole(found)]
    others = [change for change in found.changes if not change.is_regression]
    both = [change for change in others if ABSENT not in (change.before, change.after)]
    parts += _listed("regressions", [_worded(change) for change in found.regressions])
    parts += _listed("other verdicts", [_worded(change) for change in both])
    for title, gone in (("only in A", True), ("only in B", False)):
        names = [change for change in others if (change.after if gone else change.before) == ABSENT]
        worded = [f"  {on_terminal(each.claim)}: {each.before if gone else each.after}" for each in names]
        parts += _listed(title, worded)
    parts += _listed("set otherwise", [f"  {name}: {old} -> {new}" for name, old, new in found.settings])
    parts += _listed("measured times in both (s)", _time_lines(found.times), len(found.times))
    return "\n".join(parts)


def _told(run: Digest) -> str:
    """What it ran on, as its files say it."""
    return on_terminal(f"{run.run.name}: Kubernetes {run.kubernetes_version}, {run.lab}, {run.profile}")


def _by_id(run: Digest) -> Mapping[str, Entry]:
    return {entry.id: entry for entry in digest.entries(run, {})}


def _place(name: str) -> tuple[int, str]:
    """Claims in the order of the page."""
    area = name.partition(".")[0]
    places = (at for at, section in enumerate(SECTIONS) if area in section.areas)
    return next(places, len(SECTIONS)), name


def _change(name: str, before: Entry | None, after: Entry | None, run: Digest) -> Change | None:
    old, new = (entry.label if entry else ABSENT for entry in (before, after))
    if old == new:
        return None
    worse = is_regression(before, after, after_is_whole=run.is_whole)
    told = after or before
    reason = told.rows[0]["reason"] if told and told.rows else told.silence if told else ""
    if after is None:
        reason = "the run is not whole" if worse else ""
    return Change(name, old, new, reason, worse)


def _moved(name: str, before: Entry | None, after: Entry | None) -> Moved | None:
    old, new = (_times(entry) for entry in (before, after))
    return Moved(name, old, new) if old and new else None


def _times(entry: Entry | None) -> Times | None:
    """What was measured in seconds, where the verdict stands on it."""
    told = [row["measured"] for row in entry.rows if row["verdict"] != "unproven"] if entry else []
    values = [
        float(each["value"])
        for each in told
        if each and each["unit"] == "s" and isinstance(each["value"], int | float)
    ]
    return Times(tuple(sorted(values))) if values else None


def _settings(before: Digest, after: Digest, claims: Mapping[str, Claim]) -> Iterator[tuple[str, str, str]]:
    for name, told in (("Kubernetes", "kubernetes_version"), ("lab", "lab"), ("profile", "profile")):
        yield from _differing(name, getattr(before, told), getattr(after, told))
    constants = {
        (constant.component, constant.reported): constant
        for claim in claims.values()
        for constant in claim.constants
        if constant.reported
    }
    running = [_running(run, list(constants.values())) for run in (before, after)]
    for key, constant in constants.items():
        old, new = (_default(constant, run.kubernetes_version) for run in (before, after))
        if old and new and old != new:
            yield f"default of {constant.name}", f"{old[0]} ({old[1]})", f"{new[0]} ({new[1]})"
        yield from _differing(
            f"{constant.component} {constant.reported}", *(run.get(key, "") for run in running)
        )
    was, now = (set(run.facts.settings) if run.facts else set() for run in (before, after))
    yield from (("not upstream's", on_terminal(setting), "-") for setting in sorted(was - now))
    yield from (("not upstream's", "-", on_terminal(setting)) for setting in sorted(now - was))


def _differing(name: str, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """What is known of both and differs."""
    if old and new and old != new:
        yield name, on_terminal(old), on_terminal(new)


def _default(constant: Constant, version: str) -> tuple[str, str] | None:
    """A constant with its unit, and the versions that have it; None where the catalogue does not say."""
    with contextlib.suppress(ValueError):
        for versions, value in constant.values:
            if includes(versions, version):
                return f"{value:g} {constant.unit}".strip(), versions
    return None


def _running(run: Digest, constants: Sequence[Constant]) -> Mapping[tuple[str, str], str]:
    """What components reported of these in most scenarios, by component and path."""
    seen: dict[tuple[str, str], Counter[str]] = {}
    for path in sorted((run.run / "scenarios").glob("*/configuration.json")):
        try:
            reported = rundir.read_json(path)["reported"]
        except (Problem, KeyError, TypeError):
            continue
        for constant in constants:
            value = _at(reported, constant)
            if value:
                seen.setdefault((constant.component, constant.reported), Counter())[value] += 1
    return {key: told.most_common(1)[0][0] for key, told in seen.items()}


def _at(reported: Json, constant: Constant) -> str:
    value = reported.get(constant.component) if isinstance(reported, dict) else None
    for part in constant.reported.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _not_whole(found: Comparison) -> list[str]:
    return [
        f"{sign} is not whole: {on_terminal(said)}"
        for sign, run in (("A", found.before), ("B", found.after))
        for said in run.missing
    ]


def _listed(title: str, lines: Sequence[str], count: int | None = None) -> list[str]:
    return ["", f"{title}: {len(lines) if count is None else count}", *lines]


def _worded(change: Change) -> str:
    head = f"  {on_terminal(change.claim)}: {change.before} -> {change.after}"
    if not change.reason or change.after == "conforms":
        return head
    reason = on_terminal(change.reason)
    indent = "      "
    return "\n".join([head, *textwrap.wrap(reason, COLUMNS, initial_indent=indent, subsequent_indent=indent)])


def _time_lines(times: Sequence[Moved]) -> list[str]:
    """Medians, then how many with least and most; what has no value in common comes first."""
    ordered = sorted(times, key=lambda each: not each.is_apart)
    cells = [("claim", "median", "A: n, least to most", "B: n, least to most", "")]
    for each in ordered:
        medians = f"{each.before.median_s:.3f} -> {each.after.median_s:.3f}"
        apart = "apart" if each.is_apart else ""
        cells.append((on_terminal(each.claim), medians, _spread(each.before), _spread(each.after), apart))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not times:
        return []
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _spread(times: Times) -> str:
    least, most = times.values_s[0], times.values_s[-1]
    return f"{len(times.values_s)}: {least:.3f} to {most:.3f}"
