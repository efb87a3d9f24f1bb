"""Parallel labs: leases, ownership, and interrupted starts."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof import commands, proc
from nodeproof.artifacts.components import Components
from nodeproof.faults import Fault
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.problem import Problem
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.ledger import Ledger
from tests import leftovers
from tests.acceptance.altered import shipped
from tests.acceptance.command import nodeproof
from tests.contract.kinds import FAULTS, Kind
from tests.leftovers import file_of
from tests.waiting import eventually

REFUSAL_TIMEOUT_S = 30.0
"""A Python process with its imports and one status request, on a busy machine."""
START_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 20.0
SCENARIO = shipped("cordon/test_cordon.py")


@pytest.fixture(scope="module")
def other(kind: Kind, components: Components) -> Iterator[LabHandle]:
    """Start a second lab beside the first."""
    lab = kind.start(components, 1)
    yield lab
    lab.down()


@pytest.fixture
def partition_fault(lab: LabHandle, node: str) -> Iterator[Fault]:
    """Leave a partition on a node of the first lab, as an aborted run does."""
    yield inject_unfinished(lab, node)
    assert lab.safety.heal_unfinished() == []


@pytest.fixture
def fault_in_other_lab(other: LabHandle) -> Iterator[Fault]:
    """Leave a partition on a node of the second lab."""
    yield inject_unfinished(other, other.fleet.node_names()[0])
    assert other.safety.heal_unfinished() == []


def inject_unfinished(lab: LabHandle, node: str) -> Fault:
    """Inject a partition and do not heal it: it is in the ledger, and its switch is armed."""
    fault = FAULTS["partition-both"](node)
    lab.safety.ledger.write("planned", fault.to_json())
    registry.client(lab.name).arm(fault.to_json(), START_TIMEOUT_S)
    lab.safety.ledger.write("injecting", fault.to_json())
    fault.inject(lab.fleet.machine(node))
    return fault


@contextlib.contextmanager
def in_use(lab: LabHandle) -> Iterator[None]:
    """Use a lab as another process does."""
    with contextlib.closing(registry.attach(lab.name)) as holder:
        holder.leases.take_lab()
        yield


def is_only_open_fault(lab: LabHandle, fault: Fault) -> bool:
    """Return whether a partition is injected, and its lab's ledger has no other open fault."""
    listed = [entry.fault["id"] for entry in lab.safety.ledger.unfinished()]
    return listed == [fault.id] and not lab.fleet.machine(fault.node).reaches_control_plane()


def is_healed(lab: LabHandle, fault: Fault) -> bool:
    """Return whether a fault is gone from a lab, and from its ledger."""
    return lab.safety.ledger.unfinished() == [] and lab.fleet.machine(fault.node).reaches_control_plane()


@pytest.mark.parametrize("command", ["run", "heal"])
def test_lab_in_use_is_refused_at_once_with_its_user(
    lab: LabHandle, partition_fault: Fault, command: str, tmp_path: Path
) -> None:
    arguments = {"run": ("--no-site", "--lab", lab.name, SCENARIO), "heal": ("--lab-name", lab.name)}
    with in_use(lab):
        began = time.monotonic()
        process = nodeproof(command, *arguments[command], cwd=tmp_path)
        took_s = time.monotonic() - began

    assert process.status == 2, process
    assert f"process {os.getpid()} is using it (lab {lab.name})" in process.stderr + process.stdout
    assert took_s < REFUSAL_TIMEOUT_S
    assert is_only_open_fault(lab, partition_fault)


def test_foreign_cluster_is_refused_before_any_contact(
    lab: LabHandle, other: LabHandle, node: str, tmp_path: Path
) -> None:
    machine = other.fleet.machine(node)
    tables = machine.run(["nft", "list", "ruleset"], timeout_s=COMMAND_TIMEOUT_S).stdout
    injector = replace(other.safety.injector, record=lab.safety.lab_record, ledger=Ledger(lab.name, tmp_path))
    for fault in (fault_type(node) for fault_type in FAULTS.values()):
        with (
            pytest.raises(Refused, match=f"kube-system UID of {node} is .*, lab {lab.name} recorded"),
            injector.inject(fault, Declared({node}), lambda *_arguments, **_data: None),
        ):
            pytest.fail("a fault in another lab was not refused")

    assert machine.run(["nft", "list", "ruleset"], timeout_s=COMMAND_TIMEOUT_S).stdout == tables
    assert registry.client(other.name).status().not_disarmed == []
    assert not file_of(injector.ledger).exists()


def test_labs_side_by_side_do_not_sweep_or_heal_each_other(
    lab: LabHandle, other: LabHandle, partition_fault: Fault, tmp_path: Path
) -> None:
    assert nodeproof("heal", "--lab-name", other.name, cwd=tmp_path).status == 0
    assert not {lab.name, other.name} & set(registry.sweep())

    assert is_only_open_fault(lab, partition_fault)
    assert list(registry.client(lab.name).status().armed) == [partition_fault.id]
    for running_lab in (lab, other):
        assert registry.client(running_lab.name).status().phase == "ready"
        assert all(entry.is_on for entry in running_lab.fleet.nodes())
        assert (running_lab.dir / "spec.json").exists()


