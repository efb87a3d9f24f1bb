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
from tests.acceptance.command import is_injected, labs_of, running, steps
from tests.waiting import eventually

SCENARIO = "test_pods_of_partitioned_node_are_evicted"
GONE_TIMEOUT_S = 60.0


def _lab_is_starting(run: Path) -> bool:
    return any((RUNTIME_ROOT / name / "s").exists() for name in labs_of(run))


PHASES: dict[str, Callable[[Path], bool]] = {
    "while the lab starts": _lab_is_starting,
    "in mid-fault": is_injected,
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
    with running("-k", SCENARIO, *options, cwd=tmp_path, until=PHASES[phase]) as child:
        child.process.send_signal(signal.Signals[number])
        assert child.wait(GONE_TIMEOUT_S) == 2
    run = child.folder
    assert not set(labs_of(run)) & set(registry.running())
    assert not any((RUNTIME_ROOT / name).exists() for name in labs_of(run))
    if phase == "in mid-fault" and not workers:
        assert steps(run)[-1] == "closed"


def test_lab_of_a_killed_run_ends_by_itself(tmp_path: Path) -> None:
    with running("-k", SCENARIO, cwd=tmp_path) as child:
        pass
    (name,) = labs_of(child.folder)
    assert name in registry.running()
    assert eventually(lambda: not (RUNTIME_ROOT / name).exists(), LINGER_S + 15.0)
    registry.sweep()
    assert not Ledger(name).path.exists()
