"""Two runs beside each other: other verdicts, other times, another configuration."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodeproof.model.claim import Claim, Constant
from nodeproof.model.symbols import SYMBOLS
from nodeproof.report import digest, rechecked, times
from nodeproof.report.digest import Digest, Entry
from nodeproof.report.plain import on_terminal
from nodeproof.report.sections import SECTIONS
from nodeproof.report.table import COLUMNS
from nodeproof.report.times import Configured, Key, Moved

SAME, REGRESSION = 0, 1
PROVEN = ("conforms", "deviates")
ABSENT = "absent"
MOST_ABSENT = 20
"""Claims that are named of those that only one run has: of two kinds of lab they are hundreds."""


@dataclass(frozen=True)
class Change:
    """A claim whose verdict is another one; a label is `absent` where only the other run has the claim."""

    claim: str
    before: str
    after: str
    reason: str
    is_regression: bool


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
    changes = [_change(name, old.get(name), new.get(name), (before, after)) for name in ordered]
    constants = {
        (constant.component, constant.reported): constant
        for claim in claims.values()
        for constant in claim.constants
        if constant.reported
    }
    keys = [*constants, *((symbol.component, symbol.path) for symbol in SYMBOLS.values())]
    ran = (Configured.of(before, keys), Configured.of(after, keys))
    both = [times.moved(old.get(name), new.get(name), ran, claims, constants) for name in ordered]
    return Comparison(
        before,
        after,
        tuple(change for change in changes if change is not None),
        tuple(moved for moved in both if moved is not None),
        tuple(_settings(before, after, ran, constants)),
    )


def is_regression(before: Entry | None, after: Entry | None, runs: tuple[Digest, Digest]) -> bool:
    """Whether a claim is worse off: it conformed and deviates, or it was proven and should have been again.

    A claim that the later run does not have counts where that run is not whole. What a kind of lab, a profile
    and a version could prove once they can prove again.
    """
    if before is None or before.state not in PROVEN:
        return False
    if after is None:
        return not runs[1].is_whole
    if after.state == "skipped":
        return _ground(runs[0]) == _ground(runs[1])
    return after.state == "open" or (before.state, after.state) == PROVEN


def _ground(run: Digest) -> tuple[str, str, str]:
    """What a run could prove depends on: its kind of lab, its profile, its version."""
    return run.lab, run.profile, run.kubernetes_version


def render(found: Comparison) -> str:
    """For a terminal: regressions first, then what else changed, what is set otherwise, times, and in the end
    what only one of both has.
    """
    runs = [f"{sign} {_told(run)}; {run.load}" for sign, run in (("A", found.before), ("B", found.after))]
    parts = [*runs, *_not_whole(found)]
    others = [change for change in found.changes if not change.is_regression]
    both = [change for change in others if ABSENT not in (change.before, change.after)]
    parts += _listed("regressions", [_worded(change) for change in found.regressions])
    parts += _listed("other verdicts", [_worded(change) for change in both])
    parts += _listed("set otherwise", [f"  {name}: {old} -> {new}" for name, old, new in found.settings])
    parts += _listed("measured times in both", list(times.lines(found.times)), len(found.times))
    for title, gone in (("only in A", True), ("only in B", False)):
        names = [change for change in others if (change.after if gone else change.before) == ABSENT]
        worded = [f"  {on_terminal(each.claim)}: {each.before if gone else each.after}" for each in names]
        rest = [f"  and {len(worded) - MOST_ABSENT} more"] if len(worded) > MOST_ABSENT else []
        parts += _listed(title, [*worded[:MOST_ABSENT], *rest], len(worded))
    return "\n".join(parts)


def _told(run: Digest) -> str:
    """What it ran on, as its files say it."""
    name = rechecked.named(run.run)
    return on_terminal(f"{name}: Kubernetes {run.kubernetes_version}, {run.lab}, {run.profile}")


def _by_id(run: Digest) -> Mapping[str, Entry]:
    return {entry.id: entry for entry in digest.entries(run, {})}


def _place(name: str) -> tuple[int, str]:
    """Claims in the order of the page."""
    area = name.partition(".")[0]
    places = (at for at, section in enumerate(SECTIONS) if area in section.areas)
    return next(places, len(SECTIONS)), name


def _change(
    name: str, before: Entry | None, after: Entry | None, runs: tuple[Digest, Digest]
) -> Change | None:
    old, new = (entry.label if entry else ABSENT for entry in (before, after))
    if old == new:
        return None
    worse = is_regression(before, after, runs)
    told = after or before
    reason = told.rows[0]["reason"] if told and told.rows else told.silence if told else ""
    if after is None:
        reason = "the run is not whole" if worse else ""
    return Change(name, old, new, reason, worse)


def _settings(
    before: Digest, after: Digest, ran: tuple[Configured, Configured], constants: Mapping[Key, Constant]
) -> Iterator[tuple[str, str, str]]:
    for name, told in (("Kubernetes", "kubernetes_version"), ("lab", "lab"), ("profile", "profile")):
        yield from _differing(name, getattr(before, told), getattr(after, told))
    for key, constant in constants.items():
        old, new = (_default(constant, run.kubernetes_version) for run in (before, after))
        yield from _differing(f"default of {constant.name}", old, new)
        yield from _differing(f"{constant.component} {constant.reported}", *(run.mostly(key) for run in ran))
    was, now = (set(run.facts.settings) if run.facts else set() for run in (before, after))
    yield from (("not upstream's", on_terminal(setting), "-") for setting in sorted(was - now))
    yield from (("not upstream's", "-", on_terminal(setting)) for setting in sorted(now - was))


def _differing(name: str, old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """What is known of both and differs."""
    if old and new and old != new:
        yield name, on_terminal(old), on_terminal(new)


def _default(constant: Constant, version: str) -> str:
    """A constant with its unit, and the versions that have it; empty where the catalogue does not say."""
    found = times.default(constant, version)
    return f"{f'{found[0]:g} {constant.unit}'.strip()} ({found[1]})" if found else ""


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
