"""A lab whose nodes Vagrant makes, as a user has it: a partition and a power cut, and nothing left."""

from __future__ import annotations

from pathlib import Path

from nodeproof.report.rundir import read_verdicts
from tests.acceptance.command import TOP, labs_of, nodeproof
from tests.leftovers import host_tables, leftovers_of

SCENARIOS = (f"{TOP}/scenarios/partition/test_recovery.py", f"{TOP}/scenarios/shutdown/test_power_off.py")
TIMEOUT_S = 900.0


def test_vagrant_scenarios_are_judged_and_nothing_is_left(tmp_path: Path) -> None:
    tables, run = host_tables(), tmp_path / "run"

    arguments = ("run", "--lab=vagrant", "--nodes=2", "-n", "0", "--no-site", f"--run={run}")
    process = nodeproof(*arguments, *SCENARIOS, cwd=tmp_path, timeout_s=TIMEOUT_S)

    assert process.status == 0, process
    assert {row["verdict"] for row in read_verdicts(run)} == {"conforms"}
    (lab,) = labs_of(run)
    assert leftovers_of(lab, tables) == []
