"""One run of several shards, some of which may be incomplete or missing.

Files are linked, or copied if links are impossible. A scenario that a shard should have judged and did not is
`unproven: gap`, with a reason that names the shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

from nodeproof.model.claim import Claim
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.overrides import suffix
from nodeproof.model.plan import Shard
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import unproven
from nodeproof.report import allure, rundir
from nodeproof.report.rundir import Row, RunFacts, StoredRun

_APART = timedelta(hours=12)
"""Shards that began further apart belong to different nights."""
_NEXT_STEP = "merge runs of one command, which differ in --shard alone"


@dataclass(frozen=True)
class Merged:
    """A merged run."""

    folder: Path
    facts: RunFacts
    selected: tuple[str, ...]
    """The claims selected by name."""
    mixed: tuple[str, ...]
    """Components of which shards ran different executables."""


@dataclass(frozen=True)
class ShardRun:
    """The run of one shard, which may have died."""

    shard: Shard
    run: StoredRun

    @property
    def folder_name(self) -> str:
        return self.run.folder.name

    @property
    def judged(self) -> set[str]:
        """The node ids of its judged scenarios."""
        return {scenario.nodeid.removesuffix(rundir.DIED) for scenario in self.run.scenarios}

    @property
    def common(self) -> Sequence[tuple[str, str]]:
        """What shards of one run have in common, by name; empty if this one does not say."""
        shard, facts = self.shard, self.run.facts
        return [
            ("number of shards", str(shard.of)),
            ("kind of lab", shard.lab),
            ("profile", shard.profile),
            ("Kubernetes version", shard.kubernetes_version),
            ("settings", " ".join(shard.overrides) or "none"),
            ("claims asked for", ", ".join(shard.selected) or "all"),
            ("Kubernetes version", facts.kubernetes_version if facts else ""),
        ]

    @property
    def reason(self) -> str:
        """Why it is incomplete; empty if it is not."""
        facts = self.run.facts
        if facts is None or not facts.ended or not (self.run.folder / rundir.VERDICTS).exists():
            return f"{self.shard.name} has no end: it died, or is under way"
        first_line = facts.exit_reason.partition("\n")[0]
        return f"{self.shard.name} broke off: {first_line}" if first_line else ""

    def why_lost(self, nodeid: str) -> str:
        """Return why a scenario has no judgments; empty if it was not begun."""
        place = f"scenarios/{rundir.slug(nodeid)}"
        if problem := self.run.problems.get(place):
            return f"this scenario's judgments are lost: {problem.what}"
        return "it ended in the middle of this scenario" if (self.run.folder / place).is_dir() else ""


def merge(runs: Sequence[Path], into: Path | None, claims: Mapping[str, Claim]) -> Merged:
    """Merge shards into one run, in a folder of its own, by default beside the first run.

    A folder that died before it stored which shard it is counts as none, and is named, if another one shows
    how the run is divided.

    Raises:
        Problem: The shards are not of one run, or one is there twice; `into` is not empty or lies in a run;
            the catalogue lacks a claim. Nothing is written in these cases.
    """
    shards, unidentified = _read([run.resolve() for run in runs])
    _check(shards)
    shard = shards[0].shard
    profile = f"{shard.profile}{suffix(shard.overrides)}"
    into = into or rundir.new_folder(runs[0].resolve().parent, profile, shard.lab)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Problem("a merged run goes into a folder of its own", str(into), "give --run another one")
    rundir.refuse_inside(into, "nothing can be merged into a run")
    # The configuration of a cluster that nothing was read from.
    unread = Configuration(shard.kubernetes_version, shard.lab, shard.profile, 0.0, 0.0, Calibration(0.0))
    reasons = _reasons(shards, unidentified)
    gaps = list(_gaps(shards, reasons, claims, unread))
    facts = _merge_facts(into.resolve().name, shards, reasons, unidentified)
    failed, next_step = "the merged run cannot be written", "remove what is there, and merge again"
    with rundir.explained(failed, into, next_step):
        rundir.create(into)
        for part in shards:
            _link(part, into)
        if times := _merge_times(shards):
            rundir.write_json(into / rundir.TIMES, times)
        # On Allure's clock they belong to the end of the run, whenever it is merged.
        ended_s = datetime.fromisoformat(facts.ended).timestamp()
        for nodeid, reason, rows in gaps:
            rundir.write_scenario(into, nodeid, (), unread, rows)
            allure.write_broken(into, nodeid, [row["claim"] for row in rows], reason, claims, ended_s)
        rundir.merge_verdicts(into)
        rundir.write_facts(into, facts)
        rundir.point_latest(into.resolve().parent, into)
    return Merged(into, facts, shard.selected, _mixed_components(shards))


def _read(runs: Sequence[Path]) -> tuple[Sequence[ShardRun], Mapping[str, str]]:
    """Return the shards by number, and why other folders could not be identified, by name.

    Raises:
        Problem: A folder is no run of a shard, or none can be identified.
    """
    shards: list[ShardRun] = []
    problems: dict[str, Problem] = {}
    for folder in runs:
        run = rundir.read_run(folder)
        if run.shard:
            shards.append(ShardRun(run.shard, run))
            continue
        no_shard = Problem("this is no run of a shard", str(folder), "name folders of runs with --shard")
        problems[folder.name] = run.problems.get(rundir.SHARD, no_shard)
        if rundir.SHARD not in run.problems and (run.facts or not folder.is_dir()):
            raise no_shard
    if not shards:
        raise next(iter(problems.values()))
    return sorted(shards, key=lambda part: part.shard.number), {
        name: f"{name} does not say which shard it is, or when it began: {problem.what}"
        for name, problem in problems.items()
    }


def _check(shards: Sequence[ShardRun]) -> None:
    """Check that shards are of one run, each once. Raises Problem."""
    first = shards[0]
    for before, part in pairwise(shards):
        what = [
            f"two shards differ in their {name}: {one}, {other}"
            for (name, one), (_name, other) in zip(first.common, part.common, strict=True)
            if one != other and one and other
        ]
        if abs(part.shard.began_at - first.shard.began_at) > _APART:
            what.append("two shards began more than twelve hours apart")
        if first.shard.parts != part.shard.parts:
            what.append("the shards were planned from different scenarios or durations")
        if what:
            raise Problem(what[0], f"{first.folder_name}, {part.folder_name}", _NEXT_STEP)
        if before.shard.number == part.shard.number:
            names = f"{before.folder_name}, {part.folder_name}"
            raise Problem(f"{part.shard.name} is given twice", names, "leave one of them out")
    for part in shards:
        for nodeid in part.judged - part.shard.scenarios.keys():
            raise Problem(f"{nodeid} does not belong to {part.shard.name}", part.folder_name, _NEXT_STEP)


def _reasons(shards: Sequence[ShardRun], unidentified: Mapping[str, str]) -> Mapping[int, str]:
    """Return why each shard of the run is incomplete, by its number; empty if it is not."""
    shard = shards[0].shard
    missing = {
        number: "; ".join([f"{shard.named(number)} is missing", *unidentified.values()])
        for number in range(1, shard.of + 1)
    }
    return missing | {part.shard.number: part.reason for part in shards}


def _gaps(
    shards: Sequence[ShardRun],
    reasons: Mapping[int, str],
    claims: Mapping[str, Claim],
    unread: Configuration,
) -> Iterator[tuple[str, str, Sequence[Row]]]:
    """Yield each scenario without judgments, with the reason and its rows.

    Raises:
        Problem: The catalogue lacks a claim.
    """
    parts = {part.shard.number: part for part in shards}
    for number, scenarios in enumerate(shards[0].shard.parts, 1):
        part, name = parts.get(number), shards[0].shard.named(number)
        judged = part.judged if part else set()
        for nodeid in scenarios.keys() - judged:
            reason = reasons[number] or f"{name} ended, and left no judgments of this scenario"
            if part and (why := part.why_lost(nodeid)):
                reason = f"{reason}; {why}"
            verdict, rows = unproven("gap", reason), []
            for claim in scenarios[nodeid]:
                if claim not in claims:
                    next_step = "name its folder: --claims DIR"
                    raise Problem(f"the catalogue has no claim {claim}", "merge", next_step)
                rows.append(rundir.row(claims[claim], nodeid, verdict, unread))
            yield nodeid, reason, rows


def _link(part: ShardRun, into: Path) -> None:
    """Link the files of a shard; labs of two machines may have the same name."""
    folder = part.run.folder
    for path in rundir.entries(folder / "scenarios"):
        is_lost = f"scenarios/{path.name}" in part.run.problems
        rundir.link(path, into / "scenarios" / path.name, {"judgments.json"} if is_lost else ())
    for path in rundir.entries(folder / "labs"):
        # Other files are locks of its workers.
        if path.is_dir() or path.suffix == ".json":
            target = into / "labs" / path.name
            if target.exists():
                target = target.with_name(f"{path.stem}-shard-{part.shard.number}{path.suffix}")
            rundir.link(path, target)
    for name in (rundir.TOO_LOADED, rundir.FIELDS, allure.RESULTS):
        rundir.link(folder / name, into / name)


def _merge_times(shards: Sequence[ShardRun]) -> Mapping[str, float]:
    """Return how long scenarios took, by which a next run may be divided; the median of several values."""
    times: dict[str, list[float]] = {}
    for part in shards:
        for name, duration_s in rundir.read_times(part.run.folder / rundir.TIMES).items():
            times.setdefault(name, []).append(duration_s)
    return {name: median(durations_s) for name, durations_s in times.items()}


def _merge_facts(
    name: str, shards: Sequence[ShardRun], reasons: Mapping[int, str], unidentified: Mapping[str, str]
) -> RunFacts:
    shard = shards[0].shard
    facts = [part.run.facts for part in shards if part.run.facts]
    folders = {part.shard.number: part.folder_name for part in shards}
    began = min((part.run.began or part.shard.began for part in shards), key=datetime.fromisoformat)
    parts = [(shard.named(number), folders.get(number, ""), reason) for number, reason in reasons.items()]
    parts += [("unknown", folder, reason) for folder, reason in unidentified.items()]
    return RunFacts(
        run=name,
        began=began,
        # Of a run without any end, only the beginning is known.
        ended=max((run.ended for run in facts if run.ended), default=began),
        lab=shard.lab,
        profile=shard.profile,
        kubernetes_version=facts[0].kubernetes_version if facts else shard.kubernetes_version,
        command="; ".join(dict.fromkeys(run.command for run in facts)),
        components=next((run.components for run in facts if run.components), {}),
        settings=tuple(dict.fromkeys(setting for run in facts for setting in run.settings)),
        quarantined=tuple(sorted({node for run in facts for node in run.quarantined})),
        selected=shard.claims,
        exit_reason="; ".join(reason for reason in reasons.values() if reason),
        merged=tuple({"shard": name, "run": folder, "reason": reason} for name, folder, reason in parts),
        overrides=shard.overrides,
    )


def _mixed_components(shards: Sequence[ShardRun]) -> tuple[str, ...]:
    """Return the components with different executables, of one version but built separately."""
    digests: dict[str, set[str]] = {}
    for part in shards:
        for role, component in part.run.facts.components.items() if part.run.facts else ():
            digests.setdefault(role, set()).add(component.get("sha256", ""))
    return tuple(sorted(role for role in digests if len(digests[role]) > 1))
