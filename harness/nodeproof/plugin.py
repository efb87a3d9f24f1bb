"""The pytest plugin: options, markers, fixtures and hooks. What they do is in `session`.

Every pytest where nodeproof is installed loads it: what a run needs is imported when there is one.
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
    group = parser.getgroup("nodeproof", "claims of the Kubernetes Nodes page on a lab that may be harmed")
    group.addoption(
        "--lab",
        default="",
        help="kind of lab to start, or NAME or NAME/ZONE of a running one (default: process nodes)",
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
        "--topology", default="", metavar="FILE", help="which nodes the lab has, instead (infra/topology)"
    )
    group.addoption(
        "--run", default="", metavar="DIR", help="folder of this run (default: a new one below reports/out)"
    )
    group.addoption(
        "--settings", action="store_true", help="list the settings that are not upstream's in the end"
    )
    group.addoption(
        "--table", action="store_true", help="print the table of all claims in the end (table.txt of the run)"
    )
    group.addoption(
        "--again", type=int, default=2, metavar="N",
        help="run a scenario up to N times more, at the end, if its host was too loaded to tell (default 2)",
    )  # fmt: skip
    group.addoption(
        "--shard", default="", metavar="K/N",
        help="run one of N parts of the scenarios, which `nodeproof merge` makes one run again",
    )  # fmt: skip
    group.addoption(
        "--times", default="", metavar="FILE",
        help="plan by the times.json of one run, not by earlier runs here; the same for all shards",
    )  # fmt: skip
    group.addoption("--shipped", action="store_true", help="run the shipped scenarios when no path is given")
    parser.addini("nodeproof_claims", "folders with claims of your own", type="paths", default=[])
    parser.addini("nodeproof_out", "where runs are kept", default=DEFAULT_OUT)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; nothing else happens until a scenario is collected."""
    if config.getoption("shipped") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(catalogue.scenarios_dir())]
    config.addinivalue_line("markers", "claims(*ids): the claims of the catalogue that a scenario judges")
    config.addinivalue_line(
        "markers",
        "needs(nodes=2, faulted=0, zones=1, features=(), profile='', lasts='', isolation='zone'): what a "
        "scenario needs of its lab; nodes=(20, 3) is a lab of two zones of these sizes; `faulted` is how "
        "many nodes its faults may hit, of each zone where several are told, `profile` the only one "
        "that proves it, `isolation` whether others may run in other zones of its lab",
    )
    config.addinivalue_line(
        "markers", "standing(fault, *args, **kwargs): a fault that stands before the scenario begins"
    )
    config.addinivalue_line("markers", "machine: set by itself on a scenario that no process lab proves")
    if not hasattr(config, "workerinput"):
        config.stash[TIMES] = Times()
        config.pluginmanager.register(config.stash[TIMES])


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """`nodeproof run` has several slots of itself on some kinds of lab; xdist reads how many after this."""
    if config.getoption("shipped"):
        from nodeproof.session.slots import set_default

        usage(lambda: set_default(config))
    return (yield)


