"""The pytest plugin: options, markers, fixtures, and the way from a scenario to its verdicts."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from harness import catalogue
from harness.model.claim import Claim
from harness.model.problem import OutsideError, Problem
from harness.safety.shield import SIGNALS, interrupt_once
from harness.session import asked
from harness.session.judging import Judge, Unproven

if TYPE_CHECKING:
    from harness.labs.stage import Stage
    from harness.session.judging import Closed
    from harness.session.options import Options
    from harness.session.running import LabProvider

__all__ = ["Judge", "Unproven"]
DEFAULT_OUT = "reports/out"
SELECTED = "selected-claims"
DECLARED = "declared-claims.json"
BROKEN_OFF = "broken-off"


@dataclass
class Session:
    """What one pytest process knows of its run; `provider` is made with the first scenario."""

    options: Options
    claims: dict[str, Claim]
    run: Path
    began: datetime
    command: str
    is_worker: bool
    say: Callable[[str], None]
    selected: set[str] = field(default_factory=set)
    provider: LabProvider | None = None


SESSION = pytest.StashKey[Session]()
STAGE = pytest.StashKey["Stage"]()
JUDGE = pytest.StashKey[Judge]()
HANDLERS = pytest.StashKey[dict[signal.Signals, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register what `pytest --help` lists under nodeproof."""
    group = parser.getgroup("nodeproof", "claims of the Kubernetes Nodes page on a lab that may be harmed")
    group.addoption(
        "--lab",
        default="process",
        help="kind of lab to start (process, libvirt), or the name of a running one",
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
    group.addoption("--zones", type=int, default=1, help="zones that the lab's nodes are spread over")
    group.addoption(
        "--run", default="", metavar="DIR", help="folder of this run (default: a new one below reports/out)"
    )
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
        "needs(nodes=2, faulted=0, zones=1, features=(), profile=''): what a scenario needs "
        "of its lab; `faulted` is how many nodes its faults may hit, `profile` the only one that proves it",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """SIGTERM and SIGHUP end a session as Ctrl-C does, so that every lab is torn down."""
    handler = interrupt_once(lambda: _say_what_ends(session.config))
    session.config.stash[HANDLERS] = {number: signal.getsignal(number) for number in SIGNALS}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give signals back to whoever had them."""
    for number, handler in config.stash.get(HANDLERS, {}).items():
        signal.signal(number, handler or signal.SIG_DFL)


def _say_what_ends(config: pytest.Config) -> None:
    """Answer who asks again to end."""
    known = config.stash.get(SESSION, None)
    if known is None:
        return
    known.say("what was begun is being ended in order, please wait")
    if known.provider is not None and known.provider.lab is not None:
        known.provider.lab.injector.say_what_is_in()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to; the controller merges what the workers write."""
    node.workerinput["nodeproof_run"] = str(_session(node.config).run)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """A worker that died in mid-scenario left no verdict: the controller writes that nothing is known.

    It keeps a name of its own: xdist may give the scenario to another worker, which begins it anew.
    """
    session = _session(sched.config)
    from harness.report.rundir import read_json, scenario_dir
    from harness.session.judging import without_running
    from harness.session.recording import report_broken, store_skipped

    died, reason = f"{crashitem} (its worker died)", "the worker that ran the scenario died"
    with contextlib.suppress(OSError):
        scenario_dir(session.run, crashitem).rename(scenario_dir(session.run, died))
    declared = [session.claims[claim] for claim in read_json(session.run / DECLARED).get(crashitem, ())]
    store_skipped(
        session.run, died, without_running(declared, "gap", reason), session.claims, session.options
    )
    report_broken(session.run, died, reason)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the scenarios of the claims that were asked for; refuse claims that the catalogue does not
    know.
    """
    scenarios = [item for item in items if item.get_closest_marker("claims")]
    if not scenarios and not config.getoption("claim"):
        return
    session = _session(config)
    for item in scenarios:
        for claim in asked.declared(item):
            _usage(lambda claim=claim: catalogue.asked_for(claim, session.claims))
        _usage(lambda item=item: asked.check(item))
    if session.options.claims:
        wanted = set(session.options.claims)
        dropped = [item for item in scenarios if not wanted & set(asked.declared(item))]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    items.sort(key=asked.is_quick)
    session.selected = {claim for item in items for claim in asked.declared(item)}
    if not config.option.collectonly and session.selected:
        _open_run(config, session, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with a verdict, what this lab and profile can't prove; else put the scenario's labels into
    Allure.
    """
    if not item.get_closest_marker("claims"):
        return
    from harness.session.recording import label

    session = _session(item.config)
    label([session.claims[claim] for claim in asked.declared(item)], session.options)
    lacks = asked.lacks(item, session.options)
    if lacks is not None:
        _skip_with_verdict(item, session, *lacks)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A clean lab: all nodes Ready, nothing of an earlier scenario left, one node that may be harmed."""
    import allure

    from harness.labs.lab import TooFewNodes
    from harness.labs.stage import Stage
    from harness.report.rundir import scenario_dir

    session = _session(request.config)
    provider = _provider(session)
    faulted = asked.needs(request.node).faulted
    try:
        folder = scenario_dir(session.run, request.node.nodeid)
        living = provider.clean(faulted)
        missing = asked.lacks_features(request.node, living.features)
        stage = Stage(living, folder, faulted, allure.step)
    except TooFewNodes as problem:
        _store_unrecorded(request.node, session, problem)
        raise Unproven(str(problem)) from problem
    except (Problem, OutsideError) as problem:
        _break_off(session, str(problem))
    if missing:
        _skip_with_verdict(request.node, session, "lab-lacks", f"this lab has no {missing}")
    request.node.stash[STAGE] = stage
    yield stage


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """`judge(claim, check)`: decide a declared claim by a check of the recording."""
    made = Judge(asked.declared(request.node), _session(request.config).claims)
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
    _close(item, error)
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End this process's lab; the controller, or a session without workers, writes the run down."""
    known = session.config.stash.get(SESSION, None)
    if known is None or not known.run.is_dir():
        return
    try:
        if known.provider is not None:
            known.provider.close()
    except (Problem, OutsideError, OSError) as problem:
        known.say(f"the lab could not be ended in order: {problem}")
    if not known.is_worker:
        _write_run(known)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the closing table."""
    known = config.stash.get(SESSION, None)
    if known is None or known.is_worker or not (known.run / "verdicts.json").exists():
        return
    from harness.report import rundir, table

    terminalreporter.section("claims")
    facts, rows = rundir.read_facts(known.run), rundir.read_verdicts(known.run)
    terminalreporter.write_line(table.render(rows, facts.duration_s, str(known.run)))
    terminalreporter.write_line(f"not upstream's defaults: {'; '.join(facts.settings)}")
    if facts.quarantined:
        terminalreporter.write_line(f"no probe proved these nodes healed: {', '.join(facts.quarantined)}")
    unjudged = sorted(set(facts.selected) - {row["claim"] for row in rows})
    if unjudged:
        terminalreporter.write_line(f"selected and without a verdict: {', '.join(unjudged)}")
    if facts.exit_reason:
        terminalreporter.write_line(f"nodeproof: {facts.exit_reason}")


def run_folder(config: pytest.Config) -> Path | None:
    """Where this session's run was written; None when it ran no scenario."""
    known = config.stash.get(SESSION, None)
    return known.run if known is not None else None


def _break_off(session: Session, reason: str) -> NoReturn:
    """End the whole session: its environment does not do. A worker leaves the reason for the controller."""
    (session.run / BROKEN_OFF).write_text(reason)
    session.say(reason)
    pytest.exit(f"nodeproof: {reason}", returncode=2)


def _session(config: pytest.Config) -> Session:
    """What this process knows of its run, made when first asked for. Raises pytest.UsageError."""
    if SESSION not in config.stash:
        config.stash[SESSION] = _usage(lambda: _make_session(config))
    return config.stash[SESSION]


def _make_session(config: pytest.Config) -> Session:
    from harness.report.rundir import plan
    from harness.session.options import resolve

    names = ("lab", "profile", "kubernetes_version", "components", "claim", "nodes", "zones")
    lab, profile, version, components, wanted, nodes, zones = (config.getoption(name) for name in names)
    options = resolve(lab, profile, version, components, tuple(wanted), nodes, zones)
    if not options.is_ours and config.getoption("numprocesses", None):
        raise Problem("a lab that runs takes one worker", "--lab", "leave -n out")
    claims = dict(catalogue.load(config.getini("nodeproof_claims")))
    for claim in options.claims:
        catalogue.asked_for(claim, claims)
    worker = getattr(config, "workerinput", None)
    top = config.rootpath if config.inipath else config.invocation_params.dir
    given = worker["nodeproof_run"] if worker else config.getoption("run")
    run = Path(given) if given else plan(top / config.getini("nodeproof_out"), options.profile, options.kind)
    command = " ".join(["pytest", *config.invocation_params.args])
    return Session(options, claims, run, datetime.now(UTC), command, worker is not None, _speaker(config))


def _open_run(config: pytest.Config, session: Session, items: Sequence[pytest.Item]) -> None:
    """Make the run's folder, size the lab for its scenarios, and let Allure write into the run."""
    from dataclasses import replace

    from harness.report import rundir

    rundir.create(session.run)
    signal.signal(signal.SIGINT, interrupt_once(lambda: _say_what_ends(config)))
    rundir.write_json(session.run / DECLARED, {item.nodeid: asked.declared(item) for item in items})
    (session.run / SELECTED).write_text("\n".join(sorted(session.selected)))
    scenarios = (item for item in items if item.get_closest_marker("claims"))
    needed = max(asked.needs(item).nodes for item in scenarios)
    if not session.options.nodes:
        session.options = replace(session.options, nodes=max(needed, 2 * session.options.zones))
    if not config.getoption("allure_report_dir", default=None):
        allure = config.pluginmanager.get_plugin("allure_pytest")
        if allure is not None:
            config.option.allure_report_dir = str(session.run / "allure-results")
            allure.pytest_configure(config)


def _provider(session: Session) -> LabProvider:
    from harness.session.running import LabProvider

    if session.provider is None:
        session.provider = LabProvider(session.options, session.run, session.say)
    return session.provider


def _speaker(config: pytest.Config) -> Callable[[str], None]:
    """Says a line on standard error at once, past pytest's capture."""
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"nodeproof: {line}", file=sys.stderr, flush=True)

    return say