@pytest.mark.alone
@pytest.mark.parametrize("also", ["nothing else", "its supervisor"])
def test_killed_up_is_cleaned_up(kind: Kind, lab: LabHandle, also: str, tmp_path: Path) -> None:
    tables, log = leftovers.host_tables(), tmp_path / "log"
    argv = [sys.executable, "-m", "nodeproof.cli", "up", "--lab", kind.name, "--nodes", "1"]
    child = proc.start(argv, log=log, cwd=tmp_path, own_session=True)
    try:
        assert eventually(lambda: _announced(log) in registry.running(), START_TIMEOUT_S), log.read_text()
    finally:
        child.kill()
        child.wait(timeout=COMMAND_TIMEOUT_S)
    name = _announced(log)

    if also == "its supervisor":
        leftovers.kill(leftovers.footprint(name).supervisor)
        assert eventually(lambda: name not in registry.running(), COMMAND_TIMEOUT_S)
        up = nodeproof("up", "--lab", kind.name, "--nodes", "1", cwd=tmp_path)
        assert up.status == 0, up
        next_one = re.findall(r"lab (p-[0-9a-f]{6}):", up.stderr + up.stdout)[0]
        assert nodeproof("down", "--lab-name", next_one, cwd=tmp_path).status == 0
    else:
        assert nodeproof("down", "--lab-name", name, cwd=tmp_path).status == 0
    assert leftovers.leftovers_of(name, tables) == []
    assert lab.name in registry.running()


def test_lab_that_cannot_be_healed_does_not_block_others(
    lab: LabHandle, other: LabHandle, partition_fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_names", lambda _arguments: [other.name, lab.name])
    with in_use(other), pytest.raises(Problem, match=f"is using it .lab {other.name}."):
        commands.heal(argparse.Namespace(cluster=""))
    assert is_healed(lab, partition_fault)


def test_run_heals_leftovers_of_a_lab_it_does_not_use(
    lab: LabHandle, other: LabHandle, fault_in_other_lab: Fault, tmp_path: Path
) -> None:
    ended = nodeproof("run", "--no-site", "--lab", lab.name, SCENARIO, cwd=tmp_path)

    assert ended.status == 0, ended
    assert f"lab {other.name}: healed the faults of an earlier run" in ended.stderr + ended.stdout
    assert is_healed(other, fault_in_other_lab)
    assert registry.client(other.name).status().not_disarmed == []


def test_run_leaves_a_lab_in_use_alone(
    lab: LabHandle, other: LabHandle, fault_in_other_lab: Fault, tmp_path: Path
) -> None:
    with in_use(other):
        ended = nodeproof("run", "--no-site", "--lab", lab.name, SCENARIO, cwd=tmp_path)

    assert ended.status == 0, ended
    assert other.name not in ended.stderr + ended.stdout
    assert is_only_open_fault(other, fault_in_other_lab)


def test_run_reports_what_it_could_not_heal_in_another_lab(
    lab: LabHandle, other: LabHandle, tmp_path: Path
) -> None:
    unknown_fault = {"id": "deadbeef", "node": "node-1", "fault": "of-another-version"}
    other.safety.ledger.write("injected", unknown_fault)
    try:
        ended = nodeproof("run", "--no-site", "--lab", lab.name, SCENARIO, cwd=tmp_path)
    finally:
        other.safety.ledger.write("closed", unknown_fault)

    assert ended.status == 0, ended
    assert f"not proven healed: of-another-version on node-1 (deadbeef) (lab {other.name})" in (
        ended.stderr + ended.stdout
    )


@pytest.mark.parametrize("unknown", [{"fault": "of-another-version"}, {"fault": "partition", "of": "old"}])
def test_unknown_fault_does_not_block_healing_of_others(
    lab: LabHandle, partition_fault: Fault, unknown: dict[str, str]
) -> None:
    unknown_fault = {"id": "deadbeef", "node": partition_fault.node, **unknown}
    lab.safety.ledger.write("injected", unknown_fault)
    (message,) = lab.safety.heal_unfinished()
    lab.safety.ledger.write("closed", unknown_fault)

    assert "deadbeef" in message
    assert is_healed(lab, partition_fault)


@pytest.mark.parametrize("command", ["run", "up", "down", "heal"])
def test_force_option_does_not_exist(command: str, tmp_path: Path) -> None:
    process = nodeproof(command, "--force", cwd=tmp_path)
    assert process.status == 2
    assert "unrecognized arguments: --force" in process.stderr


def _announced(log: Path) -> str:
    """Return the name of the lab that `up` announced."""
    match = re.search(r"lab (p-[0-9a-f]{6}):", log.read_text())
    return match.group(1) if match else ""
