"""The pytest plugin: options, markers, fixtures and hooks. Their implementation is in `session`.

Every pytest in the same environment loads it, so it imports what a run needs only during a run.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodeproof import catalogue
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.shield import SIGNALS, interrupt_once
from nodeproof.session import asked, failures
from nodeproof.session.judging import JUDGE, Judge, Unproven
from nodeproof.session.run import (
    SESSION,
    is_planned,
    keep_shard,
    look_around,
    open_run,
    plan_for,
    say_what_ends,
    session_of,
    usage,
)
from nodeproof.session.times import TIMES, Times

if TYPE_CHECKING:
    from nodeproof.scenario.stage import Stage

__all__ = ["Judge", "Unproven"]
DEFAULT_OUT = "reports/out"
HANDLERS = pytest.StashKey[dict[signal.Signals, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register what `pytest --help` lists under nodeproof."""
    group = parser.getgroup("nodeproof", "judge claims of the Kubernetes Nodes page on a test cluster")
    group.addoption(
        "--lab",
        default="",
        help="kind of lab to start, or NAME or NAME/ZONE of a running lab (default: process nodes)",
    )
    group.addoption("--profile", default="", help="timing of the components: fast (default) or documented")
    group.addoption(
        "--kubernetes-version", default="", help="Kubernetes version of the components (default v1.36.3)"
    )
    group.addoption(
        "--components", default="build", help="'build', or a folder with the components' executables"
    )
    group.addoption(
        "--claim", action="append", default=[], metavar="ID", help="only scenarios that judge this claim"
    )
    group.addoption(
        "--nodes", type=int, default=0, help="nodes of the lab (default: as many as the scenarios need)"
    )
    group.addoption(
        "--zones", type=int, default=0, help="zones that the lab's nodes are spread over (default: as needed)"
    )
    group.addoption(
        "--topology", default="", metavar="FILE", help="file that lists the nodes, instead (infra/topology)"
    )
    group.addoption(
        "--run", default="", metavar="DIR", help="folder of this run (default: a new one in reports/out)"
    )
    group.addoption(
        "--settings", action="store_true", help="after the run, list all non-default settings of the lab"
    )
    group.addoption(
        "--table", action="store_true", help="after the run, print the table of all claims (table.txt)"
    )
    group.addoption(
        "--again", type=int, default=2, metavar="N",
        help="retry a scenario up to N times if the host was too busy to judge it (default 2)",
    )  # fmt: skip
    group.addoption(
        "--shard", default="", metavar="K/N",
        help="run part K of N of the scenarios; `nodeproof merge` merges the parts",
    )  # fmt: skip
    group.addoption(
        "--times", default="", metavar="FILE",
        help="times.json to plan by, instead of earlier runs; must be the same for all shards",
    )  # fmt: skip
    group.addoption("--shipped", action="store_true", help="run the shipped scenarios when no path is given")
    parser.addini("nodeproof_claims", "folders with claims of your own", type="paths", default=[])
    parser.addini("nodeproof_out", "folder of runs", default=DEFAULT_OUT)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; everything else waits until a scenario is collected."""
    if config.getoption("shipped") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(catalogue.scenarios_dir())]
    config.addinivalue_line("markers", "claims(*ids): the claims of the catalogue that a scenario judges")
    config.addinivalue_line(
        "markers",
        "needs(nodes=2, faulted=0, zones=1, features=(), profile='', lasts='', isolation='zone'): what a "
        "scenario needs of its lab; nodes=(20, 3) is a lab with two zones of these sizes; `faulted` is how "
        "many nodes its faults may affect (for several zones: in each zone), `profile` the only profile "
        "that proves it, `isolation` whether other scenarios may run in other zones of its lab",
    )
    config.addinivalue_line(
        "markers", "standing(fault, *args, **kwargs): a fault that is injected before the scenario begins"
    )
    config.addinivalue_line(
        "markers", "machine: set automatically on a scenario that needs a virtual machine"
    )
    if not hasattr(config, "workerinput"):
        config.stash[TIMES] = Times()
        config.pluginmanager.register(config.stash[TIMES])


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Set the default number of slots of `nodeproof run`, before xdist reads it."""
    if config.getoption("shipped"):
        from nodeproof.session.slots import set_default

        usage(lambda: set_default(config))
    return (yield)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let SIGTERM and SIGHUP end a session like Ctrl-C, so that every lab is torn down.

    The controller of `nodeproof run` also warns of too many slots and checks how busy the machine is.
    """
    handler = interrupt_once(lambda: say_what_ends(session.config))
    session.config.stash[HANDLERS] = {number: signal.getsignal(number) for number in SIGNALS}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)
    if session.config.getoption("shipped") and not hasattr(session.config, "workerinput"):
        from nodeproof.session.live import show
        from nodeproof.session.slots import warn_of_more

        show(session.config)
        usage(lambda: warn_of_more(session.config))
        if is_planned(session.config) and not session.config.option.collectonly:
            look_around(session_of(session.config), session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the previous signal handlers."""
    for number, handler in config.stash.get(HANDLERS, {}).items():
        signal.signal(number, handler or signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return for `-n auto` as many slots as this machine supports, in `nodeproof run` only."""
    if not config.getoption("shipped"):
        return None
    from nodeproof.session.slots import auto

    return int(usage(lambda: auto(config)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass an xdist worker the run that it belongs to; the controller merges what the workers write."""
    session = session_of(node.config)
    run = {"run": str(session.run), "known": dict(session.durations_s), "planned": is_planned(node.config)}
    run["drawn"] = session.telling is not None
    node.workerinput.update({f"nodeproof_{name}": value for name, value in run.items()})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule scenarios by the plan of the run."""
    if not is_planned(config):
        return None
    from nodeproof.session.planning import slot_of
    from nodeproof.session.scheduling import Planned

    return Planned(config, log, lambda: slot_of(session_of(config).run))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Store an unproven verdict for a scenario whose worker died.

    It gets its own name: xdist may give the scenario to another worker, which runs it from the start.
    """
    from nodeproof.session.closing import store_crashed

    store_crashed(session_of(sched.config), crashitem)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark scenarios that need a virtual machine, for `-m machine`."""
    if asked.needs_machine(item):
        item.add_marker("machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the scenarios of `--claim`, and refuse claims that are not in the catalogue."""
    scenarios = [item for item in items if item.get_closest_marker("claims")]
    if not scenarios and not config.getoption("claim"):
        return
    session = session_of(config)
    for item in scenarios:
        for claim in asked.declared(item):
            usage(lambda claim=claim: catalogue.asked_for(claim, session.claims))
        usage(lambda item=item: asked.check(item))
    if session.options.claims:
        selected = set(session.options.claims)
        deselected = [item for item in scenarios if not selected & set(asked.declared(item))]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]
    if config.getoption("shard") and scenarios:
        usage(lambda: keep_shard(config, session, items))
    session.selected = {claim for item in items for claim in asked.declared(item)}
    if session.selected:
        plan_for(config, session, items)
    if not config.option.collectonly and session.selected:
        open_run(config, session, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the scenario's Allure labels; skip it with a verdict if this lab and profile can't prove it."""
    if not item.get_closest_marker("claims"):
        return
    from nodeproof.session.closing import skip_with_verdict
    from nodeproof.session.recording import label

    session = session_of(item.config)
    if session.telling is not None:
        session.telling.began(item.nodeid)
    label(item.nodeid, [session.claims[claim] for claim in asked.declared(item)], session.options)
    missing = asked.lacks(item, session.options)
    if missing is not None:
        skip_with_verdict(item, session, *missing)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Postpone a scenario that stayed open because of the host's load: it runs again at the end."""
    if not item.get_closest_marker("claims"):
        return (yield)
    from nodeproof.session import again

    session = session_of(item.config)
    try:
        return (yield)
    finally:
        session.admission.leave()
        if session.telling is not None:
            session.telling.ended()
        if again.is_due(item):
            again.put_off(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Run the postponed scenarios after all others."""
    outcome = yield
    own_session = session.config.stash.get(SESSION, None)
    if own_session is not None and not session.shouldstop and not session.shouldfail:
        from nodeproof.session import again

        again.run_put_off(own_session)
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Keep the harness's frames and secrets out of a report; a try before a retry is not a failure."""
    report = yield
    if not item.get_closest_marker("claims"):
        return report
    from nodeproof.session import again, published

    failures.present(report, call, item)
    published.clean(report)
    if report.when == "call" and again.is_due(item):
        report.outcome = again.RERUN
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show a try before a retry like pytest-rerunfailures does, and count open scenarios separately."""
    if str(report.outcome) == "rerun":
        return ("rerun", "R", "RERUN")
    return ("unproven", "U", "UNPROVEN") if failures.is_open(report) else None


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Provide a clean lab: all nodes are Ready, and nothing of an earlier scenario is left."""
    from nodeproof.session.opening import open_stage

    yield open_stage(request.node)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Provide `judge(claim, check)`, which decides a declared claim by a check of the recording."""
    judge = Judge(asked.declared(request.node), session_of(request.config).claims)
    request.node.stash[JUDGE] = judge
    return judge


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run the scenario, then close its judgments, even if it raised an exception."""
    if not item.get_closest_marker("claims"):
        return (yield)
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    from nodeproof.session.closing import close_scenario

    close_scenario(item, error)
    return None


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Set the scenario's title and description in Allure, whatever its outcome."""
    if not item.get_closest_marker("claims"):
        return
    from nodeproof.session.recording import entitle

    session = session_of(item.config)
    remark = str(getattr(getattr(item, "function", None), "__doc__", None) or "")
    entitle(item.nodeid, [session.claims[claim] for claim in asked.declared(item)], remark)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End this process's lab; the controller, or a session without workers, also writes the run's results."""
    own_session = session.config.stash.get(SESSION, None)
    if own_session is None or not own_session.run.is_dir():
        return
    try:
        if own_session.provider is not None:
            own_session.provider.end()
    except (Problem, OutsideError, OSError) as problem:
        own_session.say(f"the lab could not be shut down cleanly: {problem}")
    if not own_session.is_worker:
        from nodeproof.session.closing import write_down

        write_down(own_session, session.config.stash[TIMES])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print deviating and open claims, and the counts."""
    own_session = config.stash.get(SESSION, None)
    if own_session is None or own_session.is_worker or not (own_session.run / "verdicts.json").exists():
        return
    from nodeproof.session import closing

    options = {"table": closing.whole_table, "settings": closing.settings}
    parts = [part for name, part in options.items() if config.getoption(name)]
    terminalreporter.section("claims")
    for part in (*parts, closing.summary):
        for line in part(own_session.run):
            terminalreporter.write_line(line)


def run_folder(config: pytest.Config) -> Path | None:
    """Return the folder of this session's run, or None if it ran no scenario."""
    own_session = config.stash.get(SESSION, None)
    return own_session.run if own_session is not None else None
