"""End a run: store verdicts of dead workers, end their labs, write the run's results, and sum them up."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.client import registry
from nodeproof.labs.kinds import kind_named
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report import allure, digest, rundir, tables
from nodeproof.report.plain import counted, wrapped
from nodeproof.report.rundir import DIED
from nodeproof.safety.ledger import Ledger
from nodeproof.session import planning, sharing
from nodeproof.session.judging import store_skipped, without_running
from nodeproof.session.run import SELECTED_CLAIMS_FILE, Session

_MAX_NAMES_LENGTH = 300
"""Characters to print of the claims without a verdict."""


def store_crashed(session: Session, nodeid: str) -> None:
    """Store an unproven verdict for every declared claim of a scenario whose worker died.

    It gets its own name. A test that is not a scenario has none.
    """
    claims = _declared_claims(session.run_folder).get(nodeid)
    if not claims:
        return
    died_as, reason = f"{nodeid}{DIED}", "the worker that ran the scenario died"
    with contextlib.suppress(OSError):
        rundir.scenario_dir(session.run_folder, nodeid).rename(
            rundir.scenario_dir(session.run_folder, died_as)
        )
    declared = [session.claims[claim] for claim in claims]
    judged = without_running(declared, "gap", reason)
    store_skipped(session.run_folder, died_as, judged, session.claims, session.options)
    allure.write_broken(session.run_folder, died_as, claims, reason, session.claims)


def write_results(session: Session) -> None:
    """Tear down labs that outlived their worker, and write the run's facts, verdicts and times."""
    orphaned_labs = _tear_down_labs(session)
    if orphaned_labs:
        session.say(f"stopped labs of dead workers: {', '.join(orphaned_labs)}")
    for line in _heal_zones(session):
        session.say(line)
    selected = sorted(session.selected or _read_file(session.run_folder, SELECTED_CLAIMS_FILE).split())
    reason = _read_file(session.run_folder, rundir.BROKEN_OFF)
    scenarios = _declared_claims(session.run_folder)
    shutil.rmtree(session.run_folder / sharing.FOLDER, ignore_errors=True)
    durations_s = dict(session.recorder.durations(scenarios))
    if not session.options.starts_lab:
        durations_s.pop(planning.START, None)
    with contextlib.suppress(OSError):
        planning.write_times(session.run_folder, durations_s)
    _write_run(session, selected, reason)
    _write_table(session.run_folder)


def _heal_zones(session: Session) -> Iterator[str]:
    """Heal the zones of killed workers in a lab that the run attached to; yield a line for each failure."""
    lab = session.options.lab
    if not session.options.zone:
        return
    leased = {
        path.stem.removeprefix(f"{lab}-") for path in (session.run_folder / "labs").glob(f"{lab}-*.json")
    }
    for zone in sorted(leased & {entry.lease for entry in Ledger(lab).unfinished()}):
        try:
            registry.heal(lab, zone)
        except Problem as problem:
            yield f"zone {zone} of lab {lab}: {problem}; run `nodeproof heal`"


def _tear_down_labs(session: Session) -> list[str]:
    """Tear down the labs that this run started and that outlived their worker; return their names."""
    if not session.options.starts_lab:
        return []
    labs = session.run_folder / "labs"
    own = {path.name for path in labs.glob("*") if path.is_dir()}
    orphaned = sorted(own & set(registry.running()))
    for name in orphaned:
        # The worker that would have kept the logs has died.
        with (
            contextlib.suppress(Problem, OutsideError, OSError),
            contextlib.closing(registry.attach(name)) as lab,
        ):
            lab.copy_logs(labs)
        registry.down(name)
    sharing.remove_locks(labs)
    return orphaned


def _write_run(session: Session, selected: Sequence[str], reason: str) -> None:
    """Merge the workers' verdicts, and write the run's facts."""
    run, options = session.run_folder, session.options
    rundir.create(run)
    rundir.merge_verdicts(run)
    shard = rundir.read_shard(run)
    labs = [rundir.read_json(path) for path in sorted((run / "labs").glob("*.json"))]
    facts = rundir.RunFacts(
        run=run.name,
        began=session.started_at.isoformat(),
        ended=datetime.now(UTC).isoformat(),
        lab=options.kind,
        profile=options.profile,
        kubernetes_version=labs[0]["kubernetes_version"] if labs else options.kubernetes_version,
        command=session.command,
        components=labs[0]["components"] if labs else {},
        settings=(
            *kind_named(options.kind).settings(profile_named(options.profile), options.overrides),
            *_other_kubelets(labs),
        ),
        overrides=options.overrides.texts,
        quarantined=tuple(sorted({node for lab in labs for node in lab.get("quarantined", ())})),
        selected=tuple(selected),
        exit_reason=reason,
        shard=shard.to_json() if shard else None,
    )
    rundir.write_facts(run, facts)
    rundir.point_latest(run.parent, run)


