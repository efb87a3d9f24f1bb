"""Runs as a web site: of each what may be seen, and a page that lists them, newest first.

<folder>/index.html                       the list
<folder>/<run>/published.json             that it is a copy, when the run began, and when the copy was made
<folder>/<run>/run.json  verdicts.json    as in the run, with declared-claims.json, by which it is known which
                                          scenario has no verdict, and what was judged again its recheck.json
<folder>/<run>/site/                      the page, judged, written anew, and Allure's page where this user's
                                          nodeproof built it (`seal.py`)
<folder>/<run>/scenarios/<slug>/          what the page links to, and judgments.json

A run that was judged again, which lies in its RUN/recheck, is RUN-recheck here.

Logs of labs, the audit log and Allure's results stay behind, and so does what a link leads to: that may lie
outside the run. A page that somebody else built may hold any script, which would run beside all other
runs: it stays behind, too. What is copied is cleaned of secrets once more (`cleaned.py`), as a run of an
earlier version may have some, and the page is made of the clean copy.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import (
    cleaned,
    digest,
    evidence,
    facts_left,
    files,
    html,
    moments,
    page,
    places,
    rechecked,
    rundir,
    seal,
)
from nodeproof.report.digest import Digest, State
from nodeproof.report.evidence import Finder
from nodeproof.report.page import View

Json = Any
INDEX, MARK, KEEP = "index.html", places.PUBLISHED, 30
_OWN = "<!-- nodeproof publish -->"
"""In the template: by it a list is told from somebody's own page."""
_PARTIAL = ".nodeproof-partial-"
_NEVER = datetime.min.replace(tzinfo=UTC)
_OF_A_RUN = ("run.json", "verdicts.json", rundir.DECLARED, rechecked.FILE)
_OF_A_SCENARIO = (*evidence.FILES, "judgments.json")


@dataclass(frozen=True)
class Shown:
    """A published run as the list has it; an address is empty where there is no such page."""

    name: str
    began: str
    """To the minute, in UTC; empty where nothing tells."""
    view: View
    judged: str
    allure: str

    @property
    def counts(self) -> Sequence[tuple[State, str, int]]:
        """How many claims are in each state; states without any are out."""
        return [each for each in self.view.counts if each[2] and each[0] != "silent"]

    @property
    def worst(self) -> str:
        """The state that decides how the run looks."""
        return next((state for state, _label, _number in self.counts), "silent")


@dataclass(frozen=True)
class Copy:
    """A published run, which has its place among the others also where it cannot be read."""

    name: str
    when: datetime
    """When it began; where nothing tells, when it was published."""
    shown: Shown | None
    unread: str = ""
    """Why it cannot be read."""


@dataclass(frozen=True)
class Published:
    """What came of it: the list, the runs on it, those that were removed, and why others cannot be read."""

    index: Path
    runs: tuple[str, ...]
    removed: tuple[str, ...]
    unread: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    """Those of which Allure's page stayed behind, as it was built elsewhere."""


def publish(
    folder: Path, runs: Sequence[Path], claims: Mapping[str, Claim], keep: int = KEEP, mib: int = 0
) -> Published:
    """Copy runs into a folder, list all that are there, and remove all but the `keep` newest.

    Of these the oldest go until all have at most so many MiB together, where that is not 0; the newest stays.

    A run that is there already is replaced; only copies are ever removed. Raises Problem, before anything is
    written, where one is no run, where another run or somebody's own page has its place, where the folder
    lies in a run, for a `keep` below 1 and a `mib` below 0; and where the folder cannot be written.
    """
    if keep < 1:
        raise Problem("a site without runs shows nothing", f"--keep {keep}", "keep 1 at least")
    if mib < 0:
        raise Problem("runs cannot be so small", f"--mib {mib}", "give a number of MiB, or 0 for no limit")
    found = [digest.read(run) for run in runs]
    _refuse(folder, found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left)
        for each in found:
            _copy(each, folder, claims)
        copies, foreign = _copies(folder, claims)
        stay = _stay([folder / each.name for each in copies[:keep]], mib)
        shown = [each.shown for each in copies[:stay] if each.shown]
        unread = foreign + [f"{each.name}: {each.unread}" for each in copies[:stay] if each.unread]
        index = html.write(folder / INDEX, html.render("publish.html", runs=shown, unread=unread))
        for old in copies[stay:]:
            shutil.rmtree(folder / old.name)
    except OSError as error:
        next_step = "name a folder of yours with space left"
        raise Problem("runs cannot be published there", str(folder), next_step, str(error)) from error
    kept, removed = (tuple(each.name for each in part) for part in (shown, copies[stay:]))
    elsewhere = tuple(str(each.run) for each in found if _is_foreign(each.run / "site" / INDEX))
    return Published(index, kept, removed, tuple(unread), elsewhere)


def _stay(runs: Sequence[Path], mib: int) -> int:
    """How many of these runs, newest first, are no larger together: one at least, and all where it is 0."""
    sizes = [sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) for run in runs]
    totals = accumulate(sizes)
    fitting = sum(total <= mib * 2**20 for total in totals)
    return max(1, fitting) if mib else len(runs)


