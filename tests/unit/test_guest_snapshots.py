"""What is kept of a guest before it joins, and what a restore depends on."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.kept import half_made
from nodeproof.labs.kinds.libvirt.domain_xml import ROOT_TARGET, Disk, Domain, Nic, mac
from nodeproof.labs.kinds.libvirt.snapshots import (
    UNUSED_LIMIT_S,
    Busy,
    Shelf,
    Snapshot,
    snapshot_key,
)

DOMAIN = Domain(
    name="node-1",
    uuid="6c9ce1d0-6a54-4a0b-9c6b-0d7b1a7c3f11",
    lab="p-111111",
    machine_id="1" * 32,
    memory_mib=1280,
    vcpus=1,
    kvm=False,
    kernel=Path("/images/vmlinuz"),
    initrd=Path("/images/initrd.img"),
    arguments=["rw"],
    disks=[Disk(Path("/lab/one.qcow2"), "qcow2", ROOT_TARGET)],
    nics=[Nic("control", mac("control", 1), "c1")],
    console=Path("/lab/console.log"),
)
KEY = snapshot_key(DOMAIN, "QEMU 1")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty one."""
    return Shelf(tmp_path, os.getuid(), os.getgid())


def _take(fresh: Snapshot) -> None:
    fresh.memory.write_bytes(b"memory")
    fresh.disk.write_bytes(b"disk")


def _take_half(fresh: Snapshot) -> None:
    fresh.memory.write_bytes(b"mem")
    raise OSError("no space left on device")


def test_a_guest_of_another_shape_has_another_snapshot() -> None:
    for other in (replace(DOMAIN, vcpus=4, numa_nodes=2), replace(DOMAIN, arguments=["rw", "quiet"])):
        assert snapshot_key(other, "QEMU 1") != KEY


def test_another_lab_of_the_same_guest_has_the_same_snapshot() -> None:
    other = replace(
        DOMAIN,
        lab="p-222222",
        machine_id="2" * 32,
        disks=[replace(DOMAIN.disks[0], file=Path("/other/one.qcow2"))],
        console=Path("/other/console.log"),
    )
    assert snapshot_key(other, "QEMU 1") == KEY
    assert KEY.startswith("node-1-")


@pytest.mark.parametrize(
    "other",
    [
        replace(DOMAIN, kvm=True),
        replace(DOMAIN, memory_mib=2048),
        replace(DOMAIN, name="node-2"),
        replace(DOMAIN, nics=[Nic("control", mac("control", 2), "c2")]),
        replace(DOMAIN, arguments=["ro"]),
    ],
)
def test_another_guest_has_another_one(other: Domain) -> None:
    assert snapshot_key(other, "QEMU 1") != KEY


def test_another_qemu_restores_no_memory_of_this_one() -> None:
    assert snapshot_key(DOMAIN, "QEMU 2") != KEY


def test_what_was_kept_is_found(shelf: Shelf) -> None:
    assert shelf.find(KEY) is None
    shelf.keep(KEY, _take)
    found = shelf.find(KEY)
    assert found is not None
    assert (found.memory.read_bytes(), found.disk.read_bytes()) == (b"memory", b"disk")


def test_a_file_that_somebody_wrote_to_is_no_snapshot(shelf: Shelf) -> None:
    shelf.keep(KEY, _take)
    found = shelf.find(KEY)
    assert found is not None
    found.memory.write_bytes(b"mem")
    assert shelf.find(KEY) is None


def test_what_could_not_be_taken_leaves_nothing_and_keeps_what_there_is(shelf: Shelf, tmp_path: Path) -> None:
    shelf.keep(KEY, _take)
    with pytest.raises(OSError, match="no space"):
        shelf.keep(KEY, _take_half)
    assert shelf.find(KEY) is not None
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_what_a_killed_lab_left_goes_with_the_next_one(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / f".{KEY}.new-gone").mkdir()
    shelf.keep(KEY, _take)
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_what_is_being_taken_is_nothing_to_sweep(shelf: Shelf, tmp_path: Path) -> None:
    half = tmp_path / f".{KEY}.new-gone"
    half.mkdir()
    with shelf.writing(KEY):
        assert half_made(tmp_path) == []
    assert half_made(tmp_path) == [half]


def test_only_what_nobody_uses_any_more_is_pruned(shelf: Shelf, tmp_path: Path) -> None:
    long_ago = time.time() - UNUSED_LIMIT_S - 60
    old, used, others = (
        f"{node}-{'0' * 11}{number}" for number, node in enumerate(["node-1", "node-1", "node-12"])
    )
    for key in (old, used, others, KEY):
        shelf.keep(key, _take)
    for key in (old, others, KEY):
        os.utime(tmp_path / key, (long_ago, long_ago))

    shelf.prune(KEY, "node-1")
    assert {path.name for path in tmp_path.iterdir()} == {used, others, KEY}


def test_a_snapshot_that_is_found_counts_as_used(shelf: Shelf, tmp_path: Path) -> None:
    shelf.keep(KEY, _take)
    os.utime(tmp_path / KEY, (0, 0))
    shelf.find(KEY)
    assert time.time() - (tmp_path / KEY).stat().st_mtime < UNUSED_LIMIT_S


def test_many_labs_read_a_snapshot_and_one_changes_it(shelf: Shelf) -> None:
    with shelf.reading(KEY), shelf.reading(KEY), pytest.raises(Busy), shelf.writing(KEY):
        pass
    with shelf.writing(KEY), pytest.raises(Busy), shelf.reading(KEY):
        pass
    with shelf.writing(KEY):
        pass


def test_a_snapshot_is_proven_until_another_one_takes_its_place(shelf: Shelf) -> None:
    shelf.prove(KEY)
    assert not shelf.is_proven(KEY)
    shelf.keep(KEY, _take)
    shelf.prove(KEY)
    assert shelf.is_proven(KEY)
    assert shelf.find(KEY) is not None
    shelf.keep(KEY, _take)
    assert not shelf.is_proven(KEY)
