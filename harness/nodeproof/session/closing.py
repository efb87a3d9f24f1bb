"""Close scenarios and the run: evaluate, store and show the verdicts, and report them to pytest."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from nodeproof.checks.judge import died
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.verdict import Code, unproven
from nodeproof.report import broken, ending, outcome, rundir, since, table, wording
from nodeproof.report.facts_left import BROKEN_OFF
from nodeproof.report.plain import counted
from nodeproof.scenario.stage import Stage
from nodeproof.session import admission, again, asked, leftover, planning, running
from nodeproof.session import recording as stored
from nodeproof.session.judging import JUDGE, Closed, Unproven, close, without_running
from nodeproof.session.run import SELECTED, Session, provider_of, session_of
from nodeproof.session.standing import DoesNotStand
from nodeproof.session.times import ENDED, LABEL, Times

STAGE = pytest.StashKey[Stage]()
_MAX_NAMES_LENGTH = 300
"""Characters to print of the claims without a verdict."""


def skip_with_verdict(item: pytest.Item, session: Session, code: Code, reason: str) -> NoReturn:
    """Skip a scenario that can prove nothing here; every declared claim gets an unproven verdict."""
    declared = [session.claims[claim] for claim in asked.declared(item)]
    item.user_properties.append((LABEL, unproven(code, reason).label))
    stored.store_skipped(
        session.run, item.nodeid, without_running(declared, code, reason), session.claims, session.options
    )
    pytest.skip(f"unproven: {code}: {reason}")


def close_scenario(item: pytest.Item, error: Exception | None) -> None:
    """Evaluate, store and attach the judgments, and raise the pytest outcome of their verdicts."""
    __tracebackhide__ = True
    session = session_of(item.config)
    stage, judge = item.stash.get(STAGE, None), item.stash.get(JUDGE, None)
    if stage is None or judge is None or stage.recording is None:
        error = error or Unproven("use the fixtures `lab` and `judge`, and `lab.record()`")
        again.note(item, store_unrecorded(item, session, error))
        raise error
    declared = [session.claims[claim] for claim in asked.declared(item)]
    history = stage.history()
    broken = f"{type(error).__name__}: {error}" if error else ""
    closed = close(declared, judge.judgments, history, stage.configuration, broken)
    stored.store(session.run, item.nodeid, closed, session.claims, stage.configuration, history)
    stored.attach(session.run, item.nodeid, closed, stage.configuration)
    provider = provider_of(session)
    if provider.lab is not None:
        is_expected = error is None and closed.worst().outcome == "conforms"
        if not is_expected:
            provider.lab.fetch_journals()
        with contextlib.suppress(Problem, OSError):
            nodes = {stage.target, *stage.targets, *stored.concerned(history)}
            stored.attach_logs((provider.lab.life.logs, provider.lab.journals), nodes, short=is_expected)
    if error is None:
        item.user_properties.append((ENDED, True))
    provider.last_taint_t = stored.last_no_execute_taint(history)
    if died(history) is not None:
        provider.discard()
    item.user_properties.append((LABEL, closed.worst().label))
    again.note(item, closed)
    version = stage.configuration.kubernetes_version
    _raise_outcome(closed, wording.message(closed.verdicts(), session.claims, version), error)


def store_unrecorded(item: pytest.Item, session: Session, error: Exception) -> Closed:
    """Store an unproven verdict for every declared claim of a scenario that ended before it recorded."""
    declared = [session.claims[claim] for claim in asked.declared(item)]
    codes: Sequence[tuple[type[Exception], Code]] = (
        (HostTooLoaded, "host-too-loaded"),
        (DoesNotStand, "not-injected"),
    )
    code: Code = next((code for kind, code in codes if isinstance(error, kind)), "gap")
    closed = without_running(declared, code, f"nothing was recorded: {type(error).__name__}: {error}")
    item.user_properties.append((LABEL, closed.worst().label))
    stored.store_skipped(session.run, item.nodeid, closed, session.claims, session.options)
    return closed


def store_crashed(session: Session, nodeid: str) -> None:
    """Store an unproven verdict for every declared claim of a scenario whose worker died.

    It gets its own name. A test that is not a scenario has none.
    """
    claims = _declared_claims(session.run).get(nodeid)
    if not claims:
        return
    died_as, reason = f"{nodeid}{broken.DIED}", "the worker that ran the scenario died"
    with contextlib.suppress(OSError):
        rundir.scenario_dir(session.run, nodeid).rename(rundir.scenario_dir(session.run, died_as))
    declared = [session.claims[claim] for claim in claims]
    closed = without_running(declared, "gap", reason)
    stored.store_skipped(session.run, died_as, closed, session.claims, session.options)
    broken.report(session.run, died_as, claims, reason, session.claims)


def _raise_outcome(closed: Closed, text: str, error: Exception | None) -> None:
    __tracebackhide__ = True
    verdict = closed.worst()
    if verdict.outcome == "deviates":
        pytest.fail(text, pytrace=False)
    if error is not None:
        raise Unproven(text) from error
    if verdict.is_skip:
        pytest.skip(text)
    if verdict.outcome == "unproven":
        raise Unproven(text)


def write_down(session: Session, times: Times) -> None:
    """Tear down labs that outlived their worker, and write the run's facts, verdicts and times."""
    orphaned_labs = leftover.end_labs(session.run, session.options)
    if orphaned_labs:
        session.say(f"ended labs of workers that are gone: {', '.join(orphaned_labs)}")
    for line in leftover.heal_zones(session.run, session.options):
        session.say(line)
    selected = sorted(session.selected or _read_file(session.run, SELECTED).split())
    reason = _read_file(session.run, BROKEN_OFF)
    scenarios = _declared_claims(session.run)
    shutil.rmtree(session.run / admission.FOLDER, ignore_errors=True)
    with contextlib.suppress(OSError):
        planning.write_times(session.run, times.taken(scenarios, session.options.is_ours))
    running.write_run(session.run, session.options, session.began, session.command, selected, reason)
    _write_table(session.run)


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
        facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
        text = table.render(rows, facts.duration_s, str(run), since.deviating(run, facts, rows))
        (run / table.FILE).write_text(f"{text}\n")


