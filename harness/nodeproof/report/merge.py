"""One run of several shards, of which some may have died or be missing.

Files are linked where the file system lets them, else copied. What a shard should have judged and did not is
`unproven`, with a reason that names the shard: a merged run is never silent on a claim.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard
from nodeproof.model.verdict import unproven
from nodeproof.report import broken, files, moments, places, rundir, shards
from nodeproof.report.links import link
from nodeproof.report.rundir import Row, RunFacts, Scenario

_APART = timedelta(hours=12)
"""Shards that began further apart are of two nights."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_FOREIGN = "merge runs of one command, which differ in --shard alone"
_MADE_ANEW = frozenset({"environment.properties"})
"""Of Allure's results: what the site writes for the whole run."""


class _UntoldError(Problem):
    """A folder that does not say which shard it is, or when that began."""


@dataclass(frozen=True)
class Part:
    """A run of one shard, whatever of it is there; `lost` says of scenarios why their judgments cannot be
    read.
    """

    run: Path
    shard: Shard
    facts: RunFacts | None
    scenarios: Mapping[str, Scenario]
    lost: Mapping[str, str]
    reason: str
    """Why it is not whole; empty where it is."""


@dataclass(frozen=True)
class Missing:
    """A scenario that a shard should have judged and did not."""

    nodeid: str
    reason: str
    rows: tuple[Row, ...]


def merge(runs: Sequence[Path], into: Path, claims: Mapping[str, Claim]) -> RunFacts:
    """Make one run of shards; gives what it is. A folder that died before it said which shard it is counts as
    none, and is named, while another one tells how they are divided.

    Raises Problem, before anything is written, where the shards are not of one run or one is there twice, and
    where `into` holds anything or lies in a run.
    """
    parts, untold = _read_all([run.resolve() for run in runs])
    _refuse(parts)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Problem("a merged run goes into a folder of its own", str(into), "give --run another one")
    places.refuse_inside(into, "nothing can be merged into a run")
    reasons = _reasons(parts, untold)
    missing = tuple(_missing(parts, claims, reasons))
    try:
        return _write(parts, into, missing, _merged(parts, into, reasons, untold), claims)
    except OSError as error:
        said = "the merged run cannot be written"
        raise Problem(said, str(into), "remove what is there, and merge again", str(error)) from error


