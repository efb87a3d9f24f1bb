"""The CSI driver's node: marks in folders, and the scripts that a machine with disks is given."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from infra.csi.hypervisor import Refused, Volume, volume_id
from infra.csi.machine import Commands, Marked, Remote
from infra.csi.table import Table

Code = grpc.StatusCode
VOLUME = volume_id("one")
OTHER = volume_id("other")


# Marks -------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "table", ["node-1", "node-2"])
    for volume in (VOLUME, OTHER):
        table.create(Volume(volume, 1))
    table.attach(VOLUME, "node-1")
    return table


@pytest.fixture
def marked(table: Table) -> Marked:
    return Marked(table, "node-1")


def test_marks_come_and_go(marked: Marked, tmp_path: Path) -> None:
    staging, target = tmp_path / "staging", tmp_path / "target"
    for _twice in range(2):
        marked.stage(VOLUME, str(staging))
        marked.publish(VOLUME, str(staging), str(target), read_only=False)
    assert target.is_dir()
    for _twice in range(2):
        marked.unpublish(VOLUME, str(target))
        marked.unstage(VOLUME, str(staging))
    assert not target.exists()
    assert list(staging.iterdir()) == []


def test_what_is_not_attached_here_is_not_staged(marked: Marked, table: Table, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"{OTHER} is not attached to node node-1") as raised:
        marked.stage(OTHER, str(tmp_path / "staging"))
    assert raised.value.code is Code.FAILED_PRECONDITION
    with pytest.raises(Refused, match="node-2"):
        Marked(table, "node-2").stage(VOLUME, str(tmp_path / "staging"))


def test_what_is_not_staged_is_not_published(marked: Marked, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not staged") as raised:
        marked.publish(VOLUME, str(tmp_path), str(tmp_path / "target"), read_only=False)
    assert raised.value.code is Code.FAILED_PRECONDITION


def test_a_folder_has_one_volume(marked: Marked, table: Table, tmp_path: Path) -> None:
    table.attach(OTHER, "node-1")
    marked.stage(VOLUME, str(tmp_path / "a"))
    marked.stage(OTHER, str(tmp_path / "b"))
    with pytest.raises(Refused, match=VOLUME):
        marked.stage(OTHER, str(tmp_path / "a"))
    marked.publish(VOLUME, str(tmp_path / "a"), str(tmp_path / "target"), read_only=False)
    with pytest.raises(Refused) as raised:
        marked.publish(VOLUME, str(tmp_path / "a"), str(tmp_path / "target"), read_only=True)
    assert raised.value.code is Code.ALREADY_EXISTS
    with pytest.raises(Refused, match="is not the one"):
        marked.unpublish(OTHER, str(tmp_path / "target"))
    marked.unstage(OTHER, str(tmp_path / "a"))
    marked.publish(VOLUME, str(tmp_path / "a"), str(tmp_path / "target"), read_only=False)


def test_a_target_without_its_mark_goes_all_the_same(marked: Marked, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    marked.unpublish(VOLUME, str(target))
    assert not target.exists()


# Commands ----------------------------------------------------------------------------------------

PROGRAMS = {
    "findmnt": 'echo "$MOUNTED"',
    "mountpoint": '[ -n "$MOUNTED" ]',
    "mkfs.ext4": "",
    "mount": "",
    "umount": "",
}
"""A machine's programs: each writes down what it was given first."""


class Guest:
    """Runs scripts here, with a /sys of its own and programs that only write down what they should do."""

    def __init__(self, folder: Path, **told: str) -> None:
        self.asked = folder / "asked"
        self.asked.touch()
        programs = folder / "bin"
        programs.mkdir()
        for name, does in PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.asked}"\n{does}\n')
            (programs / name).chmod(0o755)
        for disk, serial in (("sda", ""), ("sdb", OTHER), ("sdc", VOLUME)):
            page = folder / "sys" / "block" / disk / "device" / "vpd_pg80"
            page.parent.mkdir(parents=True)
            page.write_bytes(bytes([0, 0x80, 0, len(serial)]) + serial.encode())
        self.disk = folder / "dev" / "sdc"
        self.disk.parent.mkdir()
        self.disk.write_bytes(bytes(4096))
        path = f"{programs}:{os.environ['PATH']}"
        self._env = {"PATH": path, "SYS": str(folder / "sys"), "DEV": str(self.disk.parent), **told}

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stderr

    @property
    def did(self) -> list[str]:
        """What changes something, of what was asked for."""
        lines = self.asked.read_text().splitlines()
        return [line for line in lines if line.split()[0] in ("mkfs.ext4", "mount", "umount")]


