"""A run on a busy host: scenarios that it leaves unproven are retried at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir
from nodeproof.report.digest import worst_by_claim
from tests.acceptance.command import CompletedCommand, nodeproof, the_run

SCENARIO = '''
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.plugin import Judge
from nodeproof.scenario import UNSCHEDULABLE, Lab, claims, cordoned, kubectl, needs, taint_added, windows

FREEZE = "kill -STOP $PPID; sleep 1.5; kill -CONT $PPID"
FROZEN = Path("{frozen}")


@claims("cordon.taint")
@needs(nodes=2)
def test_{name}(lab: Lab, judge: Judge) -> None:
    """Freeze the lab the first time, or `always`, if `freezes`."""
    node = lab.target
    tainted = taint_added(node, UNSCHEDULABLE, "NoSchedule").after(cordoned(node), windows.up_to(5))
    with lab.record():
        lab.run(kubectl("cordon", node))
        if {freezes} and ({always} or not FROZEN.exists()):
            FROZEN.touch()
            registry.client(lab._lab.name).spawn_command(["sh", "-c", FREEZE], 30.0)
        lab.wait_for(tainted)
    judge("cordon.taint", tainted)
'''
OTHERS = ("b", "c", "d")
TIMEOUT_S, BUSY_TIMEOUT_S = 300.0, 2400.0
BUSY_LOOP = "while :; do :; done"


@pytest.fixture
def busy_loops(tmp_path: Path) -> Iterator[None]:
    """Keep both processors of a small machine busy, each by a program in its own session."""
    loops = [
        proc.start(["sh", "-c", BUSY_LOOP], log=tmp_path / "loops", own_session=True) for _number in range(2)
    ]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def run(folder: Path, always: bool) -> tuple[CompletedCommand, Path]:
    """Run four scenarios on two workers; the first freezes its lab."""
    scenarios = folder / "scenarios"
    scenarios.mkdir()
    for name in ("a", *OTHERS):
        text = SCENARIO.format(name=name, freezes=name == "a", always=always, frozen=folder / "frozen")
        (scenarios / f"test_{name}.py").write_text(text)
    process = nodeproof("run", "--no-site", "-n", "2", str(scenarios), cwd=folder, timeout_s=TIMEOUT_S)
    written = the_run(folder)
    assert written is not None, process
    return process, written


def test_scenario_unproven_by_load_is_retried_after_all_others(tmp_path: Path) -> None:
    process, written = run(tmp_path, always=False)

    assert process.status == 0
    assert {row["verdict"] for row in rundir.read_verdicts(written)} == {"conforms"}
    again = {path.name.rpartition("-")[0] for path in (written / rundir.TOO_LOADED).iterdir()}
    histories = {
        scenario.folder.name: scenario.history().entries for scenario in rundir.read_scenarios(written)
    }
    assert any(name.startswith("test-a-") for name in again)
    begins_again_t = min(entries[0].t for name, entries in histories.items() if name in again)
    assert all(entries[-1].t < begins_again_t for name, entries in histories.items() if name not in again)


@pytest.mark.night("CI has the same load; this test reads the output")
def test_unproven_scenario_names_the_busiest_processes(tmp_path: Path) -> None:
    process, written = run(tmp_path, always=True)

    assert process.status == 3
    tries = [path for path in (written / rundir.TOO_LOADED).iterdir() if path.name.startswith("test-a-")]
    assert len(tries) == 2
    assert "busiest processes of other programs" in process.stdout
    assert "next step: " in process.stdout


@pytest.mark.alone
@pytest.mark.night("test_conformance.py runs all of `fast` on the machine as it is")
@pytest.mark.usefixtures("busy_loops")
def test_run_beside_two_busy_loops_leaves_no_claim_unproven(tmp_path: Path) -> None:
    process = nodeproof("run", "--no-site", "-n", "auto", cwd=tmp_path, timeout_s=BUSY_TIMEOUT_S)
    written = the_run(tmp_path)
    assert written is not None, process
    worst = worst_by_claim(rundir.read_verdicts(written))
    assert {claim for claim, row in worst.items() if row["code"] == "host-too-loaded"} == set()
    assert process.status == 0
