"""The hooks of pytest that run scenarios, each from set-up to verdict, and their retries at the end.

Only nodeproof's own sessions have them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import allure
import pytest

from nodeproof.cache import Detail
from nodeproof.capacity import busiest
from nodeproof.checks.judge import unexpected_exit
from nodeproof.labs.base import autogroup
from nodeproof.labs.client.handle import LabHandle, TooFewNodes
from nodeproof.model.history import History
from nodeproof.model.plan import Turn
from nodeproof.model.problem import HostTooLoaded, OutsideError, Problem
from nodeproof.model.verdict import Code, unproven
from nodeproof.report import digest, rundir
from nodeproof.scenario.lab import Lab
from nodeproof.session import markers, run, scenario_report, usage_errors
from nodeproof.session.judging import (
    LABEL,
    RERUN,
    Judge,
    JudgedScenario,
    Unproven,
    close,
    is_open,
    present_failure,
    with_upgrade,
    without_running,
)
from nodeproof.session.planning import ENDED, WAITED, PlanScheduling, set_current_item, worker_of
from nodeproof.session.provider import LabRequirements, StandingFaultFailed
from nodeproof.session.run import SESSION, Session, is_planned, is_scenario, session_of
from nodeproof.session.sharing import Retry
from nodeproof.sources import skipped_nodes
from nodeproof.terminal import coloured
from nodeproof.waiting import wait_until

_POLL_S = 1.0
_BUSIEST, _SAMPLE_S = 5, 1.0
"""Number of processes of other programs listed for a scenario that stays open; sampling time (s)."""


class ScenarioRun:
    """A scenario of this session, from set-up to verdict.

    A retry at the end of the run uses the same object, with a new judge and lab. The scenario will be retried
    if it stayed open because of the host's load, and a retry is left.
    """

    def __init__(self, item: pytest.Item, session: Session) -> None:
        self.item, self.nodeid, self.session = item, item.nodeid, session
        self.needs = markers.needs(item)
        self.claims = [session.claims[claim] for claim in markers.declared(item)]
        self.judge: Judge | None = None
        self.lab: Lab | None = None
        self.tries = 0
        self.will_retry, self.retry_reason = False, ""

    def set_up(self) -> None:
        """Set the scenario's Allure labels; skip it with a verdict if this lab and profile can't prove it."""
        if self.session.progress is not None:
            self.session.progress.began(self.nodeid)
        markers.warn_of_deprecated(self.item)
        scenario_report.label(self.nodeid, self.claims, self.session.options)
        missing = markers.why_unprovable(self.item, self.session.options)
        if missing is not None:
            self._skip(*missing)

    def open_lab(self) -> Lab:
        """Return the fixture `lab`: the worker's lab, cleaned and checked for the scenario.

        Without a lab the whole session ends.

        Raises:
            Unproven: Too few nodes may be affected, or a standing fault could not be injected.
        """
        session, needs = self.session, self.needs
        try:
            handle = self._prepare_lab()
            missing = markers.lacks_features(self.item, handle.features)
            progress = (session.progress.step, session.progress.until) if session.progress else (allure.step,)
            lab = Lab(handle, rundir.scenario_dir(session.run_folder, self.nodeid), needs, *progress)
        except (TooFewNodes, StandingFaultFailed) as problem:
            self._store_unrecorded(problem)
            raise Unproven(str(problem)) from problem
        except (Problem, OutsideError) as problem:
            session.abort(str(problem))
        if missing:
            self._skip("lab-lacks", f"this lab has no {missing}")
        self.lab = lab
        return lab

    def _prepare_lab(self) -> LabHandle:
        """Return the worker's lab, ready for the scenario; start or replace it if necessary.

        Raises:
            Problem, OutsideError: There is no usable lab.
        """
        session, options = self.session, self.session.options
        is_large = markers.is_large(self.needs, options)
        requirements = LabRequirements(
            self.needs,
            markers.size(self.needs, options) if is_large else session.size,
            session.is_alone(self.nodeid),
            markers.standing(self.item),
        )
        provider = session.lab_provider()
        if session.shares_later(self.nodeid):
            provider.reserve_zone()
        return provider.prepare(requirements, self._wait_for_turn).handle

    def new_judge(self) -> Judge:
        """Return the fixture `judge`."""
        self.judge = Judge(self.nodeid, markers.declared(self.item), self.session.claims)
        return self.judge

    def close(self, error: Exception | None) -> None:
        """Evaluate, store and attach the judgments, and raise the pytest outcome of their verdicts."""
        __tracebackhide__ = True
        lab, judge, session = self.lab, self.judge, self.session
        if lab is None or judge is None or lab.recording is None:
            advice = "request the fixtures `lab` and `claim`, and record: `with lab.record():`"
            error = error or Unproven(advice)
            self._decide_retry(self._store_unrecorded(error))
            raise error
        with autogroup.lowered(autogroup.JUDGING):
            history = lab.history()
            configuration = with_upgrade(lab.configuration, history)
            broken = f"{type(error).__name__}: {error}" if error else ""
            judged = close(self.claims, judge.judgments, history, configuration, broken)
            folder, claims = session.run_folder, session.claims
            scenario_report.store(folder, self.nodeid, judged, claims, configuration, history)
            scenario_report.attach_verdicts(folder, self.nodeid, judged, configuration)
        worst = judged.worst()
        is_expected = error is None and (worst.outcome == "conforms" or worst.is_known)
        versions = ", then ".join(configuration.versions)
        text = digest.failure_message(judged.verdicts(), session.claims, versions)
        provider = session.lab_provider()
        if provider.lab is not None:
            provider.lab.last_taint_t = scenario_report.last_no_execute_taint(history)
            _attach_logs(provider.lab.handle, lab, history, is_expected)
            text += "" if is_expected else _quoted_skips(provider.lab.handle, history)
        if error is None:
            self.item.user_properties.append((ENDED, True))
        if unexpected_exit(history) is not None:
            provider.discard()
        self.item.user_properties.append((LABEL, judged.worst().label))
        self._decide_retry(judged, watch_broke=bool(history.of_kind("gap")))
        _raise_outcome(judged, text, error)

    def entitle(self) -> None:
        """Set the scenario's title and description in Allure, whatever its outcome."""
        remark = str(getattr(getattr(self.item, "function", None), "__doc__", None) or "")
        scenario_report.entitle(self.nodeid, self.claims, remark)

    def leave(self) -> None:
        """Report that the scenario is over; postpone it if it will be retried.

        This worker retries it if it needs a whole lab, as that lab is kept; else the next free worker does.
        """
        session = self.session
        session.throttle.end_scenario()
        if session.progress is not None:
            session.progress.ended()
        if not self.will_retry:
            return
        self.will_retry = False
        self.tries += 1
        retry = Retry(self.nodeid, self.tries, session.durations_s.get(self.nodeid, 0.0))
        retries = session.retries
        add = retries.add_own if session.is_alone(self.nodeid) else retries.add
        add(retry)
        session.say(Detail(f"{self.retry_reason}, retried at the end of the run: {self.nodeid}"))

    def retry(self, tries: int) -> None:
        """Run the scenario again; its earlier recording moves to where no verdict is read from."""
        self.tries = tries
        rundir.put_aside(self.session.run_folder, self.nodeid)
        ours = (ENDED, LABEL, WAITED)
        self.item.user_properties[:] = [pair for pair in self.item.user_properties if pair[0] not in ours]
        set_current_item(self.item)
        self.item.ihook.pytest_runtest_protocol(item=self.item, nextitem=None)

    def _wait_for_turn(self) -> None:
        """Wait until the machine has capacity for the scenario; its duration excludes this wait."""
        began_t = time.monotonic()
        self.session.throttle.start_scenario(self.session.say, self._slack_share)
        self.item.user_properties.append((WAITED, round(time.monotonic() - began_t, 3)))

    def _slack_share(self) -> float | None:
        return self.lab.slack_share() if self.lab is not None else None

    def _skip(self, code: Code, reason: str) -> NoReturn:
        """Skip a scenario that can prove nothing here; every declared claim gets an unproven verdict."""
        self.item.user_properties.append((LABEL, unproven(code, reason).label))
        self._store_skipped(without_running(self.claims, code, reason))
        pytest.skip(f"unproven: {code}: {reason}")

    def _store_unrecorded(self, error: Exception) -> JudgedScenario:
        """Store an unproven verdict for every declared claim of a scenario that ended before it recorded."""
        code: Code = "host-too-loaded" if isinstance(error, HostTooLoaded) else "gap"
        if isinstance(error, StandingFaultFailed):
            code = "not-injected"
        reason = f"nothing was recorded: {type(error).__name__}: {error}"
        judged = without_running(self.claims, code, reason)
        self.item.user_properties.append((LABEL, judged.worst().label))
        self._store_skipped(judged)
        return judged

    def _store_skipped(self, judged: JudgedScenario) -> None:
        session = self.session
        scenario_report.store_skipped(
            session.run_folder, self.nodeid, judged, session.claims, session.options
        )

    def _decide_retry(self, judged: JudgedScenario, *, watch_broke: bool = False) -> None:
        """Decide whether the scenario will be retried: never if a claim deviates.

        If no retry is left on a loaded host, write the busiest processes of other programs.
        """
        codes = {verdict.code for _claim, verdict in judged.verdicts()}
        is_loaded = "host-too-loaded" in codes
        is_open = is_loaded or ("gap" in codes and watch_broke)
        tries_left = self.item.config.getoption("again") - self.tries
        self.will_retry = is_open and tries_left > 0 and judged.worst().outcome != "deviates"
        self.retry_reason = "the host was too loaded" if is_loaded else "a watch broke"
        if is_loaded and tries_left <= 0 and judged.worst().outcome != "deviates":
            processes = busiest(_BUSIEST, _SAMPLE_S, os.getppid() if self.session.is_worker else os.getpid())
            rundir.write_json(self.session.run_folder / rundir.BUSIEST, processes)