def different_components(runs: Sequence[Path]) -> Sequence[str]:
    """The components of which shards ran different executables: of one version, and built apart."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        facts = shards.facts(run.resolve())
        for role, about in facts.components.items() if facts else ():
            seen.setdefault(role, set()).add(about.get("sha256", ""))
    return sorted(role for role, digests in seen.items() if len(digests) > 1)


def shard_of(runs: Sequence[Path]) -> Shard:
    """The first that says which it is. Raises Problem where none does, and at what is no run of a shard."""
    untold: list[Problem] = []
    for run in runs:
        try:
            return _shard(run)
        except _UntoldError as problem:
            untold.append(problem)
    raise untold[0]


def _read_all(runs: Sequence[Path]) -> tuple[Sequence[Part], Mapping[str, str]]:
    """Shards in their order; and why a folder does not say which it is, by its name."""
    parts: list[Part] = []
    untold: dict[str, _UntoldError] = {}
    for run in runs:
        try:
            parts.append(_read(run, _shard(run)))
        except _UntoldError as problem:
            untold[run.name] = problem
    if not parts:
        raise next(iter(untold.values()))
    return sorted(parts, key=lambda part: part.shard.number), {
        name: f"{name} does not say which shard it is, or when it began: {problem.what}"
        for name, problem in untold.items()
    }


def _shard(run: Path) -> Shard:
    """Raises _UntoldError where it died before it could say, and Problem where it is something else."""
    try:
        shard = shards.read(run)
    except rundir.NewerFormat:
        raise
    except Problem as problem:
        raise _UntoldError(problem.what, problem.where, problem.next_step) from problem
    if shard is None:
        kind = Problem if shards.facts(run) or not run.is_dir() else _UntoldError
        raise kind("this is no run of a shard", str(run), "name folders of runs with --shard")
    return shard if moments.read(shard.began) else _timed(run, shard)


def _timed(run: Path, shard: Shard) -> Shard:
    """A shard whose own file does not say when it began, by what else does. Raises _UntoldError."""
    facts = shards.facts(run)
    if facts and moments.read(facts.began):
        return replace(shard, began=facts.began)
    said = f"{shards.FILE} says that it began at {shard.began!r}, which is no time"
    raise _UntoldError(said, str(run / shards.FILE), "restore the file")


def _read(run: Path, shard: Shard) -> Part:
    facts = shards.facts(run)
    scenarios: dict[str, Scenario] = {}
    lost: dict[str, str] = {}
    for folder in files.entries(run / "scenarios"):
        if not (folder / "judgments.json").exists():
            lost[folder.name] = "it ended in the middle of this scenario"
            continue
        try:
            found = rundir.read_scenario(folder)
        except Problem as problem:
            lost[folder.name] = f"this scenario's judgments are lost: {problem.what}"
        else:
            scenarios[found.nodeid] = found
    reason = ""
    if facts is None or not facts.ended or not (run / "verdicts.json").exists():
        reason = f"{shard.name} has no end: it died, or is under way"
    elif facts.exit_reason:
        reason = f"{shard.name} broke off: {facts.exit_reason.partition(chr(10))[0]}"
    return Part(run, shard, facts, scenarios, lost, reason)


def _refuse(parts: Sequence[Part]) -> None:
    """Raises Problem where these are not shards of one run, each once."""
    first = parts[0]
    for before, part in pairwise(parts):
        where = f"{first.run.name}, {part.run.name}"
        for what, one, other in _told(first, part):
            if one != other:
                raise Problem(f"two shards differ in their {what}: {one}, {other}", where, _FOREIGN)
        if abs(_moment(first.shard.began) - _moment(part.shard.began)) > _APART:
            raise Problem("two shards began more than twelve hours apart", where, _FOREIGN)
        if first.shard.parts != part.shard.parts:
            raise Problem("two shards divide different scenarios, or otherwise", where, _FOREIGN)
        if before.shard.number == part.shard.number:
            names = f"{before.run.name}, {part.run.name}"
            raise Problem(f"{part.shard.name} is there twice", names, "leave one of them out")
    for part in parts:
        own = part.shard.parts[part.shard.number - 1]
        for nodeid in part.scenarios:
            if nodeid.removesuffix(broken.DIED) not in own:
                raise Problem(f"{nodeid} is not of {part.shard.name}", part.run.name, _FOREIGN)


def _told(first: Part, part: Part) -> Iterator[tuple[str, str, str]]:
    """What two shards have to have in common, with what each has."""
    one, other = first.shard, part.shard
    yield "number of shards", str(one.of), str(other.of)
    yield "kind of lab", one.lab, other.lab
    yield "profile", one.profile, other.profile
    yield "Kubernetes version", one.kubernetes_version, other.kubernetes_version
    yield "claims asked for", ", ".join(one.asked) or "all", ", ".join(other.asked) or "all"
    if first.facts and part.facts:
        yield "Kubernetes version", first.facts.kubernetes_version, part.facts.kubernetes_version


def _write(
    parts: Sequence[Part],
    into: Path,
    missing: Sequence[Missing],
    facts: RunFacts,
    claims: Mapping[str, Claim],
) -> RunFacts:
    rundir.create(into)
    for part in parts:
        _take(part, into)
    _write_times(parts, into)
    # By Allure's clock they belong to the end of the run, whenever it is merged.
    ended_s = _moment(facts.ended).timestamp()
    for each in missing:
        rundir.write_scenario(into, each.nodeid, (), _nothing(parts[0].shard), each.rows)
        judged = [row["claim"] for row in each.rows]
        broken.report(into, each.nodeid, judged, each.reason, claims, ended_s)
    rundir.merge_verdicts(into)
    rundir.write_facts(into, facts)
    rundir.point_latest(into.resolve().parent, into)
    return facts


def _take(part: Part, into: Path) -> None:
    """Link or copy what a shard recorded; the names of two machines' labs may be the same."""
    for folder in ("scenarios", rundir.TOO_LOADED):
        for path in files.entries(part.run / folder):
            is_lost = folder == "scenarios" and path.name in part.lost
            link(path, into / folder / path.name, {"judgments.json"} if is_lost else ())
    for path in files.entries(part.run / "labs"):
        if not path.is_dir() and path.suffix != ".json":
            # What its workers locked.
            continue
        target = into / "labs" / path.name
        if target.exists():
            target = target.with_name(f"{path.stem}-shard-{part.shard.number}{path.suffix}")
        link(path, target)
    link(part.run / "allure-results", into / "allure-results", _MADE_ANEW)
    if not (into / rundir.FIELDS).exists():
        link(part.run / rundir.FIELDS, into / rundir.FIELDS)


