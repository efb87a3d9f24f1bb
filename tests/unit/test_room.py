"""How many labs a machine has room for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeproof import room
from nodeproof.labs.ground.spec import AS_ALL, Shape
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.problem import Problem

GIB_KB = 1 << 20


@pytest.mark.parametrize(
    ("kind", "cores", "gib", "labs"),
    [
        (PROCESS, 2, 24, 3),
        (PROCESS, 8, 24, 12),
        (PROCESS, 8, 2, 2),
        (PROCESS, 1, 24, 1),
        (PROCESS, 2, 0, 1),
        (LIBVIRT, 2, 24, 2),
        (LIBVIRT, 16, 24, 4),
    ],
)
def test_cores_and_memory_say_how_many_labs_stand_side_by_side(
    kind: Kind, cores: int, gib: int, labs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal: 1 kB\nMemAvailable: {gib * GIB_KB} kB\n")
    monkeypatch.setattr(room, "_MEMORY_INFO", memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    at_once, said = room.labs_at_once(kind, [AS_ALL] * 3)
    assert at_once == labs
    assert f"{cores} cores" in said
    assert f"{gib:.1f} GiB of memory" in said


@pytest.mark.parametrize(
    ("shapes", "labs"),
    [
        ([AS_ALL, AS_ALL], 8),
        ([Shape(memory_mib=1280), AS_ALL], 8),
        ([Shape(memory_mib=6144), AS_ALL], 3),
        ([Shape(cpus=2), Shape(cpus=2)], 4),
    ],
)
def test_machines_of_another_shape_are_counted_as_they_are(
    shapes: list[Shape], labs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemAvailable: {32 * GIB_KB} kB\n")
    monkeypatch.setattr(room, "_MEMORY_INFO", memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    at_once, _ = room.labs_at_once(LIBVIRT, shapes)
    assert at_once == labs


@pytest.mark.parametrize(("cores", "gib", "nodes", "zones"), [(2, 24, 3, 4), (4, 2, 3, 4), (64, 99, 3, 33)])
def test_cores_memory_and_the_largest_lab_say_how_many_zones_it_has(
    cores: int, gib: int, nodes: int, zones: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemAvailable: {gib * GIB_KB} kB\n")
    monkeypatch.setattr(room, "_MEMORY_INFO", memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    at_once, said = room.zones_at_once(PROCESS, nodes)
    assert at_once == zones
    assert f"{cores} cores" in said


def test_a_machine_that_does_not_tell_its_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 1 kB\n")
    monkeypatch.setattr(room, "_MEMORY_INFO", memory)
    with pytest.raises(Problem, match="no MemAvailable"):
        room.available_mib()
