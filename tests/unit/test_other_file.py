"""A file that holds something else is there whole or not at all, and healing leaves what was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from nodeproof.faults import OtherFile
from nodeproof.faults.fence import Fenced, heal_for_good
from nodeproof.faults.other_file import _INJECT, other_files_on
from nodeproof.machines.machine import Machine, MachineError
from tests.local import LATE_S, Local
from tests.waiting import eventually, throughout

LIMIT_S = 10.0
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
def fault(manifests: Path) -> OtherFile:
    return OtherFile("0123abcd", "node-1", str(manifests / "static.yaml"), CONTENT)


def injection(fault: OtherFile, machine: Local) -> list[str]:
    size_bytes = len(fault.content.encode())
    return ["sh", "-c", _INJECT, fault.id, fault.path, str(size_bytes)]


def is_healed(fault: OtherFile, machine: Local) -> bool:
    return fault.is_healed(cast("Machine", machine))


def test_a_file_holds_the_content_until_it_is_healed(machine: Local, fault: OtherFile) -> None:
    path = Path(fault.path)
    path.write_text("before")
    fault.inject(machine)
    assert path.read_text() == CONTENT
    assert not is_healed(fault, machine)
    fault.heal(machine)
    assert path.read_text() == "before"
    assert is_healed(fault, machine)


def test_no_part_of_a_file_is_seen_or_left_where_writing_breaks_off(
    machine: Local, fault: OtherFile, manifests: Path
) -> None:
    command = machine.start(injection(fault, machine))
    assert command.stdin is not None
    command.stdin.write("apiVersion: v1\n")
    command.stdin.flush()
    assert eventually(lambda: list(manifests.iterdir()), LIMIT_S)
    assert all(path.name.startswith(".") for path in manifests.iterdir())
    assert not is_healed(fault, machine)
    machine.end()
    fault.heal(machine)
    assert list(manifests.iterdir()) == []
    assert is_healed(fault, machine)


def test_a_content_that_came_in_part_is_not_put_in_place(
    machine: Local, fault: OtherFile, manifests: Path
) -> None:
    done = machine.run(injection(fault, machine), deadline_s=LIMIT_S, stdin="apiVersion: v1\n")
    assert done.status != 0
    assert not Path(fault.path).exists()
    fault.heal(machine)
    assert list(manifests.iterdir()) == []


def test_a_write_that_comes_after_the_healing_is_refused(machine: Local, fault: OtherFile) -> None:
    machine.is_late = True
    with pytest.raises(MachineError):
        fault.inject(Fenced(machine, fault.id))
    machine.is_late = False
    heal_for_good(fault, machine)
    assert throughout(lambda: not Path(fault.path).exists(), 2 * LATE_S)
    assert other_files_on(machine) == []


def test_a_path_is_held_under_every_spelling_and_no_prefix_of_it_is(machine: Local, manifests: Path) -> None:
    held = OtherFile("aaaaaaaa", "node-1", str(manifests / "static.yamlx"), "1")
    held.inject(machine)
    again = OtherFile("bbbbbbbb", "node-1", str(manifests / ".." / "manifests" / "static.yamlx"), "2")
    prefix = OtherFile("cccccccc", "node-1", str(manifests / "static.yaml"), "3")
    assert "already" in again.available(machine)
    assert prefix.available(machine) == ""


def test_a_link_is_still_one_and_its_target_is_what_it_was(machine: Local, fault: OtherFile) -> None:
    target = machine.folder / "elsewhere"
    target.write_text("before")
    Path(fault.path).symlink_to(target)
    fault.inject(machine)
    assert target.read_text() == CONTENT
    fault.heal(machine)
    assert Path(fault.path).is_symlink()
    assert target.read_text() == "before"


def test_folders_that_were_made_for_it_go_with_it_unless_others_use_them(
    machine: Local, manifests: Path
) -> None:
    fault = OtherFile("dddddddd", "node-1", str(manifests / "a" / "b c" / "d.yaml"), "1")
    fault.inject(machine)
    (manifests / "a" / "kept").touch()
    fault.heal(machine)
    assert sorted(path.name for path in manifests.rglob("*")) == ["a", "kept"]
    (manifests / "a" / "kept").unlink()
    (manifests / "a").rmdir()
    fault.inject(machine)
    fault.heal(machine)
    assert list(manifests.iterdir()) == []