def _write_times(parts: Sequence[Part], into: Path) -> None:
    """How long scenarios took: the next division may go by it. Of what several tell, the median."""
    told: dict[str, list[float]] = {}
    for part in parts:
        with contextlib.suppress(Problem, TypeError, ValueError, AttributeError):
            for name, took_s in rundir.read_json(part.run / rundir.TIMES).items():
                told.setdefault(str(name), []).append(float(took_s))
    if told:
        rundir.write_json(into / rundir.TIMES, {name: median(times) for name, times in told.items()})


def _reasons(parts: Sequence[Part], untold: Mapping[str, str]) -> Mapping[int, str]:
    """Of each shard, by its number, why it is not whole; empty where it is."""
    known = {part.shard.number: part.reason for part in parts}
    shard = parts[0].shard
    return {
        number: known.get(number, "; ".join([f"{shard.named(number)} is missing", *untold.values()]))
        for number in range(1, shard.of + 1)
    }


def _missing(
    parts: Sequence[Part], claims: Mapping[str, Claim], reasons: Mapping[int, str]
) -> Iterator[Missing]:
    """Every scenario that has no judgments, with the rows that say so. Raises Problem on a claim that the
    catalogue does not have.
    """
    by_number = {part.shard.number: part for part in parts}
    shard, nothing = parts[0].shard, _nothing(parts[0].shard)
    for number, scenarios in enumerate(shard.parts, 1):
        part = by_number.get(number)
        judged = {nodeid.removesuffix(broken.DIED) for nodeid in part.scenarios} if part else set()
        for nodeid in scenarios.keys() - judged:
            reason = reasons[number] or f"{shard.named(number)} ended, and left no judgments of this scenario"
            lost = part.lost.get(rundir.slug(nodeid), "") if part else ""
            reason = f"{reason}; {lost}" if lost else reason
            verdict = unproven("gap", reason)
            rows = [rundir.row(_known(each, claims), nodeid, verdict, nothing) for each in scenarios[nodeid]]
            yield Missing(nodeid, reason, tuple(rows))


def _nothing(shard: Shard) -> Configuration:
    """What is known of a cluster that nobody asked."""
    return Configuration(
        shard.kubernetes_version, shard.lab, shard.profile, 0.0, 0.0, calibration=Calibration(0.0)
    )


def _known(claim: str, claims: Mapping[str, Claim]) -> Claim:
    if claim not in claims:
        raise Problem(f"the catalogue has no claim {claim}", "merge", "name its folder: --claims DIR")
    return claims[claim]


def _merged(
    parts: Sequence[Part], into: Path, reasons: Mapping[int, str], untold: Mapping[str, str]
) -> RunFacts:
    shard, whole = parts[0].shard, [part.facts for part in parts if part.facts]
    runs = {part.shard.number: part.run.name for part in parts}
    began = min(map(_began, parts), key=_moment)
    ends = [facts.ended for facts in whole if facts.ended]
    return RunFacts(
        run=into.resolve().name,
        began=began,
        # Of none that came to its end nothing is known but that it began.
        ended=max(ends, key=_moment, default=began),
        lab=shard.lab,
        profile=shard.profile,
        kubernetes_version=whole[0].kubernetes_version if whole else shard.kubernetes_version,
        command="; ".join(dict.fromkeys(facts.command for facts in whole)),
        components=next((facts.components for facts in whole if facts.components), {}),
        settings=tuple(dict.fromkeys(setting for facts in whole for setting in facts.settings)),
        quarantined=tuple(sorted({node for facts in whole for node in facts.quarantined})),
        selected=shard.claims,
        exit_reason="; ".join(reason for reason in reasons.values() if reason),
        merged=tuple(
            {"shard": shard.named(number), "run": runs.get(number, ""), "reason": reason}
            for number, reason in reasons.items()
        )
        + tuple({"shard": "unknown", "run": run, "reason": reason} for run, reason in untold.items()),
    )


def _began(part: Part) -> str:
    """By its facts, else by what it said as it began, which is a moment."""
    told = part.facts.began if part.facts else ""
    return told if moments.read(told) else part.shard.began


def _moment(told: str) -> datetime:
    return moments.read(told) or _NEVER
