"""Two shards, one of them killed in the middle of a fault: the merged run is complete."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.base.spec import RUNTIME_ROOT
from nodeproof.labs.client import registry
from nodeproof.labs.supervisor.init import LINGER_S
from nodeproof.report import rundir
from nodeproof.safety.ledger import Ledger
from tests.acceptance.command import labs_of, nodeproof, start, steps
from tests.waiting import eventually

# By the plan the first is one shard; the others, with one faulted node each, are the second.
SCENARIOS = "renews_its_lease_at_a_quarter or unplugged_cable or frozen"
FAULT_TIMEOUT_S, ENDS_TIMEOUT_S = 180.0, 300.0
DIED = "shard 2/2 has no end: it died, or is under way"
IN_THE_MIDDLE = f"{DIED}; it ended in the middle of this scenario"


@pytest.mark.night("starts two labs; CI merges told shards, dead ones too, and kills a run that is none")
def test_claims_of_a_killed_shard_are_unproven_and_name_it(tmp_path: Path) -> None:
    first, second = (_started(tmp_path, number) for number in (1, 2))
    runs = [tmp_path / "1", tmp_path / "2"]
    try:
        killed = _killed_in_a_fault(second, runs[1])
        (left,) = labs_of(runs[1])
        healed = nodeproof("heal", "--lab-name", left, cwd=tmp_path)
    finally:
        status = first.wait(timeout=ENDS_TIMEOUT_S)
    into = tmp_path / "merged"
    process = nodeproof("merge", *map(str, runs), "--run", str(into), "--no-site", cwd=tmp_path)

    assert (killed, status, healed.status) == (-signal.SIGKILL, 0, 0), _output_of(tmp_path)
    assert process.status == 3
    assert DIED in process.stderr
    shard = rundir.read_shard(runs[1])
    assert shard is not None
    assert [len(part) for part in shard.parts] == [1, 2]
    rows = rundir.read_verdicts(into)
    planned = [
        (scenario, claim) for part in shard.parts for scenario, claims in part.items() for claim in claims
    ]
    assert {(row["scenario"], row["claim"]) for row in rows} == set(planned)
    stands = [row for row in rows if row["scenario"] in shard.parts[0]]
    assert stands == list(rundir.read_verdicts(runs[0]))
    assert {row["verdict"] for row in stands} == {"conforms"}
    gaps = [row for row in rows if row["scenario"] in shard.parts[1]]
    assert {row["code"] for row in gaps} == {"gap"}
    assert {row["reason"] for row in gaps} == {DIED, IN_THE_MIDDLE}
    assert rundir.read_facts(into).exit_reason == DIED
    assert not set(labs_of(runs[0])) & set(registry.running())
    _check_removed(left)


def _started(folder: Path, number: int) -> proc.Process:
    options = ("--shard", f"{number}/2", "--run", str(folder / str(number)), "--no-site", "-k", SCENARIOS)
    return start("run", *options, cwd=folder, log=folder / f"{number}.log")


def _killed_in_a_fault(child: proc.Process, run: Path) -> int:
    try:
        assert eventually(lambda: "injected" in steps(run), FAULT_TIMEOUT_S), _output_of(run.parent)
    finally:
        child.kill()
        status = child.wait(timeout=ENDS_TIMEOUT_S)
    return int(status)


def _output_of(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.log")))


def _check_removed(name: str) -> None:
    """Wait until the lab of the killed shard has ended and a sweep has removed its leftovers."""
    assert eventually(lambda: not (RUNTIME_ROOT / name).exists(), LINGER_S + 15.0)
    registry.sweep()
    assert not Ledger(name).path.exists()
