"""The CSI driver's controller and node services."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from infra.csi import MAX_VOLUMES
from infra.csi.client import WRITER
from infra.csi.controller import MIB, Controller
from infra.csi.hypervisor import Refused, Volume, volume_id
from infra.csi.machine import Commands, Marked, Remote
from infra.csi.protocol import SPECIFICATION
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.stubs import specification
from infra.csi.table import Table
from nodeproof.artifacts.csi import recipe_dir
from tests.csi_driver import refused
from tests.fakes import executable

Code = grpc.StatusCode
CSI_READER = csi.VolumeCapability.AccessMode.MULTI_NODE_READER_ONLY


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table", ["node-1", "node-2"])


@pytest.fixture
def controller(table: Table) -> Controller:
    return Controller(table)


def create(controller: Controller, name: str = "one", **capacity: int) -> str:
    request = csi.CreateVolumeRequest(
        name=name, volume_capabilities=[WRITER], capacity_range=csi.CapacityRange(**capacity)
    )
    return controller.CreateVolume(request).volume.volume_id


def attach(controller: Controller, volume: str, node: str) -> None:
    controller.ControllerPublishVolume(
        csi.ControllerPublishVolumeRequest(volume_id=volume, node_id=node, volume_capability=WRITER)
    )


def detach(controller: Controller, volume: str, node: str) -> None:
    controller.ControllerUnpublishVolume(csi.ControllerUnpublishVolumeRequest(volume_id=volume, node_id=node))


def delete(controller: Controller, volume: str) -> None:
    controller.DeleteVolume(csi.DeleteVolumeRequest(volume_id=volume))


def test_stubs_match_the_protocol_of_the_programs() -> None:
    assert specification(recipe_dir()) == SPECIFICATION, "run `make stubs`"


def test_attach_and_detach_are_idempotent_and_of_one_node(controller: Controller, table: Table) -> None:
    volume = create(controller)
    for _twice in range(2):
        attach(controller, volume, "node-1")
    detach(controller, volume, "node-2")
    assert table.holders(volume) == ["node-1"]
    for _twice in range(2):
        detach(controller, volume, "node-1")
    attach(controller, volume, "node-2")
    assert table.holders(volume) == ["node-2"]
    detach(controller, volume, "")
    assert table.holders(volume) == []


def test_volume_attached_elsewhere_is_refused(controller: Controller, table: Table) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    refused(
        lambda: attach(controller, volume, "node-2"), Code.FAILED_PRECONDITION, volume, "node-1", "node-2"
    )
    refused(lambda: delete(controller, volume), Code.FAILED_PRECONDITION, volume, "node-1")
    assert table.holders(volume) == ["node-1"]


def test_ninth_volume_of_a_node_is_refused(controller: Controller, table: Table) -> None:
    volumes = [create(controller, f"v{number}") for number in range(MAX_VOLUMES + 1)]
    for volume in volumes[:-1]:
        attach(controller, volume, "node-1")
    refused(lambda: attach(controller, volumes[-1], "node-1"), Code.RESOURCE_EXHAUSTED, volumes[-1], "node-1")
    attach(controller, volumes[0], "node-1")
    attach(controller, volumes[-1], "node-2")
    detach(controller, volumes[0], "node-1")
    detach(controller, volumes[-1], "node-2")
    attach(controller, volumes[-1], "node-1")
    assert table.volume_count("node-1") == MAX_VOLUMES


@pytest.mark.parametrize("strange", ["no-such", "np-0123456789abcdef0", "../machines/node-1"])
def test_unknown_volume_or_node_is_not_found(controller: Controller, strange: str) -> None:
    volume = create(controller)
    refused(lambda: attach(controller, strange, "node-1"), Code.NOT_FOUND, strange)
    refused(lambda: attach(controller, volume, strange), Code.NOT_FOUND, volume, strange)
    detach(controller, strange, "node-1")
    detach(controller, volume, strange)
    delete(controller, strange)


def test_volume_of_an_ended_machine_can_be_attached_elsewhere(controller: Controller, table: Table) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    table.power_off("node-1")
    refused(lambda: attach(controller, create(controller, "two"), "node-1"), Code.UNAVAILABLE, "node-1")
    attach(controller, volume, "node-2")
    table.power_on("node-1")
    assert table.volume_count("node-1") == 0
    assert table.holders(volume) == ["node-2"]
    refused(lambda: attach(controller, volume, "node-1"), Code.FAILED_PRECONDITION, volume, "node-2")


def test_volume_name_is_unique(controller: Controller, table: Table) -> None:
    volume = create(controller, "one", required_bytes=100 * MIB)
    assert create(controller, "one", required_bytes=100 * MIB) == volume == volume_id("one")
    assert len(volume) <= 20, "a SCSI disk's serial has no more"
    refused(lambda: create(controller, "one", required_bytes=200 * MIB), Code.ALREADY_EXISTS, "one")
    refused(lambda: create(controller, "one", limit_bytes=50 * MIB), Code.ALREADY_EXISTS, "one")
    delete(controller, volume)
    delete(controller, volume)
    assert table.find(volume) is None


def test_impossible_volume_size_is_refused(controller: Controller) -> None:
    refused(lambda: create(controller, limit_bytes=MIB), Code.OUT_OF_RANGE, "one")
    refused(lambda: create(controller, required_bytes=1 << 50), Code.OUT_OF_RANGE, "one")


@pytest.mark.parametrize(
    ("capacity", "size"),
    [({}, 64), ({"required_bytes": 1}, 16), ({"limit_bytes": 32 * MIB}, 32), ({"limit_bytes": 99 * MIB}, 64)],
)
def test_volume_is_as_large_as_required(
    controller: Controller, table: Table, capacity: Any, size: int
) -> None:
    volume = table.find(create(controller, **capacity))
    assert volume is not None
    assert volume.size == size * MIB


def test_unsupported_capability_is_refused(controller: Controller) -> None:
    volume = create(controller)
    mode = WRITER.access_mode
    lacking = [
        csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=mode),
        csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type="xfs"), access_mode=mode),
        csi.VolumeCapability(
            mount=WRITER.mount, access_mode=csi.VolumeCapability.AccessMode(mode=CSI_READER)
        ),
    ]
    for capability in lacking:
        request = csi.ControllerPublishVolumeRequest(
            volume_id=volume, node_id="node-1", volume_capability=capability
        )
        refused(partial(controller.ControllerPublishVolume, request), Code.INVALID_ARGUMENT, volume)
        answer = controller.ValidateVolumeCapabilities(
            csi.ValidateVolumeCapabilitiesRequest(volume_id=volume, volume_capabilities=[WRITER, capability])
        )
        assert not answer.HasField("confirmed")
        assert volume in answer.message


def test_table_is_kept_in_whole_files_of_one_driver(tmp_path: Path, table: Table) -> None:
    folder = tmp_path / "table"
    volume = create(Controller(table))
    attach(Controller(table), volume, "node-1")
    half = folder / "volumes" / f".{volume}"
    half.write_text('{"size": 6')
    assert table.holders(volume) == ["node-1"]
    table.power_off("node-2")
    anew = Table(folder, ["node-1", "node-2"])
    anew.take()
    assert not half.exists()
    assert anew.holders(volume) == ["node-1"]
    assert not anew.runs("node-2")
    with pytest.raises(BlockingIOError):
        Table(folder).take()
    # A lab that has rebooted a machine writes its file.
    (folder / "machines" / "node-1").write_text(json.dumps({"boot": 2, "runs": True}))
    assert table.holders(volume) == []


VOLUME = volume_id("one")
OTHER = volume_id("other")


# Marks -------------------------------------------------------------------------------------------


@pytest.fixture
def node_table(tmp_path: Path) -> Table:
    node_table = Table(tmp_path / "node_table", ["node-1", "node-2"])
    for volume in (VOLUME, OTHER):
        node_table.create(Volume(volume, 1))
    node_table.attach(VOLUME, "node-1")
    return node_table


@pytest.fixture
def marked(node_table: Table) -> Marked:
    return Marked(node_table, "node-1")


def test_publish_and_stage_marks_are_created_and_removed(marked: Marked, tmp_path: Path) -> None:
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


def test_only_an_attached_volume_is_staged_and_a_staged_one_published(
    marked: Marked, node_table: Table, tmp_path: Path
) -> None:
    folder = str(tmp_path / "staging")
    not_attached = f"{OTHER} is not attached to node node-1"
    refused(partial(marked.stage, OTHER, folder), Code.FAILED_PRECONDITION, not_attached)
    with pytest.raises(Refused, match="node-2"):
        Marked(node_table, "node-2").stage(VOLUME, folder)
    publish = partial(marked.publish, VOLUME, folder, str(tmp_path / "target"), read_only=False)
    refused(publish, Code.FAILED_PRECONDITION, "is not staged")


def test_folder_has_one_volume(marked: Marked, node_table: Table, tmp_path: Path) -> None:
    node_table.attach(OTHER, "node-1")
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


# Commands ----------------------------------------------------------------------------------------

PROGRAMS = {
    "findmnt": 'echo "$MOUNTED"',
    "mountpoint": '[ -n "$MOUNTED" ]',
    "mkfs.ext4": "",
    "mount": "",
    "umount": "",
}
"""Fake programs of a machine, which first log their arguments."""


class Guest:
    """Runs scripts here, with its own /sys and programs that only log their calls."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.log = folder / "asked"
        self.log.touch()
        programs = folder / "bin"
        for name, does in PROGRAMS.items():
            executable(programs / name, f'echo "{name} $*" >>"{self.log}"\n{does}')
        for disk, serial in (("sda", ""), ("sdb", OTHER), ("sdc", VOLUME)):
            page = folder / "sys" / "block" / disk / "device" / "vpd_pg80"
            page.parent.mkdir(parents=True)
            page.write_bytes(bytes([0, 0x80, 0, len(serial)]) + serial.encode())
        self.disk = folder / "dev" / "sdc"
        self.disk.parent.mkdir()
        self.disk.write_bytes(bytes(4096))
        path = f"{programs}:{os.environ['PATH']}"
        self._env = {"PATH": path, "SYS": str(folder / "sys"), "DEV": str(self.disk.parent), **settings}

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        process = subprocess.run(argv, env=self._env, capture_output=True, text=True, timeout=20, check=False)
        return process.returncode, process.stderr

    @property
    def did(self) -> list[str]:
        """Return the calls that change something."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.split()[0] in ("mkfs.ext4", "mount", "umount")]


@pytest.mark.parametrize(
    ("content", "is_formatted"),
    [
        (bytes(4096), True),
        (bytes(2048) + b"descriptors", True),
        # The magic number of ext4 (ext4(5)), at its place.
        (bytes(1024 + 0x38) + b"\x53\xef" + bytes(4096), False),
    ],
    ids=["empty", "incomplete", "ext4"],
)
def test_disk_without_a_file_system_is_formatted(tmp_path: Path, content: bytes, is_formatted: bool) -> None:
    guest = Guest(tmp_path)
    guest.disk.write_bytes(content)
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    formats = [f"mkfs.ext4 -q -F {guest.disk}"] if is_formatted else []
    assert guest.did == [*formats, f"mount -t ext4 {guest.disk} {tmp_path}/staging"]


def test_staging_a_mounted_disk_changes_nothing(tmp_path: Path) -> None:
    guest = Guest(tmp_path, MOUNTED=str(tmp_path / "dev" / "sdc"))
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == []


def test_unreadable_missing_or_foreign_disk_is_left_alone(tmp_path: Path) -> None:
    guest, staging = Guest(tmp_path), str(tmp_path / "staging")
    commands = Commands(guest, "node-1")
    absent = volume_id("absent")
    refused(
        partial(commands.stage, absent, staging), Code.FAILED_PRECONDITION, f"no disk has the serial {absent}"
    )
    guest.disk.unlink()
    guest.disk.mkdir()
    message = f"volume {VOLUME}, node node-1: .*; {guest.disk} cannot be read"
    with pytest.raises(Refused, match=message):
        commands.stage(VOLUME, staging)
    (tmp_path / "other").mkdir()
    mounted = Guest(tmp_path / "other", MOUNTED="/dev/sdb")
    with pytest.raises(Refused, match=f"something else than {mounted.disk}"):
        Commands(mounted, "node-1").stage(VOLUME, staging)
    assert guest.did == mounted.did == []


def test_only_mounted_targets_are_unmounted(tmp_path: Path) -> None:
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


def test_forget_unmounts_exactly_the_mounts_of_the_driver(tmp_path: Path) -> None:
    staged = "/var/lib/kubelet/plugins/kubernetes.io/csi/csi.nodeproof.dev/0123/globalmount"
    shown = "/var/lib/kubelet/pods/0123/volumes/kubernetes.io~csi/one/mount"
    guest = Guest(tmp_path, MOUNTED=f"/\n{staged}\n{shown}\n/run", PLUGINS=str(tmp_path))
    (tmp_path / "csi.sock").touch()
    Commands(guest, "node-1").forget()
    assert guest.did == [f"umount -l {staged}", f"umount -l {shown}"]
    assert not (tmp_path / "csi.sock").exists()


def test_read_only_volume_is_bound_read_only(tmp_path: Path) -> None:
    guest, (staging, target) = (
        Guest(tmp_path, MOUNTED="/dev/sdc"),
        (tmp_path / "staging", tmp_path / "target"),
    )
    Commands(guest, "node-1").publish(VOLUME, str(staging), str(target), read_only=True)
    assert guest.did == [f"mount -o remount,bind,ro {target}"]


def test_path_reaches_the_guest_unchanged(tmp_path: Path) -> None:
    odd = "a b'; $(c)"
    status, _ = Remote(["sh", "-c"])(["test", odd, "=", odd])
    assert status == 0


def test_unreachable_node_is_a_retryable_error(tmp_path: Path) -> None:
    commands = Commands(Remote(["sh", "-c", "echo no route >&2; exit 255"]), "node-1")
    with pytest.raises(Refused, match="node-1: no route") as raised:
        commands.unstage(VOLUME, "/staging")
    assert raised.value.code is Code.UNAVAILABLE
    slow = Commands(Remote(["sh", "-c", "exec cat /dev/zero >/dev/null"], timeout_s=0.2), "node-1")
    with pytest.raises(Refused, match=r"timed out after 0\.2 s"):
        slow.unstage(VOLUME, "/staging")