def end_facts(run: Path) -> Mapping[str, Json]:
    """Return the number of claims in each state and why the run was aborted; nothing without a run."""
    if not (run / rundir.RUN).is_file():
        return {}
    rows = digest.worst_by_claim(rundir.read_verdicts(run)).values()
    return {"claims": Counter(map(digest.state_of, rows)), "exit_reason": rundir.read_facts(run).exit_reason}


def _other_kubelets(labs: Sequence[Json]) -> Sequence[str]:
    """Return a line for each node whose kubelet has another version than the control plane."""
    versions = {(node, version) for lab in labs for node, version in lab.get("node_versions", {}).items()}
    return [f"kubelet of {node}: {version}" for node, version in sorted(versions)]


def _declared_claims(run: Path) -> Mapping[str, Sequence[str]]:
    """Return the claims of each scenario of the run."""
    claims: Mapping[str, Sequence[str]] = json.loads(_read_file(run, rundir.DECLARED) or "{}")
    return claims


def _read_file(run: Path, name: str) -> str:
    """Return the text of a file in the run's folder; empty if there is none."""
    with contextlib.suppress(OSError):
        return (run / name).read_text()
    return ""


def _write_table(run: Path) -> None:
    """Write the table of all claims, unless the run was aborted before any verdict."""
    with contextlib.suppress(Problem, OSError):
        stored = digest.read(run, {})
        text = tables.render(stored, str(run), stored.since)
        (run / tables.FILE).write_text(f"{text}\n")


def whole_table(run: Path) -> Iterator[str]:
    """Yield the lines of the table of all claims."""
    yield from [*_read_file(run, tables.FILE).splitlines(), ""]


def settings(run: Path) -> Iterator[str]:
    """Yield the settings of the run's lab that differ from upstream's defaults."""
    yield "settings of the lab that are not upstream's:"
    yield from [*(f"  {setting}" for setting in rundir.read_facts(run).settings), ""]


def summary(run: Path) -> Iterator[str]:
    """Yield the last lines of a run: deviating and open claims, remarks, and the counts."""
    facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
    *claims, totals = tables.last_lines(digest.read(run, {}), digest.named_claims(facts))
    yield from claims
    yield from _busiest_processes(run, rows)
    if facts.quarantined:
        yield f"not proven healed or Ready: {', '.join(facts.quarantined)}"
    unjudged = sorted(set(facts.selected) - {row["claim"] for row in rows})
    if unjudged:
        yield f"{counted(len(unjudged), 'selected claim')} without a verdict:"
        yield from wrapped(", ".join(unjudged), _MAX_NAMES_LENGTH)
    if facts.exit_reason:
        yield f"nodeproof: {facts.exit_reason}"
    yield totals
    yield from _retried(run)
    yield planning.compare(run, facts.duration_s)
    yield f"settings of the lab that are not upstream's: {len(facts.settings)} (--settings, or run.json)"
    yield f"table of all claims: --table, or {tables.FILE}"
    yield f"run folder: {run}"


def _retried(run: Path) -> Iterator[str]:
    """Yield a line with the number of retried scenarios, and of their tries before the last one."""
    tries = [path.name.rpartition("-")[0] for path in (run / rundir.TOO_LOADED).glob("*")]
    if tries:
        scenarios, earlier = counted(len(set(tries)), "scenario"), counted(len(tries), "try", "tries")
        reason = "the host was too loaded or a watch broke"
        yield f"retried because {reason}: {scenarios} ({earlier} before the last one)"


def _busiest_processes(run: Path, rows: Sequence[rundir.Row]) -> Iterator[str]:
    """Yield the processes that used the processors while a scenario stayed open, and the next step."""
    if not (run / rundir.BUSIEST).exists() or not any(row["code"] == "host-too-loaded" for row in rows):
        return
    processes = rundir.read_json(run / rundir.BUSIEST)
    yield "the host was too loaded even for one scenario alone; busiest processes of other programs:"
    yield from (f"  {process}" for process in processes or ["none: give the machine more processors"])
    yield "next step: end them, or run the open claims again with `nodeproof run --claim ID`"
