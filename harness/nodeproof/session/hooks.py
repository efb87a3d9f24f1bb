"""The hooks of pytest that run scenarios; only nodeproof's own sessions have them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from nodeproof.model.problem import OutsideError, Problem
from nodeproof.session import scenario_report
from nodeproof.session.judging import RERUN, is_open, present_failure
from nodeproof.session.options import warn_of_excess_workers, workers
from nodeproof.session.planning import PlanScheduling, worker_of
from nodeproof.session.progress import show
from nodeproof.session.run import (
    SESSION,
    Session,
    check_load,
    closing_lines,
    create,
    end_facts,
    handle_signals,
    is_planned,
    is_scenario,
    settings,
    store_crashed,
    usage_errors,
    whole_table,
    worker_input,
    write_results,
)
from nodeproof.session.scenario_run import run_postponed, scenario_of
from nodeproof.terminal import coloured


def begin(config: pytest.Config, folder: Path | None = None) -> Session:
    """Return this process's session; the first call creates it and registers its hooks.

    Args:
        config: pytest's configuration.
        folder: where the run is stored; by default the option `--run` or the controller says where.

    Raises:
        pytest.UsageError: An option is invalid.
    """
    if SESSION not in config.stash:
        handle_signals(config)
        with usage_errors():
            session = config.stash[SESSION] = create(config, folder)
        config.pluginmanager.register(RunHooks(session), "nodeproof-run")
        if not session.is_worker:
            options = session.options
            session.notifier.send(
                "begin",
                lab=options.kind,
                profile=options.profile,
                kubernetes_version=options.kubernetes_version,
            )
    return config.stash[SESSION]


def show_progress(config: pytest.Config) -> None:
    """Show the progress of `nodeproof run`, and warn of too many workers.

    Raises:
        pytest.UsageError: An option is invalid.
    """
    show(config)
    with usage_errors():
        warn_of_excess_workers(config)


def begin_in_controller(config: pytest.Config) -> None:
    """Begin a run before xdist starts its workers; check how busy the machine is if the run has a plan.

    Raises:
        pytest.UsageError: An option is invalid.
    """
    session = begin(config)
    if is_planned(config):
        check_load(session, workers(config))


class RunHooks:
    """The hooks of one process of a run: its controller, a worker, or both in one."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass an xdist worker the run that it belongs to; the controller merges what the workers write."""
        node.workerinput.update(worker_input(node.config, self._session))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config) -> PlanScheduling | None:
        """Schedule scenarios by the plan of the run."""
        if not is_planned(config):
            return None
        return PlanScheduling(config, lambda: worker_of(self._session.run_folder))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str) -> None:
        """Store an unproven verdict for a scenario whose worker died."""
        store_crashed(self._session, crashitem)

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
                write_results(session)
        if not session.is_worker:
            session.notifier.send("end", **end_facts(session.run_folder))
        session.notifier.close()

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print deviating and open claims, and the counts."""
        run = self._session.run_folder
        if self._session.is_worker or not (run / "verdicts.json").exists():
            return
        options = {"table": whole_table, "settings": settings}
        parts = [part for name, part in options.items() if config.getoption(name)]
        terminalreporter.section("claims")
        for part in (*parts, closing_lines):
            for line in part(run):
                terminalreporter.write_line(coloured(line) if terminalreporter.hasmarkup else line)