def _attach_logs(handle: LabHandle, lab: Lab, history: History, is_expected: bool) -> None:
    """Attach the logs of the scenario's nodes; more of them if its outcome needs an explanation."""
    if not is_expected:
        handle.fetch_journals()
    with contextlib.suppress(Problem, OSError):
        nodes = {lab.target, *lab.targets, *scenario_report.concerned(history)}
        folders = (handle.life.logs, handle.journals)
        scenario_report.attach(scenario_report.log_tails(folders, nodes, short=is_expected))


def _quoted_skips(handle: LabHandle, history: History) -> str:
    """Return what the controller manager logged about nodes that it skipped, for a failure's message."""
    with contextlib.suppress(Problem, OSError):
        lines = [f"  {line}" for line in skipped_nodes(handle, history)]
        return "\n".join(["", "the controller manager skipped nodes:", *lines]) if lines else ""
    return ""


def _raise_outcome(judged: JudgedScenario, text: str, error: Exception | None) -> None:
    __tracebackhide__ = True
    verdict = judged.worst()
    if verdict.is_failure:
        pytest.fail(text, pytrace=False)
    if error is not None:
        raise Unproven(text) from error
    if verdict.is_known:
        pytest.xfail(text)
    if verdict.is_skip:
        pytest.skip(text)
    if verdict.outcome == "unproven":
        raise Unproven(text)


