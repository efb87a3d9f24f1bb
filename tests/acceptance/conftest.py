"""Altered labs, and the scenarios that run on them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from nodeproof import proc
from nodeproof.artifacts.components import Components
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.outside import serve_api
from nodeproof.locks import locked, try_lock, unlock
from nodeproof.model.overrides import NO_OVERRIDES, Overrides
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report import plain, timeline
from nodeproof.report.recheck import rejudge
from nodeproof.report.site import find_node
from tests.acceptance.altered import Alteration, RunResult, run_scenarios
from tests.chromium import Page, chromium
from tests.golden_runs import RUNS, thawed
from tests.unit.synthetic_runs import CLAIMS

AXE_RECIPE, NPM_TIMEOUT_S = Path(__file__).resolve().parents[2] / "infra" / "axe", 300.0
_SERVE_TIMEOUT_S = 20.0
_START_TIMEOUT_S = 1800.0
"""Longer than another worker starts or ends the shared lab."""
_NAME, _LOCK, _USERS = "shared-lab", "shared-lab.lock", "shared-lab.users"
Run = Callable[..., RunResult]
SMALL_SCENARIO = '''
"""A partition, and whether the cluster notices."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    UNREACHABLE, Lab, claims, condition_became, last_heartbeat, needs, partition, taint_added, windows,
)


@claims("monitoring.detection-time", "taints.unreachable-noexecute")
@needs(nodes=2, faulted=1)
def test_partitioned_node_is_noticed(lab: Lab, judge: Judge) -> None:
    node = lab.target
    unknown = condition_became(node, "Ready", "Unknown")
    with lab.record(), lab.inject(partition(node)) as cut:
        lab.wait_for(unknown.after(cut.injected_at, windows.detection_from_fault()))
        unreachable = taint_added(node, UNREACHABLE, "NoExecute")
        tainted = lab.wait_for(unreachable.after(unknown, windows.taint_pass()))
    judge("monitoring.detection-time", unknown.after(last_heartbeat(node, unknown), windows.detection()))
    judge("taints.unreachable-noexecute", tainted)
'''
SHORT_HEAL_TIMEOUT = """

import nodeproof.safety.injector

nodeproof.safety.injector.HEAL_TIMEOUT_S = 10.0
"""
"""Appended to a scenario, so that a heal without proof times out soon."""


@pytest.fixture(scope="session")
def shared_zone(components: Components, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHandle]:
    """Return a zone of three `fast` nodes in a lab shared by all workers, for alterations within a zone."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    folder = tmp_path_factory.getbasetemp()

    def start() -> LabHandle:
        request = starting.LabRequest(starting.new_name(), 3 * workers, workers, "fast", keep=False)
        return starting.up(request, components, print)

    with shared_by_workers(folder.parent if workers > 1 else folder, start) as lab:
        yield lab


@contextmanager
def shared_by_workers(folder: Path, start: Callable[[], LabHandle]) -> Iterator[LabHandle]:
    """Provide the lab that a folder names, restricted to a zone that no other worker has.

    All workers share the folder. The lab is started if there is none.
    """
    users = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with locked(folder / _LOCK, _START_TIMEOUT_S):
            lab = _attach_shared(folder) or _start_shared(folder, start)
            # The last worker of an ended lab may not have closed its file yet.
            fcntl.flock(users, fcntl.LOCK_SH)
            zone, taken = _take_free_zone(folder, lab.fleet.zones())
            lab.restrict_to_zone(zone)
        try:
            yield lab
        finally:
            os.close(taken)
            with locked(folder / _LOCK, _START_TIMEOUT_S):
                _release(lab, users)
    finally:
        os.close(users)


def _attach_shared(folder: Path) -> LabHandle | None:
    with contextlib.suppress(FileNotFoundError, Problem, OutsideError):
        return registry.attach((folder / _NAME).read_text(), hold=True)
    return None


def _take_free_zone(folder: Path, zones: Sequence[str]) -> tuple[str, int]:
    """Return a zone and the descriptor that locks it against other workers while it is open."""
    for zone in zones:
        taken = os.open(folder / f"{_NAME}.{zone}", os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(taken):
            return zone, taken
        os.close(taken)
    raise AssertionError(f"no zone of {', '.join(zones)} is free")


def _start_shared(folder: Path, start: Callable[[], LabHandle]) -> LabHandle:
    lab = start()
    (folder / _NAME).write_text(lab.name)
    return lab


def _release(lab: LabHandle, users: int) -> None:
    unlock(users)
    if try_lock(users):
        lab.down()
    else:
        lab.close()


@pytest.fixture
def lab(shared_zone: LabHandle) -> LabHandle:
    """Return the worker's zone with its nodes Ready."""
    shared_zone.wait_nodes_ready()
    return shared_zone


@pytest.fixture(scope="session")
def shared_whole_lab(components: Components) -> Iterator[LabHandle]:
    """Return a lab of three `fast` nodes, for reversible alterations of the whole cluster."""
    with started(components, 3) as lab:
        yield lab


@pytest.fixture(scope="session")
def served(shared_whole_lab: LabHandle) -> Path:
    """Return an administrator's kubeconfig of the lab on loopback."""
    ready: SimpleQueue[Path] = SimpleQueue()
    serve = threading.Thread(
        target=serve_api, args=(shared_whole_lab, 0, lambda _port, path: ready.put(path)), daemon=True
    )
    serve.start()
    return ready.get(timeout=_SERVE_TIMEOUT_S)


@pytest.fixture
def whole_lab(shared_whole_lab: LabHandle) -> LabHandle:
    """Return that lab with its nodes Ready."""
    shared_whole_lab.wait_nodes_ready()
    return shared_whole_lab


@pytest.fixture
def own_lab(components: Components) -> Iterator[LabHandle]:
    """Return a lab that the test may break permanently."""
    with started(components, 2) as lab:
        yield lab


@pytest.fixture
def small_scenario(tmp_path: Path) -> str:
    """Write a minimal scenario of a team."""
    path = tmp_path / "test_small.py"
    path.write_text(SMALL_SCENARIO)
    return str(path)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return `run(lab, alteration, *arguments)`, which runs scenarios on an altered cluster."""

    def run_on(lab: LabHandle, alter: Alteration, *arguments: str) -> RunResult:
        return run_scenarios(lab, tmp_path / "run", alter, *arguments)

    return run_on


@contextmanager
def started(
    components: Components, nodes: int, zones: int = 1, overrides: Overrides = NO_OVERRIDES
) -> Iterator[LabHandle]:
    """Start a lab of `fast` nodes that ends with the context."""
    request = starting.LabRequest(starting.new_name(), nodes, zones, "fast", keep=False, overrides=overrides)
    lab = starting.up(request, components, print)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the locked version of axe-core as one file."""
    folder, node = tmp_path_factory.mktemp("axe"), find_node()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(AXE_RECIPE / name, folder)
    argv = (*node.npm, "ci", "--ignore-scripts", "--omit=dev")
    proc.run(argv, timeout_s=NPM_TIMEOUT_S, cwd=folder, env=node.environment())
    return folder / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw the timeline of a real recording."""
    with thawed(RUNS / "unreachable") as scenario:
        path = tmp_path_factory.mktemp("picture") / "timeline.svg"
        judged = rejudge(scenario, CLAIMS).judged
        return timeline.render(scenario.history(), judged, path, plain.title(scenario.nodeid))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Start one browser for all tests."""
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page
