"""A replaced file: complete or absent, and restored by healing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from nodeproof.faults.fence import FencedShell, heal_fenced
from nodeproof.faults.settings import _INJECT, ReplaceFile
from nodeproof.machines.machine import Machine, MachineError
from tests.fakes import LATE_S, Local
from tests.waiting import eventually, throughout

TIMEOUT_S = 10.0
CONTENT = "apiVersion: v1\nkind: Pod\n" * 200


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Local]:
    (tmp_path / "node").mkdir()
    local = Local(tmp_path, {"/run/node": f"{tmp_path}/node", "/var/lib/nodeproof": f"{tmp_path}/var"})
    yield local
    local.end()


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    folder = tmp_path / "manifests"
    folder.mkdir()
    return folder


@pytest.fixture
def fault(manifests: Path) -> ReplaceFile:
    return ReplaceFile("node-1", str(manifests / "static.yaml"), CONTENT)


def injection(fault: ReplaceFile, machine: Local) -> list[str]:
    size_bytes = len(fault.content.encode())
    return ["sh", "-c", _INJECT, fault.id, fault.path, str(size_bytes)]


def is_healed(fault: ReplaceFile, machine: Local) -> bool:
    return fault.is_healed(cast("Machine", machine))


def test_interrupted_write_leaves_no_part_of_a_file(
    machine: Local, fault: ReplaceFile, manifests: Path
) -> None:
    command = machine.start(injection(fault, machine))
    assert command.stdin is not None
    command.stdin.write("apiVersion: v1\n")
    command.stdin.flush()
    assert eventually(lambda: list(manifests.iterdir()), TIMEOUT_S)
    assert all(path.name.startswith(".") for path in manifests.iterdir())
    assert not is_healed(fault, machine)
    machine.end()
    fault.heal(machine)
    assert list(manifests.iterdir()) == []
    assert is_healed(fault, machine)


def test_incomplete_content_is_not_put_in_place(machine: Local, fault: ReplaceFile, manifests: Path) -> None:
    process = machine.run(injection(fault, machine), timeout_s=TIMEOUT_S, stdin="apiVersion: v1\n")
    assert process.status != 0
    assert not Path(fault.path).exists()
    fault.heal(machine)
    assert list(manifests.iterdir()) == []


def test_write_after_the_healing_is_refused(machine: Local, fault: ReplaceFile) -> None:
    machine.is_late = True
    with pytest.raises(MachineError):
        fault.inject(FencedShell(machine, fault.id))
    machine.is_late = False
    heal_fenced(fault, machine)
    assert throughout(lambda: not Path(fault.path).exists(), 2 * LATE_S)
    assert ReplaceFile.leftovers_on(machine) == []


def test_path_is_reserved_in_every_spelling_but_its_prefix_is_not(machine: Local, manifests: Path) -> None:
    held = ReplaceFile("node-1", str(manifests / "static.yamlx"), "1")
    held.inject(machine)
    again = ReplaceFile("node-1", str(manifests / ".." / "manifests" / "static.yamlx"), "2")
    prefix = ReplaceFile("node-1", str(manifests / "static.yaml"), "3")
    assert "already" in again.available(machine)
    assert prefix.available(machine) == ""


def test_link_and_its_target_are_restored(machine: Local, fault: ReplaceFile) -> None:
    target = machine.folder / "elsewhere"
    target.write_text("before")
    Path(fault.path).symlink_to(target)
    fault.inject(machine)
    assert target.read_text() == CONTENT
    fault.heal(machine)
    assert Path(fault.path).is_symlink()
    assert target.read_text() == "before"


def test_created_folders_are_removed_unless_others_use_them(machine: Local, manifests: Path) -> None:
    fault = ReplaceFile("node-1", str(manifests / "a" / "b c" / "d.yaml"), "1")
    fault.inject(machine)
    (manifests / "a" / "kept").touch()
    fault.heal(machine)
    assert sorted(path.name for path in manifests.rglob("*")) == ["a", "kept"]
    (manifests / "a" / "kept").unlink()
    (manifests / "a").rmdir()
    fault.inject(machine)
    fault.heal(machine)
    assert list(manifests.iterdir()) == []
