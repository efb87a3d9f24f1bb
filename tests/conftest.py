"""Shared fixtures, and parallel tests: number of workers, groups that share a worker, and retries."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from nodeproof.artifacts.components import Components, obtain
from nodeproof.labs.client.starting import raise_priority
from nodeproof.labs.kinds import KINDS
from nodeproof.labs.kinds.libvirt.hypervisor import runs_on_kvm
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.root import become_root
from tests.markers import fallen_claims
from tests.shared_lock import alone, beside_others

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
UNIT = "tests/unit/"
"""Tests without labs."""
GIB = 2**30
UNIT_PER_CORE = 2.0
"""Workers per core for tests without labs."""
MACHINES = tuple(kind for kind in KINDS.values() if not kind.is_hollow)
IDLE_PER_CORE = {kind.name: 0 for kind in MACHINES}
"""This many per core, but only on an idle machine."""
LABS_PER_CORE = {kind.name: kind.limits.labs_per_core for kind in MACHINES}
"""Workers per core for tests with labs, which mostly wait and share labs."""
EMULATED_PER_CORE = 0.5
"""Maximum number of machine labs per core without KVM: each guest needs a processor to boot."""
WORKER_BYTES = {kind.name: 5 * GIB for kind in MACHINES}
"""Memory of a worker's labs: two guests and a third that joins, or up to five labs of process nodes."""
_PER_CORE, _WORKER_BYTES = 2.0, 4 * GIB
CONTRACTS, CONTRACTS_PER_CORE = "tests/contract", 3.0
"""Contract tests wait for most of their time: with two workers per core, the cores were 40 to 70 % idle."""
_LEAST_PER_CORE = 1.5
_LOOK_S = 3.0


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers for `-n auto`, by cores and by memory.

    If tests have labs, the cores that others leave idle count as well. For scenarios, nodeproof decides.
    """
    if config.getoption("shipped"):
        return None
    kind = config.getoption("contract_lab", default="")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    has_labs = not _is_unit(config)
    idle = IDLE_PER_CORE.get(kind, _PER_CORE) if has_labs else 0
    per_lab = CONTRACTS_PER_CORE if _has_contracts(config) else _PER_CORE
    most = LABS_PER_CORE.get(kind, per_lab) if has_labs else UNIT_PER_CORE
    if kind in LABS_PER_CORE and not _has_kvm():
        most = min(most, EMULATED_PER_CORE)
    per_core = most - (idle * (1 - idle_share()) if idle else 0)
    # A short load peak is no reason to take four times as long.
    by_cores = len(os.sched_getaffinity(0)) * (max(per_core, _LEAST_PER_CORE) if idle else per_core)
    return max(1, min(round(by_cores), memory // WORKER_BYTES.get(kind, _WORKER_BYTES)))


def _has_kvm() -> bool:
    """Return whether a guest runs on KVM here: the device alone proves nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        return runs_on_kvm(Path(scratch) / "sector", None, become_root())


def _has_contracts(config: pytest.Config) -> bool:
    """Return whether only contract tests are selected."""
    return all(CONTRACTS in str(argument) for argument in config.args)


def _is_unit(config: pytest.Config) -> bool:
    """Return whether only tests without labs are selected."""
    return all(UNIT.rstrip("/") in str(argument) for argument in config.args)


def idle_share() -> float:
    """Return the share of the cores that is idle, or at work that is nice and gives way, from 0 to 1.

    Source: proc_stat(5): user, nice, system, idle, iowait, to steal.
    """
    before = _ticks()
    threading.Event().wait(_LOOK_S)
    passed = [now - then for now, then in zip(_ticks(), before, strict=True)]
    return (passed[1] + passed[3] + passed[4]) / max(1, sum(passed))


def _ticks() -> list[int]:
    first = Path("/proc/stat").read_text().splitlines()[0]
    return [int(ticks) for ticks in first.split()[1:9]]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Treat tests with labs like a run: SIGTERM and SIGHUP tear labs down, and workers have priority."""
    if _is_unit(session.config):
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
    with beside_others(_turns(item)) if _has_labs(item) else nullcontext():
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if _is_too_loaded(reports):
        with alone(_turns(item)):
            reports = _tried_again(item, nextitem, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _has_labs(item: pytest.Item) -> bool:
    return not item.nodeid.startswith(UNIT)


def _turns(item: pytest.Item) -> Path:
    """Return a folder shared by the workers of a run."""
    own = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return Path(own.parent if hasattr(item.config, "workerinput") else own) / "turns"


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
    failed = [report for report in reports if report.failed and not report.nodeid.startswith(UNIT)]
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