_SCENARIO = pytest.StashKey[ScenarioRun]()


def scenario_of(item: pytest.Item) -> ScenarioRun:
    """Return the scenario of an item, made at the first call."""
    if _SCENARIO not in item.stash:
        item.stash[_SCENARIO] = ScenarioRun(item, session_of(item.config))
    return item.stash[_SCENARIO]


def run_postponed(session: Session, items: Sequence[pytest.Item]) -> None:
    """Run the postponed scenarios of all workers, after they have run all others.

    The first retry runs beside at most half as many scenarios as the run has workers, the second one alone.

    Args:
        session: the session of this worker.
        items: all items of the run.
    """
    if not session.run_folder.exists():
        # Nothing ran, as in `nodeproof plan`.
        return
    by_nodeid = {item.nodeid: item for item in items}
    for turn in (Turn.HALF, Turn.ALONE):
        session.throttle.go_on_to(turn)
        for retry in _due(session, turn):
            scenario_of(by_nodeid[retry.nodeid]).retry(retry.tries)


def _due(session: Session, turn: Turn) -> Iterator[Retry]:
    """Yield the scenarios that this worker retries in a turn, until no worker can postpone another one."""
    while True:
        is_over = session.throttle.is_reached_by_all(turn)
        if (retry := session.retries.take(turn)) is not None:
            yield retry
        elif is_over:
            return
        else:
            wait_until(lambda: session.throttle.is_reached_by_all(turn), _POLL_S, _POLL_S)