def test_a_disk_without_a_file_system_gets_one(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == [f"mkfs.ext4 -q -F {guest.disk}", f"mount -t ext4 {guest.disk} {tmp_path}/staging"]


def test_a_disk_of_which_a_file_system_was_half_made_gets_one(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    guest.disk.write_bytes(bytes(2048) + b"descriptors")
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did[0] == f"mkfs.ext4 -q -F {guest.disk}"


def test_a_disk_with_a_file_system_keeps_it(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    # The magic number of ext4 (ext4(5)), at its place.
    guest.disk.write_bytes(bytes(1024 + 0x38) + b"\x53\xef" + bytes(4096))
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == [f"mount -t ext4 {guest.disk} {tmp_path}/staging"]


def test_a_disk_that_cannot_be_read_is_left_alone(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    guest.disk.unlink()
    guest.disk.mkdir()
    with pytest.raises(Refused, match=f"volume {VOLUME}, node node-1: .*; {guest.disk} cannot be read"):
        Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == []


def test_a_disk_that_is_not_there_is_not_staged(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    absent = volume_id("absent")
    with pytest.raises(Refused, match=f"no disk has the serial {absent}") as raised:
        Commands(guest, "node-1").stage(absent, str(tmp_path / "staging"))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert guest.did == []


def test_what_is_mounted_already_is_done(tmp_path: Path) -> None:
    guest = Guest(tmp_path, MOUNTED=str(tmp_path / "dev" / "sdc"))
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == []


def test_a_folder_where_something_else_is_mounted_is_refused(tmp_path: Path) -> None:
    guest = Guest(tmp_path, MOUNTED="/dev/sdb")
    with pytest.raises(Refused, match=f"something else than {guest.disk}"):
        Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == []


def test_only_what_is_mounted_is_taken_off(tmp_path: Path) -> None:
    guest, target = Guest(tmp_path), tmp_path / "target"
    commands = Commands(guest, "node-1")
    target.mkdir()
    commands.unpublish(VOLUME, str(target))
    commands.unpublish(VOLUME, str(target))
    commands.unstage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == []
    assert not target.exists()
    with pytest.raises(Refused, match="nothing is staged"):
        commands.publish(VOLUME, str(tmp_path / "staging"), str(target), read_only=False)


def test_all_that_is_the_drivers_is_taken_off_and_nothing_else(tmp_path: Path) -> None:
    staged = "/var/lib/kubelet/plugins/kubernetes.io/csi/csi.nodeproof.dev/0123/globalmount"
    shown = "/var/lib/kubelet/pods/0123/volumes/kubernetes.io~csi/one/mount"
    guest = Guest(tmp_path, MOUNTED=f"/\n{staged}\n{shown}\n/run", PLUGINS=str(tmp_path))
    (tmp_path / "csi.sock").touch()
    Commands(guest, "node-1").forget()
    assert guest.did == [f"umount -l {staged}", f"umount -l {shown}"]
    assert not (tmp_path / "csi.sock").exists()


def test_a_volume_is_bound_read_only_where_that_is_asked(tmp_path: Path) -> None:
    guest, (staging, target) = (
        Guest(tmp_path, MOUNTED="/dev/sdc"),
        (tmp_path / "staging", tmp_path / "target"),
    )
    Commands(guest, "node-1").publish(VOLUME, str(staging), str(target), read_only=True)
    assert guest.did == [f"mount -o remount,bind,ro {target}"]


def test_a_path_reaches_the_guest_as_it_is(tmp_path: Path) -> None:
    odd = "a b'; $(c)"
    status, _ = Remote(["sh", "-c"])(["test", odd, "=", odd])
    assert status == 0


def test_a_node_that_is_not_reached_is_to_be_tried_again(tmp_path: Path) -> None:
    commands = Commands(Remote(["sh", "-c", "echo no route >&2; exit 255"]), "node-1")
    with pytest.raises(Refused, match="node-1: no route") as raised:
        commands.unstage(VOLUME, "/staging")
    assert raised.value.code is Code.UNAVAILABLE
    slow = Commands(Remote(["sh", "-c", "exec cat /dev/zero >/dev/null"], limit_s=0.2), "node-1")
    with pytest.raises(Refused, match=r"timed out after 0\.2 s"):
        slow.unstage(VOLUME, "/staging")
