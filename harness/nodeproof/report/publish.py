"""Runs as a web site: the public part of each run, and a page that lists them, newest first.

<folder>/index.html                       the list
<folder>/<run>/published.json             marks a copy: when the run began, and when the copy was made
<folder>/<run>/run.json  verdicts.json    as in the run, with declared-claims.json, which shows scenarios
                                          without a verdict, and recheck.json of a rechecked run
<folder>/<run>/site/                      the page, written again, and Allure's page if this user's nodeproof
                                          built it (`rundir.seal`)
<folder>/<run>/scenarios/<slug>/          what the page links to, and judgments.json

A rechecked run, in its RUN/recheck, is RUN-recheck here.

Lab logs, the audit log, Allure's results and targets of links, which may be outside the run, are not copied,
nor is an Allure page built elsewhere: it may contain any script, which would run beside all other runs. Files
are redacted once more, as a run of an earlier version may contain secrets, and the page is made from the
redacted copy.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem
from nodeproof.report import digest, page, rundir
from nodeproof.report.digest import Digest

INDEX, KEEP = "index.html", 30
_OWN = "<!-- nodeproof publish -->"
"""Marks the list, in its template."""
_PARTIAL = ".nodeproof-partial-"
_OF_A_RUN = (rundir.RUN, rundir.VERDICTS, rundir.DECLARED, rundir.CHANGES)
_OF_A_SCENARIO = (*digest.EVIDENCE, "judgments.json")
_LOSSLESS = "utf-8", "surrogateescape"
_EMBEDDED = re.compile(r'(?:\bd\("[^"]*","|data:[a-z]+/([a-z0-9.+-]+);base64,)([A-Za-z0-9+/]+={0,2})(?=")')
"""Data in Allure's page: `d("data/test-results/….json","BASE64")`, `src="data:text/javascript;base64,…"`."""
_PROGRAM = "javascript"


@dataclass(frozen=True)
class Copy:
    """A published run, with what its entry on the list shows."""

    folder: Path
    when: datetime
    """When the run began; if that is unknown, when it was published."""
    began: str
    """To the minute, in UTC; empty if unknown."""
    digest: Digest | None
    unread: str = ""
    """Why it cannot be read."""

    def has(self, page_name: str) -> bool:
        """Return whether the copy has this page."""
        return (self.folder / "site" / page_name).is_file()


@dataclass(frozen=True)
class Published:
    """The list, the runs on it, those that were removed, and why others cannot be read."""

    index: Path
    runs: tuple[str, ...]
    removed: tuple[str, ...]
    unread: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    """Runs whose Allure page was not copied, as it was built elsewhere."""


def publish(
    folder: Path, runs: Sequence[Path], claims: Mapping[str, Claim], keep: int = KEEP, mib: int = 0
) -> Published:
    """Copy runs into a folder, list all copies there, and remove all but the `keep` newest.

    Of these the oldest are removed until the others have at most `mib` MiB together, unless that is 0; the
    newest stays. A run that is there already is replaced. Only copies are ever removed.

    Raises:
        Problem: A folder is no run, or another run, a foreign page or a run around the folder is in the way,
            or `keep` or `mib` is too small; nothing is written. Or the folder cannot be written.
    """
    if keep < 1:
        raise Problem("a site without runs shows nothing", f"--keep {keep}", "keep 1 at least")
    if mib < 0:
        raise Problem("runs cannot be so small", f"--mib {mib}", "give a number of MiB, or 0 for no limit")
    digests = [digest.read(run, claims) for run in runs]
    _check(folder, digests)
    failed, next_step = "runs cannot be published there", "name a folder of yours with space left"
    with rundir.explained(failed, folder, next_step):
        folder.mkdir(parents=True, exist_ok=True)
        for partial in folder.glob(f"{_PARTIAL}*"):
            shutil.rmtree(partial)
        for run in digests:
            _copy(run, folder)
        copies, unread = _read_copies(folder, claims)
        number = min(keep, _fitting([copy.folder for copy in copies], mib))
        shown = [copy for copy in copies[:number] if copy.digest]
        unread += [f"{copy.folder.name}: {copy.unread}" for copy in copies[:number] if not copy.digest]
        html = page.render_template("publish.html", runs=shown, unread=unread)
        index = rundir.write_report(folder / INDEX, html)
        for copy in copies[number:]:
            shutil.rmtree(copy.folder)
    names, removed = (tuple(copy.folder.name for copy in part) for part in (shown, copies[number:]))
    foreign = tuple(str(run.run) for run in digests if _has_foreign_page(run.run))
    return Published(index, names, removed, tuple(unread), foreign)


def _fitting(runs: Sequence[Path], mib: int) -> int:
    """Return how many of these runs, newest first, fit into `mib` MiB: at least one, and all if it is 0."""
    sizes = [sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) for run in runs]
    fitting = sum(total <= mib * 2**20 for total in accumulate(sizes))
    return max(1, fitting) if mib else len(runs)


