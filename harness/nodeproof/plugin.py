"""The pytest plugin: options, markers, fixtures, and the beginning of a run.

Every pytest in the same environment loads it. In a session without scenarios and without its options it does
nothing; other sessions register the hooks of `session/scenario_run.py`, whose imports they alone pay for.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodeproof import catalogue
from nodeproof.run_options import RUN_OPTIONS
from nodeproof.session import markers, output_folder, usage_errors
from nodeproof.session.judging import Judge, Unproven
from nodeproof.session.markers import CLAIM_FIXTURE, claim_ids

if TYPE_CHECKING:
    from nodeproof.model.schedule import Schedule
    from nodeproof.scenario.lab import Expectation, Expectations, Lab
    from nodeproof.session.scenario_run import ScenarioRun

__all__ = ["Judge", "Unproven"]
# Its assertions are those of tests; pytest rewrites no module of a package by itself.
pytest.register_assert_rewrite("nodeproof.testing")
DEFAULT_OUT = "reports/out"
_DECISIVE_OPTIONS = (
    "lab", "cluster", "profile", "kubernetes_version", "nodes", "zones", "topology", "run", "claim", "shard",
    "times", "shipped", "feature_gates", "set", "source", "node_versions", "upgrade_to", "storm",
)  # fmt: skip
SETTINGS: Mapping[str, Any] = {
    "nodeproof_claims": {"help": "folders with claims of your own", "type": "paths", "default": []},
    "nodeproof_out": {"help": "folder of runs", "default": DEFAULT_OUT},
}
"""The settings in pytest's configuration, with the arguments of `addini`."""
_MARKERS = (
    "claims(*ids): the claims of the catalogue that a scenario judges",
    "needs(nodes=2, faulted=0, zones=1, features=(), profile='', duration_s='', isolation='zone'): what "
    "a scenario needs of its lab; nodes=(20, 3) is a lab with two zones of these sizes; `faulted` is how "
    "many nodes its faults may affect (for several zones: in each zone), `profile` the only profile "
    "that proves it, `isolation` whether other scenarios may run in other zones of its lab",
    "standing(fault, *args, **kwargs): a fault that is injected before the scenario begins",
    "machine: set automatically on a scenario that needs a virtual machine",
    "skew: set automatically on a scenario that must also hold with older kubelets",
)
_FOLDER = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register what `pytest --help` lists under nodeproof."""
    group = parser.getgroup("nodeproof", "judge claims of the Kubernetes Nodes page on a test cluster")
    for option in RUN_OPTIONS:
        group.addoption(*option.names, **option.how)
    for name, how in SETTINGS.items():
        parser.addini(name, **how)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and replace a missing path by the shipped scenarios."""
    if config.getoption("shipped") and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(catalogue.scenarios_dir())]
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Set the default number of workers of `nodeproof run`, before xdist reads it."""
    if config.getoption("shipped"):
        from nodeproof.session.options import set_default_workers

        with usage_errors():
            set_default_workers(config)
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return for `-n auto` as many workers as this machine supports, in `nodeproof run` only."""
    if not config.getoption("shipped"):
        return None
    from nodeproof.session.options import default_workers

    with usage_errors():
        return default_workers(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Show the progress of `nodeproof run`; begin the run in xdist's controller, which collects nothing.

    Other processes, and a controller without options of nodeproof, begin it with the first scenario.
    """
    config = session.config
    if hasattr(config, "workerinput") or not _has_options(config):
        return
    from nodeproof.session.options import warn_of_excess_workers, workers
    from nodeproof.session.progress import show
    from nodeproof.session.run import check_load, is_planned
    from nodeproof.session.scenario_run import begin

    if config.getoption("shipped"):
        show(config)
        with usage_errors():
            warn_of_excess_workers(config)
    if config.getoption("dist", "no") != "no" and not config.option.collectonly:
        run = begin(config)
        if is_planned(config):
            check_load(run, workers(config))


def _has_options(config: pytest.Config) -> bool:
    """Return whether an option says what to run, or on which lab."""
    return any(map(config.getoption, _DECISIVE_OPTIONS)) or config.getoption("components") != "build"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass an xdist worker the folder of the run that it begins if it collects scenarios."""
    from nodeproof.labs.base.profiles import FAST
    from nodeproof.labs.kinds import DEFAULT_KIND
    from nodeproof.report.rundir import new_folder

    config = node.config
    if _FOLDER not in config.stash:
        # Such a run has no options.
        config.stash[_FOLDER] = new_folder(output_folder(config), FAST.name, DEFAULT_KIND.name)
    node.workerinput.setdefault("nodeproof_run", str(config.stash[_FOLDER]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Begin the run in the controller, too, if an xdist worker has begun it."""
    folder = Path(node.workerinput["nodeproof_run"])
    if folder.is_dir():
        from nodeproof.session.scenario_run import begin

        begin(node.config, folder)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """Write the results of a run that a worker began after its collection, with the fixture `lab` alone."""
    outcome = yield
    folder = session.config.stash.get(_FOLDER, None)
    if folder is not None and folder.is_dir():
        from nodeproof.session.run import SESSION, write_results
        from nodeproof.session.scenario_run import begin

        if SESSION not in session.config.stash:
            write_results(begin(session.config, folder))
    return outcome


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark scenarios with the claims in their source, and with `machine` and `skew` if these apply."""
    item.stash[markers.IS_MARKED] = item.get_closest_marker("claims") is not None
    if CLAIM_FIXTURE in getattr(item, "fixturenames", ()) and not item.stash[markers.IS_MARKED]:
        with usage_errors():
            item.add_marker(pytest.mark.claims(*claim_ids(item.function)))  # type: ignore[attr-defined]
    if markers.needs_machine(item):
        item.add_marker("machine")
    if markers.concerns_skew(item):
        item.add_marker("skew")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin a run if there are scenarios; select and order them, and refuse unknown claims."""
    if config.getoption("claim") or any(item.get_closest_marker("claims") for item in items):
        from nodeproof.session.run import prepare
        from nodeproof.session.scenario_run import begin

        prepare(config, begin(config), items)


def _scenario(item: pytest.Item) -> ScenarioRun:
    from nodeproof.session.scenario_run import begin, scenario_of

    begin(item.config)
    return scenario_of(item)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Lab:
    """Provide a clean lab: all nodes are Ready, and nothing of an earlier scenario is left."""
    return _scenario(request.node).open_lab()


@pytest.fixture
def schedule(request: pytest.FixtureRequest, lab: Lab) -> Schedule:
    """Provide the schedule of `--storm`, and store it in the folder of the scenario."""
    from nodeproof.report.rundir import scenario_dir
    from nodeproof.session.storm import schedule_for

    folder = scenario_dir(_scenario(request.node).session.run_folder, request.node.nodeid)
    return schedule_for(request.config, lab, folder)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Judge:
    """Provide `judge(claim, check)`, which decides a declared claim by a check of the recording."""
    return _scenario(request.node).new_judge()


@pytest.fixture
def claim(lab: Lab, judge: Judge) -> Expectations:
    """Provide `claim(id)`, whose `expect`, `expect_later` and `never` decide a claim by the recording."""
    from nodeproof.scenario.lab import Expectation

    def of(claim: str, /) -> Expectation:
        shipped = judge.claims.get(claim)
        window, bug = (shipped.window, shipped.reported) if shipped else (None, None)
        return Expectation(claim, window, bug, lab.clear_s, judge, lab.wait_for)

    return of