def pytest_sessionstart(session: pytest.Session) -> None:
    """SIGTERM and SIGHUP end a session as Ctrl-C does, so that every lab is torn down. Say that too many
    slots were asked for.
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
    """Give signals back to whoever had them."""
    for number, handler in config.stash.get(HANDLERS, {}).items():
        signal.signal(number, handler or signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto`: as many labs side by side as this machine bears; other tests are others' business."""
    if not config.getoption("shipped"):
        return None
    from nodeproof.session.slots import auto

    return int(usage(lambda: auto(config)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to; the controller merges what the workers write."""
    session = session_of(node.config)
    told = {"run": str(session.run), "known": dict(session.durations_s), "planned": is_planned(node.config)}
    told["drawn"] = session.telling is not None
    node.workerinput.update({f"nodeproof_{name}": value for name, value in told.items()})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out scenarios by the plan of the run."""
    if not is_planned(config):
        return None
    from nodeproof.session.planning import slot_of
    from nodeproof.session.scheduling import Planned

    return Planned(config, log, lambda: slot_of(session_of(config).run))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """A worker that died in mid-scenario left no verdict: the controller writes that nothing is known.

    It keeps a name of its own: xdist may give the scenario to another worker, which begins it anew.
    """
    from nodeproof.session.closing import store_crashed

    store_crashed(session_of(sched.config), crashitem)


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-m machine` chooses what needs a virtual machine."""
    if asked.needs_machine(item):
        item.add_marker("machine")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the scenarios of the claims that were asked for; refuse claims that the catalogue does not
    know.
    """
    scenarios = [item for item in items if item.get_closest_marker("claims")]
    if not scenarios and not config.getoption("claim"):
        return
    session = session_of(config)
    for item in scenarios:
        for claim in asked.declared(item):
            usage(lambda claim=claim: catalogue.asked_for(claim, session.claims))
        usage(lambda item=item: asked.check(item))
    if session.options.claims:
        wanted = set(session.options.claims)
        dropped = [item for item in scenarios if not wanted & set(asked.declared(item))]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    if config.getoption("shard") and scenarios:
        usage(lambda: keep_shard(config, session, items))
    session.selected = {claim for item in items for claim in asked.declared(item)}
    if session.selected:
        plan_for(config, session, items)
    if not config.option.collectonly and session.selected:
        open_run(config, session, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with a verdict, what this lab and profile can't prove; else put the scenario's labels into
    Allure.
    """
    if not item.get_closest_marker("claims"):
        return
    from nodeproof.session.closing import skip_with_verdict
    from nodeproof.session.recording import label

    session = session_of(item.config)
    if session.telling is not None:
        session.telling.began(item.nodeid)
    label(item.nodeid, [session.claims[claim] for claim in asked.declared(item)], session.options)
    lacks = asked.lacks(item, session.options)
    if lacks is not None:
        skip_with_verdict(item, session, *lacks)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Put a scenario off that the host's load left open: it runs again at the end."""
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
    """Run the scenarios that were put off once the others are done."""
    outcome = yield
    own_session = session.config.stash.get(SESSION, None)
    if own_session is not None and not session.shouldstop and not session.shouldfail:
        from nodeproof.session import again

        again.run_put_off(own_session)
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Keep the harness's frames and secrets out of a report; a try that another one follows is no failure."""
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
    """Show such a try as pytest-rerunfailures does, and count what stayed open for itself: the summary says
    why.
    """
    if str(report.outcome) == "rerun":
        return ("rerun", "R", "RERUN")
    return ("unproven", "U", "UNPROVEN") if failures.is_open(report) else None


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A clean lab: all nodes Ready, nothing of an earlier scenario left, one node that may be harmed."""
    from nodeproof.session.opening import open_stage

    yield open_stage(request.node)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """`judge(claim, check)`: decide a declared claim by a check of the recording."""
    made = Judge(asked.declared(request.node), session_of(request.config).claims)
    request.node.stash[JUDGE] = made
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run the scenario, then close its judgments, also when it broke off."""
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
    """Give the scenario its sentence in Allure, whatever became of it."""
    if not item.get_closest_marker("claims"):
        return
    from nodeproof.session.recording import entitle

    session = session_of(item.config)
    remark = str(getattr(getattr(item, "function", None), "__doc__", None) or "")
    entitle(item.nodeid, [session.claims[claim] for claim in asked.declared(item)], remark)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End this process's lab; the controller, or a session without workers, writes the run down."""
    known = session.config.stash.get(SESSION, None)
    if known is None or not known.run.is_dir():
        return
    try:
        if known.provider is not None:
            known.provider.end()
    except (Problem, OutsideError, OSError) as problem:
        known.say(f"the lab could not be ended in order: {problem}")
    if not known.is_worker:
        from nodeproof.session.closing import write_down

        write_down(known, session.config.stash[TIMES])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what deviates, what stayed open, and the counts."""
    known = config.stash.get(SESSION, None)
    if known is None or known.is_worker or not (known.run / "verdicts.json").exists():
        return
    from nodeproof.session import closing

    options = {"table": closing.whole_table, "settings": closing.settings}
    parts = [part for name, part in options.items() if config.getoption(name)]
    terminalreporter.section("claims")
    for part in (*parts, closing.summary):
        for line in part(known.run):
            terminalreporter.write_line(line)


def run_folder(config: pytest.Config) -> Path | None:
    """Where this session's run was written; None when it ran no scenario."""
    known = config.stash.get(SESSION, None)
    return known.run if known is not None else None