def _refuse(folder: Path, found: Sequence[Digest]) -> None:
    """Raises Problem where a copy would harm something, or two runs would be one."""
    index, other = folder / INDEX, "name another folder to publish into"
    if any(folder.resolve().is_relative_to(each.run) for each in found):
        raise Problem("a run cannot be published into itself", str(folder), other)
    places.refuse_inside(folder, "runs cannot be published into a run")
    if index.exists() and not (index.is_file() and _OWN in index.read_text(errors="replace")):
        raise Problem("there is a page that nodeproof did not write", str(index), other)
    names = [_name(each) for each in found]
    for each, name in zip(found, names, strict=True):
        place, rename = folder / name, f"rename {_recorded(each)}"
        if name == INDEX or name.startswith(".") or names.count(name) > 1:
            raise Problem("a run needs a name of its own on a site", str(each.run), rename)
        if place.exists() and not (place / MARK).is_file():
            raise Problem("what is there is no published run", str(place), other)
        if place.exists() and not _is_same(each, place):
            raise Problem("another run of that name is published", str(place), rename)


def _name(found: Digest) -> str:
    """What a run is called on a site; all that were judged again are called alike where they lie."""
    is_in_its_run = found.is_judged_again and found.run.name == rechecked.FOLDER
    return f"{found.run.parent.name}-{rechecked.FOLDER}" if is_in_its_run else found.run.name


def _recorded(found: Digest) -> Path:
    """The folder that gives a run its name."""
    return found.run.parent if found.run.name != _name(found) else found.run


def _is_same(found: Digest, place: Path) -> bool:
    """Whether what is published there is this run, as far as both tell."""
    if rechecked.is_one(place) != found.is_judged_again:
        return False
    with contextlib.suppress(Problem):
        there = rundir.read_facts(place)
        return not found.facts or found.facts.began == there.began
    return True


def _began(found: Digest) -> str:
    """When a run began, as far as what it left tells."""
    with contextlib.suppress(Problem):
        return facts_left.read(found).began
    return ""


def _copy(found: Digest, folder: Path, claims: Mapping[str, Claim]) -> None:
    """Copy one run beside its place, and put it there once it is whole. Raises OSError."""
    run, name = found.run, _name(found)
    place = folder / name
    partial, old = (folder / f"{_PARTIAL}{part}-{name}" for part in ("new", "old"))
    partial.mkdir()
    for source, target in _taken(run, partial):
        target.parent.mkdir(parents=True, exist_ok=True)
        cleaned.copy(source, target)
    (partial / "scenarios").mkdir(exist_ok=True)
    (partial / "site").mkdir(exist_ok=True)
    # What is told is the copy's; its links, its neighbours and what it put aside are the run's.
    told = replace(digest.read(partial), run=run, load=found.load)
    html.write(partial / "site" / page.FILE, page.render(told, claims))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rundir.write_json(partial / MARK, {"run": name, "began": _began(found), "published": now})
    if place.exists():
        place.rename(old)
    partial.rename(place)
    if old.exists():
        shutil.rmtree(old)


def _taken(run: Path, into: Path) -> Iterator[tuple[Path, Path]]:
    """What of a run may be published, each file with its place."""
    yield from _files([run / name for name in _OF_A_RUN], into)
    pages = [path for path in files.entries(run / "site") if path.name == INDEX and not _is_foreign(path)]
    yield from _files(pages, into / "site")
    for scenario in files.entries(run / "scenarios"):
        shown = [path for path in files.entries(scenario) if path.name in _OF_A_SCENARIO]
        yield from _files(shown, into / "scenarios" / scenario.name)


def _files(paths: Iterable[Path], into: Path) -> Iterator[tuple[Path, Path]]:
    """Those of some paths that are files, and no links."""
    return ((path, into / path.name) for path in paths if path.is_file() and not path.is_symlink())


def _is_foreign(index: Path) -> bool:
    """Whether Allure's page is there, and nothing proves that this user's nodeproof built it."""
    return index.is_file() and not seal.is_whole(index)


def _copies(folder: Path, claims: Mapping[str, Claim]) -> tuple[list[Copy], list[str]]:
    """What is published in a folder, the newest first; and what only looks like it, and is left alone."""
    copies, foreign = [], []
    for mark in sorted(folder.glob(f"*/{MARK}")):
        if mark.parent.is_symlink():
            continue
        if told := _marked(mark):
            copies.append(_read(mark.parent, told, claims))
        else:
            foreign.append(
                f"{mark.parent.name}: its {MARK} is none of nodeproof: remove what it should not be"
            )
    return sorted(copies, key=lambda each: (each.when, each.name), reverse=True), foreign


def _marked(mark: Path) -> Mapping[str, Json]:
    """What a copy says of itself; nothing where that is no mark."""
    with contextlib.suppress(Problem):
        told = rundir.read_json(mark)
        if isinstance(told, dict) and moments.read(told.get("published")):
            return told
    return {}


def _read(run: Path, mark: Mapping[str, Json], claims: Mapping[str, Claim]) -> Copy:
    published = moments.read(mark["published"]) or _NEVER
    # Of a run that was killed before its first scenario, earlier versions copied nothing.
    if not (run / "scenarios").exists():
        (run / "scenarios").mkdir()
    try:
        found = digest.read(run)
    except Problem as problem:
        return Copy(run.name, published, None, problem.what)
    began = next((told for told in (_began(found), mark.get("began")) if moments.read(told)), "")
    return Copy(run.name, moments.read(began) or published, _shown(found, str(began), claims))


def _shown(found: Digest, began: str, claims: Mapping[str, Claim]) -> Shown:
    run, when = found.run, f"{began[:16].replace('T', ' ')} UTC" if began else ""
    judged, allure = (
        html.address(f"{run.name}/site/{name}") if (run / "site" / name).is_file() else ""
        for name in (page.FILE, INDEX)
    )
    return Shown(run.name, when, View(found, claims, Finder(run, {})), judged, allure)