def whole_table(run: Path) -> Iterator[str]:
    """Yield the lines of the table of all claims."""
    yield from [*_read_file(run, table.FILE).splitlines(), ""]


def settings(run: Path) -> Iterator[str]:
    """Yield the settings of the run's lab that differ from upstream's defaults."""
    yield "settings of the lab that are not upstream's:"
    yield from [*(f"  {setting}" for setting in rundir.read_facts(run).settings), ""]


def summary(run: Path) -> Iterator[str]:
    """Yield the last lines of a run: deviating and open claims, remarks, and the counts."""
    facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
    *claims, totals = ending.render(
        rows, since.deviating(run, facts, rows), outcome.asked_when_recorded(facts)
    )
    yield from claims
    yield from _busiest_processes(run, rows)
    if facts.quarantined:
        yield f"not proven healed or Ready: {', '.join(facts.quarantined)}"
    unjudged = sorted(set(facts.selected) - {row["claim"] for row in rows})
    if unjudged:
        yield f"{counted(len(unjudged), 'selected claim')} without a verdict:"
        yield from table.wrapped(", ".join(unjudged), _MAX_NAMES_LENGTH)
    if facts.exit_reason:
        yield f"nodeproof: {facts.exit_reason}"
    yield totals
    yield from _retried(run)
    yield planning.compare(run, facts.duration_s)
    yield f"settings of the lab that are not upstream's: {len(facts.settings)} (--settings, or run.json)"
    yield f"table of all claims: --table, or {table.FILE}"
    yield f"run folder: {run}"


def _retried(run: Path) -> Iterator[str]:
    """Yield a line with the number of retried scenarios, and of their tries before the last one."""
    tries = [path.name.rpartition("-")[0] for path in (run / rundir.TOO_LOADED).glob("*")]
    if tries:
        scenarios, earlier = counted(len(set(tries)), "scenario"), counted(len(tries), "try", "tries")
        yield f"retried because the host was too loaded: {scenarios} ({earlier} before the last one)"


def _busiest_processes(run: Path, rows: Sequence[rundir.Row]) -> Iterator[str]:
    """Yield the processes that used the processors while a scenario stayed open, and the next step."""
    if not (run / rundir.BUSIEST).exists() or not any(row["code"] == "host-too-loaded" for row in rows):
        return
    processes = rundir.read_json(run / rundir.BUSIEST)
    yield "the host was too loaded even for one scenario alone; busiest processes of other programs:"
    yield from (f"  {process}" for process in processes or ["none: give the machine more processors"])
    yield "next step: end them, or run the open claims again with `nodeproof run --claim ID`"
