"""SIGINT, SIGTERM and SIGHUP in every phase: no lab is left, with and without xdist."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.labs.client import registry
from nodeproof.labs.supervisor.init import LINGER_S
from nodeproof.safety.ledger import Ledger
from tests.acceptance.command import labs_of, start, steps, the_run
from tests.waiting import eventually

SCENARIO = "test_pods_of_partitioned_node_are_evicted"
PHASE_TIMEOUT_S = 120.0
GONE_TIMEOUT_S = 60.0


def _lab_is_starting(run: Path) -> bool:
    return any((RUNTIME_ROOT / name / "s").exists() for name in labs_of(run))


def _fault_is_in(run: Path) -> bool:
    return "injected" in steps(run)


PHASES: dict[str, Callable[[Path], bool]] = {
    "while the lab starts": _lab_is_starting,
    "in mid-fault": _fault_is_in,
}


@pytest.mark.parametrize(
    ("number", "phase", "workers"),
    [
        ("SIGINT", "while the lab starts", 0),
        ("SIGINT", "in mid-fault", 0),
        ("SIGINT", "in mid-fault", 2),
        ("SIGTERM", "in mid-fault", 0),
        ("SIGHUP", "in mid-fault", 0),
    ],
)
def test_interrupted_run_leaves_no_lab(phase: str, number: str, workers: int, tmp_path: Path) -> None:
    options = ["-n", str(workers)] if workers else []
    child = start("run", "--no-site", "-k", SCENARIO, *options, cwd=tmp_path, log=tmp_path / "log")
    try:
        run = eventually(lambda: the_run(tmp_path), PHASE_TIMEOUT_S)
        assert run is not None, (tmp_path / "log").read_text()
        assert eventually(lambda: PHASES[phase](run), PHASE_TIMEOUT_S), (tmp_path / "log").read_text()
    finally:
        child.send_signal(signal.Signals[number])
        status = child.wait(timeout=GONE_TIMEOUT_S)
    assert status == 2
    assert not set(labs_of(run)) & set(registry.running())
    assert not any((RUNTIME_ROOT / name).exists() for name in labs_of(run))
    if phase == "in mid-fault" and not workers:
        assert steps(run)[-1] == "closed"


def test_lab_of_a_killed_run_ends_by_itself(tmp_path: Path) -> None:
    child = start("run", "--no-site", "-k", SCENARIO, cwd=tmp_path, log=tmp_path / "log")
    try:
        run = eventually(lambda: the_run(tmp_path), PHASE_TIMEOUT_S)
        assert run is not None
        assert eventually(lambda: _fault_is_in(run), PHASE_TIMEOUT_S), (tmp_path / "log").read_text()
    finally:
        child.kill()
        child.wait(timeout=GONE_TIMEOUT_S)
    (name,) = labs_of(run)
    assert name in registry.running()
    assert eventually(lambda: not (RUNTIME_ROOT / name).exists(), LINGER_S + 15.0)
    registry.sweep()
    assert not Ledger(name).path.exists()