def begin(config: pytest.Config, folder: Path | None = None) -> Session:
    """Return this process's session; the first call creates it and registers its hooks.

    Args:
        config: pytest's configuration.
        folder: where the run is stored; by default the option `--run` or the controller says where.

    Raises:
        pytest.UsageError: An option is invalid.
    """
    if SESSION not in config.stash:
        run.handle_signals(config)
        with usage_errors():
            session = config.stash[SESSION] = run.create(config, folder)
        config.pluginmanager.register(RunHooks(session), "nodeproof-run")
        if not session.is_worker:
            options = session.options
            version = options.kubernetes_version
            session.notifier.send(
                "begin", lab=options.kind, profile=options.profile, kubernetes_version=version
            )
    return config.stash[SESSION]


class RunHooks:
    """The hooks of one process of a run: its controller, a worker, or both in one."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass an xdist worker the run that it belongs to; the controller merges what the workers write."""
        node.workerinput.update(run.worker_input(node.config, self._session))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> PlanScheduling | None:
        """Schedule scenarios by the plan of the run."""
        if not is_planned(config):
            return None
        return PlanScheduling(config, lambda: worker_of(self._session.run_folder))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Store an unproven verdict for a scenario whose worker died."""
        run.store_crashed(self._session, crashitem)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Run the postponed scenarios after all others."""
        try:
            outcome = yield
            # With workers, these have the items.
            if session.items and not session.shouldstop and not session.shouldfail:
                run_postponed(self._session, session.items)
            return outcome
        finally:
            # The process of a worker that stops early outlives its tests: no other must wait for it.
            self._session.throttle.close()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Postpone a scenario that stayed open because of the host's load: it runs again at the end."""
        try:
            return (yield)
        finally:
            if is_scenario(item):
                scenario_of(item).leave()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set the scenario's Allure labels; skip it with a verdict if this lab and profile can't prove it."""
        if is_scenario(item):
            self._session.notifier.scenario = item.nodeid
            scenario_of(item).set_up()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Run the scenario, then close its judgments, even if it raised an exception."""
        if not is_scenario(item):
            return (yield)
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        scenario_of(item).close(error)
        return None

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Set the scenario's title and description in Allure, whatever its outcome."""
        if is_scenario(item):
            scenario_of(item).entitle()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Keep the harness's frames and secrets out of a report; a try before a retry is not a failure."""
        report = yield
        if is_scenario(item):
            present_failure(report, call, item)
            scenario_report.redact_report(report)
            if report.when == "call" and scenario_of(item).will_retry:
                report.outcome = RERUN
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show a try before a retry like pytest-rerunfailures does, and count open scenarios separately."""
        if str(report.outcome) == RERUN:
            return ("rerun", "R", "RERUN")
        return ("unproven", "U", "UNPROVEN") if is_open(report) else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End this process's lab; the controller, or a session without workers, also writes the results."""
        session = self._session
        if session.run_folder.is_dir():
            try:
                if session.provider is not None:
                    session.provider.end()
            except (Problem, OutsideError, OSError) as problem:
                session.say(f"the lab could not be shut down cleanly: {problem}")
            if not session.is_worker:
                run.write_results(session)
        if not session.is_worker:
            session.notifier.send("end", **run.end_facts(session.run_folder))
        session.notifier.close()

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print deviating and open claims, and the counts."""
        folder = self._session.run_folder
        if self._session.is_worker or not (folder / rundir.VERDICTS).exists():
            return
        options = {"table": run.whole_table, "settings": run.settings}
        parts = [part for name, part in options.items() if config.getoption(name)]
        terminalreporter.section("claims")
        for part in (*parts, run.closing_lines):
            for line in part(folder):
                terminalreporter.write_line(coloured(line) if terminalreporter.hasmarkup else line)
