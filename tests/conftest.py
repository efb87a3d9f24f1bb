"""Shared fixtures, and parallel tests: number of workers, groups that share a worker, and retries."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from nodeproof.artifacts.components import Components, obtain
from nodeproof.capacity import busy_share
from nodeproof.labs.client.starting import raise_priority
from nodeproof.labs.kinds import KINDS, PROCESS
from nodeproof.labs.kinds.libvirt.hypervisor import runs_on_kvm
from nodeproof.locks import locked
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.root import become_root
from tests.markers import fallen_claims

TOO_LOADED, AGAIN = "host-too-loaded", "tried-again"
SHARED = (
    "ended",
    "finished",
    "in_image",
    "installed",
    "marks",
    "other",
    "printed",
)
"""Expensive fixtures: their tests run on the worker that has them, the longest first."""
UNIT, CONTRACTS = "tests/unit", "tests/contract"
"""Tests without labs, and those that wait for most of their time."""
GIB = 2**30
_LOOK_S = 3.0
_TURN_TIMEOUT_S = 14_400.0
"""Longer than a test that runs alone, such as a whole run."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers for `-n auto`, by cores and by memory.

    Tests with labs of processes mostly wait and share labs: the cores that others leave idle count for them.
    A worker's labs are up to five of such nodes, or two guests and a third that joins. For scenarios,
    nodeproof decides.
    """
    if config.getoption("shipped"):
        return None
    kind, worker_gib = KINDS.get(config.getoption("contract_lab", default=""), PROCESS), 4
    if _are_below(UNIT, config):
        per_core = 2.0
    elif kind.is_hollow:
        # With two workers per core for contract tests, the cores were 40 to 70 % idle.
        per_idle_core = 3.0 if _are_below(CONTRACTS, config) else 2.0
        # A short load peak is no reason to take four times as long.
        per_core = max(per_idle_core - 2.0 * busy_share(_LOOK_S), 1.5)
    else:
        # Without KVM, each guest needs a processor to boot.
        most = kind.limits.labs_per_core
        per_core, worker_gib = most if _has_kvm() else min(most, 0.5), 5
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    by_cores = len(os.sched_getaffinity(0)) * per_core
    return max(1, min(round(by_cores), memory // (worker_gib * GIB)))


def _has_kvm() -> bool:
    """Return whether a guest runs on KVM here: the device alone proves nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        return runs_on_kvm(Path(scratch) / "sector", None, become_root())


def _are_below(folder: str, config: pytest.Config) -> bool:
    """Return whether only tests of a folder are selected."""
    return all(folder in str(argument) for argument in config.args)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Treat tests with labs like a run: SIGTERM and SIGHUP tear labs down, and workers have priority."""
    if _are_below(UNIT, session.config):
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if hasattr(session.config, "workerinput"):
        raise_priority()


@pytest.fixture(scope="session", autouse=True)
def _no_hypothesis_in_runs() -> Iterator[None]:
    """Spare each run that a test starts 2 s of processor time: the plugin imports hypothesis at its end.

    No such run has a test with hypothesis. Source: pytest_terminal_summary, _hypothesis_pytestplugin.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest", prepend=" ")
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep runs, ledgers and the key of tests apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def components(request: pytest.FixtureRequest) -> Components:
    """Return the executables under test; `--components DIR` replaces the build."""
    return obtain(request.config.getoption("components"), DEFAULT_KUBERNETES_VERSION, print)


@pytest.fixture
def claims(request: pytest.FixtureRequest) -> frozenset[str]:
    """Return the claims that fall in a test."""
    return fallen_claims(request.node)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that share an expensive fixture for xdist's `loadgroup`, and run them first."""
    for item in items:
        for name in _shared_by(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: not _shared_by(item))


def _shared_by(item: pytest.Item) -> list[str]:
    return [name for name in SHARED if name in getattr(item, "fixturenames", ())]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test; if it fails and reports that the host was too loaded, run it again on new labs.

    It runs alone then, once: the tests of other workers wait. Only tests of the harness are retried, never
    the verdicts of a run of nodeproof itself.
    """
    if item.get_closest_marker("claims"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with _beside_others(_turns(item)) if _has_labs(item) else nullcontext():
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if _is_too_loaded(reports):
        with _alone(_turns(item)):
            reports = _tried_again(item, nextitem, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _has_labs(item: pytest.Item) -> bool:
    return not item.nodeid.startswith(f"{UNIT}/")


@contextmanager
def _beside_others(turns: Path) -> Iterator[None]:
    """Run beside the tests of other workers, once no test waits to run alone.

    A worker that dies has had its turn: the kernel gives its locks back. Raises OSError.
    """
    with (turns / "runs").open("ab") as runs:
        with locked(turns / "next", _TURN_TIMEOUT_S):
            fcntl.flock(runs, fcntl.LOCK_SH)
        yield


@contextmanager
def _alone(turns: Path) -> Iterator[None]:
    """Run once the running tests have ended, and before any other begins. Raises OSError."""
    with locked(turns / "next", _TURN_TIMEOUT_S), locked(turns / "runs", _TURN_TIMEOUT_S):
        yield


def _turns(item: pytest.Item) -> Path:
    """Return a folder shared by the workers of a run."""
    own = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    turns = Path(own.parent if hasattr(item.config, "workerinput") else own) / "turns"
    turns.mkdir(exist_ok=True)
    return turns


def _tried_again(
    item: pytest.Item, nextitem: pytest.Item | None, failed: list[pytest.TestReport]
) -> list[pytest.TestReport]:
    """Return the reports of the second try, or of the first if its labs could not be torn down."""
    try:
        # Tear down everything, including the labs of the session.
        item.session._setupstate.teardown_exact(None)
    except Exception as error:
        failed[-1].sections.append(("not tried again", f"its labs do not end: {error}"))
        return failed
    again = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in again:
        report.user_properties.append((AGAIN, next(_crash(first) for first in failed if first.failed)))
    return again


def _is_too_loaded(reports: Sequence[pytest.TestReport]) -> bool:
    """Return whether a test failed because a lab was too loaded: in a run's output, or in a comparison."""
    failed = [report for report in reports if report.failed and not report.nodeid.startswith(f"{UNIT}/")]
    output = [text for report in reports for text in (report.capstdout, report.capstderr)]
    return bool(failed) and any(TOO_LOADED in text for text in [*output, *map(_crash, failed)])


def _crash(report: pytest.TestReport) -> str:
    """Return the message of a failure, without the source around it."""
    return str(getattr(getattr(report.longrepr, "reprcrash", None), "message", ""))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which tests were retried."""
    reports = [entry for entries in terminalreporter.stats.values() for entry in entries]
    properties = ((entry.nodeid, dict(getattr(entry, "user_properties", ()))) for entry in reports)
    for nodeid, why in sorted({(nodeid, values[AGAIN]) for nodeid, values in properties if AGAIN in values}):
        terminalreporter.write_line(f"the host was too loaded, tried once more on new labs: {nodeid}")
        terminalreporter.write_line("\n".join(f"    {line}" for line in why.splitlines()[:10]))
