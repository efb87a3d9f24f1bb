"""Tests side by side: how many workers a machine bears, what shares a worker, what is tried once more."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from nodeproof.labs.client.starting import come_first
from nodeproof.labs.kinds import KINDS
from nodeproof.labs.kinds.libvirt.kvm import runs_on_kvm
from nodeproof.root import become_root
from tests.turns import alone, beside_others

TOO_LOADED, AGAIN = "host-too-loaded", "tried-again"
SHARED = ("altered_lab", "documented_lab", "finished", "installed", "other", "whole_run")
"""Fixtures that take long to make: who uses one goes to the worker that has it, the longest first."""
UNIT = "tests/unit/"
"""Tests without labs."""
GIB = 2**30
UNIT_PER_CORE = 2.0
"""Workers for each core of tests without labs."""
MACHINES = tuple(kind for kind in KINDS.values() if not kind.is_hollow)
IDLE_PER_CORE = {kind.name: 0 for kind in MACHINES}
"""Of these, so many for each core only where nobody else uses it."""
LABS_PER_CORE = {kind.name: kind.limits.labs_per_core for kind in MACHINES}
"""Workers for each core of tests with labs: they wait, and share labs, more than scenarios do."""
EMULATED_PER_CORE = 0.5
"""The most labs of machines for each core without KVM: each of its two guests takes a processor to boot."""
WORKER_BYTES = {kind.name: 5 * GIB for kind in MACHINES}
"""What a worker's labs take: two guests and a third that joins, or up to five labs of nodes without any."""
_PER_CORE, _WORKER_BYTES = 2.0, 4 * GIB
_LEAST_PER_CORE = 1.5
_LOOK_S = 3.0


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Workers for `-n auto`: by cores, by what others leave of them where there are labs, and by memory.
    Scenarios know better.
    """
    if config.getoption("shipped"):
        return None
    kind = config.getoption("contract_lab", default="")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    has_labs = not _is_unit(config)
    idle = IDLE_PER_CORE.get(kind, _PER_CORE) if has_labs else 0
    most = LABS_PER_CORE.get(kind, _PER_CORE) if has_labs else UNIT_PER_CORE
    if kind in LABS_PER_CORE and not _has_kvm():
        most = min(most, EMULATED_PER_CORE)
    per_core = most - (idle * (1 - idle_share()) if idle else 0)
    # Somebody else's busy moment is no reason to take four times as long.
    by_cores = len(os.sched_getaffinity(0)) * (max(per_core, _LEAST_PER_CORE) if idle else per_core)
    return max(1, min(round(by_cores), memory // WORKER_BYTES.get(kind, _WORKER_BYTES)))


def _has_kvm() -> bool:
    """Say whether a guest runs on KVM here: the device alone proves nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        return runs_on_kvm(Path(scratch) / "sector", None, become_root())


def _is_unit(config: pytest.Config) -> bool:
    """Say whether only tests without labs are asked for."""
    return all(UNIT.rstrip("/") in str(argument) for argument in config.args)


def idle_share() -> float:
    """What part of the machine's cores is idle, or at work that is nice and gives way, from 0 to 1.
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
    """Let workers whose tests have labs come before other programs, as those of a run do."""
    if hasattr(session.config, "workerinput") and not _is_unit(session.config):
        come_first()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a costly fixture are one group of xdist's `loadgroup`, and begin first."""
    for item in items:
        for name in _shared_by(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: not _shared_by(item))


def _shared_by(item: pytest.Item) -> list[str]:
    return [name for name in SHARED if name in getattr(item, "fixturenames", ())]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test; one that fails beside the word that the host was too loaded runs once more on new labs, and
    alone: the tests of other workers wait.

    Only tests of the harness are: the verdicts of a run of nodeproof itself are never tried again.
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
    """A folder that the workers of a run share."""
    own = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return Path(own.parent if hasattr(item.config, "workerinput") else own) / "turns"


def _tried_again(
    item: pytest.Item, nextitem: pytest.Item | None, failed: list[pytest.TestReport]
) -> list[pytest.TestReport]:
    """What came of a second try; of the first where its labs could not be torn down."""
    try:
        # To nothing: the labs of the whole session as well.
        item.session._setupstate.teardown_exact(None)
    except Exception as error:
        failed[-1].sections.append(("not tried again", f"its labs do not end: {error}"))
        return failed
    again = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in again:
        report.user_properties.append((AGAIN, next(_crash(first) for first in failed if first.failed)))
    return again


def _is_too_loaded(reports: Sequence[pytest.TestReport]) -> bool:
    """Whether a test failed and a lab said why: in what a run printed, or in what the test compared."""
    failed = [report for report in reports if report.failed and not report.nodeid.startswith(UNIT)]
    said = [text for report in reports for text in (report.capstdout, report.capstderr)]
    return bool(failed) and any(TOO_LOADED in text for text in [*said, *map(_crash, failed)])


def _crash(report: pytest.TestReport) -> str:
    """The message of a failure, without the source around it."""
    return str(getattr(getattr(report.longrepr, "reprcrash", None), "message", ""))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were tried again."""
    reports = [entry for entries in terminalreporter.stats.values() for entry in entries]
    told = ((entry.nodeid, dict(getattr(entry, "user_properties", ()))) for entry in reports)
    for nodeid, why in sorted({(nodeid, found[AGAIN]) for nodeid, found in told if AGAIN in found}):
        terminalreporter.write_line(f"the host was too loaded, tried once more on new labs: {nodeid}")
        terminalreporter.write_line("\n".join(f"    {line}" for line in why.splitlines()[:10]))
