"""Capacity of a machine for labs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeproof import capacity
from nodeproof.labs.base.spec import DEFAULT_SHAPE, Shape
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.problem import Problem

Host = Callable[[int, int], None]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """`host(cores, gib)`: have this many cores and this much available memory."""

    def become(cores: int, gib: int) -> None:
        memory = tmp_path / "meminfo"
        memory.write_text(f"MemTotal: 1 kB\nMemAvailable: {gib << 20} kB\n")
        monkeypatch.setattr(capacity, "_MEMORY_INFO", memory)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))

    return become


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
def test_parallel_labs_are_limited_by_cores_and_memory(
    host: Host, kind: Kind, cores: int, gib: int, labs: int
) -> None:
    host(cores, gib)
    at_once, reason = capacity.max_labs(kind, [DEFAULT_SHAPE] * 3)
    assert at_once == labs
    assert f"{cores} cores" in reason
    assert f"{gib:.1f} GiB of memory" in reason


@pytest.mark.parametrize(
    ("shapes", "labs"),
    [
        ([DEFAULT_SHAPE, DEFAULT_SHAPE], 8),
        ([Shape(memory_mib=1280), DEFAULT_SHAPE], 8),
        ([Shape(memory_mib=6144), DEFAULT_SHAPE], 3),
        ([Shape(cpus=2), Shape(cpus=2)], 4),
    ],
)
def test_parallel_labs_are_counted_by_their_machine_shapes(
    host: Host, shapes: list[Shape], labs: int
) -> None:
    host(8, 32)
    assert capacity.max_labs(LIBVIRT, shapes)[0] == labs


@pytest.mark.parametrize(("cores", "gib", "nodes", "zones"), [(2, 24, 3, 6), (4, 2, 3, 4), (64, 99, 3, 33)])
def test_zones_are_limited_by_cores_memory_and_lab_size(
    host: Host, cores: int, gib: int, nodes: int, zones: int
) -> None:
    host(cores, gib)
    at_once, reason = capacity.max_zones(PROCESS, nodes)
    assert at_once == zones
    assert f"{cores} cores" in reason


def test_missing_memory_information_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 1 kB\n")
    monkeypatch.setattr(capacity, "_MEMORY_INFO", memory)
    with pytest.raises(Problem, match="no MemAvailable"):
        capacity.available_mib()