def _skip_with_verdict(item: pytest.Item, session: Session, code: Any, reason: str) -> None:
    from harness.session.judging import without_running
    from harness.session.recording import store_skipped

    declared = [session.claims[claim] for claim in asked.declared(item)]
    store_skipped(
        session.run, item.nodeid, without_running(declared, code, reason), session.claims, session.options
    )
    pytest.skip(f"unproven: {code}: {reason}")


def _close(item: pytest.Item, error: Exception | None) -> None:
    """Evaluate, store, attach, and give pytest the outcome that the verdicts ask for."""
    from harness.checks.judge import died
    from harness.session import recording as stored
    from harness.session.judging import close, message

    __tracebackhide__ = True
    session = _session(item.config)
    stage, made = item.stash.get(STAGE, None), item.stash.get(JUDGE, None)
    if stage is None or made is None or stage.recording is None:
        if error is not None:
            _store_unrecorded(item, session, error)
            raise error
        raise Unproven(
            "the scenario recorded nothing: use the fixtures `lab` and `judge`, and `lab.record()`"
        )
    declared = [session.claims[claim] for claim in asked.declared(item)]
    history = stage.history()
    broken = f"{type(error).__name__}: {error}" if error else ""
    closed = close(declared, made.judgments, history, stage.configuration, broken)
    stored.store(session.run, item.nodeid, closed, session.claims, stage.configuration, history)
    stored.attach(session.run, item.nodeid, closed, stage.configuration)
    provider = _provider(session)
    if provider.lab is not None:
        if error is not None or closed.worst().outcome != "conforms":
            provider.lab.fetch_journals()
        with contextlib.suppress(Problem, OSError):
            stored.attach_logs(provider.lab.logs, provider.lab.journals)
    provider.last_taint_t = stored.last_no_execute_taint(history)
    if died(history) is not None:
        provider.discard()
    _raise_outcome(closed, message(closed, session.claims, stage.configuration.kubernetes_version), error)