def _check(folder: Path, runs: Sequence[Digest]) -> None:
    """Check that copies would replace nothing but copies of the same runs. Raises Problem."""
    index, next_step = folder / INDEX, "name another folder to publish into"
    if any(folder.resolve().is_relative_to(run.run) for run in runs):
        raise Problem("a run cannot be published into itself", str(folder), next_step)
    rundir.refuse_inside(folder, "runs cannot be published into a run")
    if index.exists() and not (index.is_file() and _OWN in index.read_text(errors="replace")):
        raise Problem("there is a page that nodeproof did not write", str(index), next_step)
    names = [_name(run) for run in runs]
    for run, name in zip(runs, names, strict=True):
        place = folder / name
        rename = f"rename {run.run if run.run.name == name else run.run.parent}"
        if name == INDEX or name.startswith(".") or names.count(name) > 1:
            raise Problem("each run on a site needs its own name", str(run.run), rename)
        if place.exists() and not (place / rundir.PUBLISHED).is_file():
            raise Problem("the folder exists and is not a published run", str(place), next_step)
        if place.exists() and not _is_same(run, place):
            raise Problem("another run of that name is published", str(place), rename)


def _name(run: Digest) -> str:
    """Return a run's name on a site; all rechecked runs have the same name where they lie."""
    is_in_its_run = run.is_judged_again and run.run.name == rundir.RECHECK
    return f"{run.run.parent.name}-{rundir.RECHECK}" if is_in_its_run else run.run.name


def _is_same(run: Digest, place: Path) -> bool:
    """Return whether a published run is this one, as far as both have facts."""
    if rundir.is_rechecked(place) != run.is_judged_again:
        return False
    with contextlib.suppress(Problem):
        return not run.facts or run.facts.began == rundir.read_facts(place).began
    return True


def _copy(run: Digest, folder: Path) -> None:
    """Copy one run beside its place, and move it there when it is complete. Raises OSError."""
    name = _name(run)
    partial, old = (folder / f"{_PARTIAL}{part}-{name}" for part in ("new", "old"))
    for part in ("scenarios", "site"):
        (partial / part).mkdir(parents=True)
    for source in _public_files(run.run):
        target = partial / source.relative_to(run.run)
        target.parent.mkdir(exist_ok=True)
        _copy_redacted(source, target)
    # The content is the copy's; its links, its neighbours and the tries put aside are the run's.
    shown = replace(digest.read(partial, run.claims), run=run.run, load=run.load)
    rundir.write_report(partial / "site" / page.FILE, page.render(shown))
    began = run.facts.began if run.facts else rundir.read_run(run.run).began
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rundir.write_json(partial / rundir.PUBLISHED, {"run": name, "began": began, "published": now})
    if (folder / name).exists():
        (folder / name).rename(old)
    partial.rename(folder / name)
    if old.exists():
        shutil.rmtree(old)


def _public_files(run: Path) -> Iterator[Path]:
    """Yield the files of a run that may be published."""
    paths = [run / name for name in _OF_A_RUN]
    if rundir.is_sealed(run / "site" / INDEX):
        paths.append(run / "site" / INDEX)
    for scenario in rundir.entries(run / "scenarios"):
        paths += (scenario / name for name in _OF_A_SCENARIO)
    return (path for path in paths if path.is_file() and rundir.is_plain(path, run))


def _has_foreign_page(run: Path) -> bool:
    """Return whether Allure's page exists, and nothing proves that this user's nodeproof built it."""
    index = run / "site" / INDEX
    return index.is_file() and not rundir.is_sealed(index)


def _copy_redacted(source: Path, target: Path) -> None:
    """Copy a file without secrets, also in embedded data; bitmaps as they are. Raises OSError.

    Allure's program stays as it is: words of its code look like passwords.
    """
    content = rundir.read_bytes(source)
    if source.suffix != ".png":
        content = "".join(_redacted_parts(content.decode(*_LOSSLESS))).encode(*_LOSSLESS)
    target.write_bytes(content)


def _redacted_parts(text: str) -> Iterator[str]:
    end = 0
    for match in _EMBEDDED.finditer(text):
        yield redact.text(text[end : match.start(2)])
        yield match[2] if match[1] == _PROGRAM else _redact_base64(match[2])
        end = match.end(2)
    yield redact.text(text[end:])


def _redact_base64(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded).decode(*_LOSSLESS)
    except binascii.Error:
        return redact.text(encoded)
    clean = redact.text(text)
    return encoded if clean == text else base64.b64encode(clean.encode(*_LOSSLESS)).decode()


def _read_copies(folder: Path, claims: Mapping[str, Claim]) -> tuple[list[Copy], list[str]]:
    """Return the published runs, newest first, and a line on each folder that only looks like one."""
    copies, foreign = [], []
    for mark in sorted(folder.glob(f"*/{rundir.PUBLISHED}")):
        if mark.parent.is_symlink():
            continue
        if published := _read_time(mark, "published"):
            copies.append(_read_copy(mark, published, claims))
        else:
            what = f"its {mark.name} is none of nodeproof: remove it if it is not needed"
            foreign.append(f"{mark.parent.name}: {what}")
    return sorted(copies, key=lambda copy: (copy.when, copy.folder.name), reverse=True), foreign


def _read_copy(mark: Path, published: datetime, claims: Mapping[str, Claim]) -> Copy:
    try:
        run = digest.read(mark.parent, claims)
    except Problem as problem:
        return Copy(mark.parent, published, "", None, problem.what)
    began = _read_time(mark, "began")
    return Copy(mark.parent, began or published, f"{began:%Y-%m-%d %H:%M} UTC" if began else "", run)


def _read_time(mark: Path, name: str) -> datetime | None:
    """Return a time of a file that marks a published run; None if it has none."""
    with contextlib.suppress(Problem, AttributeError, ValueError, TypeError):
        return datetime.fromisoformat(rundir.read_json(mark).get(name)).astimezone(UTC)
    return None