def _store_unrecorded(item: pytest.Item, session: Session, error: Exception) -> None:
    """A scenario that broke off before it recorded anything: every declared claim gets its verdict all the
    same.
    """
    from harness.session.judging import without_running
    from harness.session.recording import store_skipped

    declared = [session.claims[claim] for claim in asked.declared(item)]
    closed = without_running(declared, "gap", f"nothing was recorded: {type(error).__name__}: {error}")
    store_skipped(session.run, item.nodeid, closed, session.claims, session.options)


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


def _write_run(known: Session) -> None:
    from harness.session import running

    left = running.end_labs(known.run, known.options)
    if left:
        known.say(f"ended labs of workers that are gone: {', '.join(left)}")
    selected = sorted(known.selected or _written(known.run, SELECTED).split())
    broken = _written(known.run, BROKEN_OFF)
    running.write_run(known.run, known.options, known.began, known.command, selected, broken)


def _written(run: Path, name: str) -> str:
    """What a process of this run left for the others; nothing is fine."""
    with contextlib.suppress(OSError):
        return (run / name).read_text()
    return ""


def _usage(make: Any) -> Any:
    """Turn a Problem with the command line into pytest's usage error (exit code 4)."""
    try:
        return make()
    except Problem as problem:
        raise pytest.UsageError(f"nodeproof: {problem}") from problem
