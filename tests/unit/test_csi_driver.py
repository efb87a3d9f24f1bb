"""The CSI driver: its controller and node services, and as a process that may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from infra.csi import MAX_VOLUMES, client, guests
from infra.csi.client import WRITER, Driver
from infra.csi.controller import MIB, Controller
from infra.csi.hypervisor import Refused, Volume, volume_id
from infra.csi.machine import Commands, Marked, Remote
from infra.csi.protocol import SPECIFICATION
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.stubs import specification
from infra.csi.table import Table
from nodeproof import proc
from nodeproof.artifacts.csi import python_path, recipe_dir
from nodeproof.model.pattern import Json
from tests.csi_driver import END_TIMEOUT_S, NODES, Ground, driver, ground, refused
from tests.fakes import executable
from tests.waiting import eventually

# Its controller and node services


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


def test_volume_belongs_to_one_node_until_it_is_detached(controller: Controller, table: Table) -> None:
    volume = create(controller)
    attach(controller, volume, "node-1")
    refused(lambda: attach(controller, volume, "node-2"), Code.FAILED_PRECONDITION, volume, "node-1")
    refused(lambda: delete(controller, volume), Code.FAILED_PRECONDITION, volume, "node-1")
    detach(controller, volume, "node-2")
    assert table.holders(volume) == ["node-1"]
    detach(controller, volume, "")
    assert table.holders(volume) == []


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


def test_impossible_volume_size_is_refused(controller: Controller) -> None:
    refused(lambda: create(controller, limit_bytes=MIB), Code.OUT_OF_RANGE, "one")
    refused(lambda: create(controller, required_bytes=1 << 50), Code.OUT_OF_RANGE, "one")


@pytest.mark.parametrize(
    ("capacity", "size"),
    [({}, 64), ({"required_bytes": 1}, 16), ({"limit_bytes": 32 * MIB}, 32), ({"limit_bytes": 99 * MIB}, 64)],
)
def test_volume_has_the_required_size(controller: Controller, table: Table, capacity: Any, size: int) -> None:
    volume = table.find(create(controller, **capacity))
    assert volume is not None
    assert volume.size == size * MIB


def test_unsupported_capability_is_refused(controller: Controller) -> None:
    volume = create(controller)
    mode, publish = WRITER.access_mode, csi.ControllerPublishVolumeRequest
    reader = csi.VolumeCapability.AccessMode(mode=CSI_READER)
    lacking = [
        csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=mode),
        csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume(fs_type="xfs"), access_mode=mode),
        csi.VolumeCapability(mount=WRITER.mount, access_mode=reader),
    ]
    for capability in lacking:
        request = publish(volume_id=volume, node_id="node-1", volume_capability=capability)
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
    # A lab that has rebooted a machine writes its file.
    (folder / "machines" / "node-1").write_text(json.dumps({"boot": 2, "runs": True}))
    assert table.holders(volume) == []


VOLUME = volume_id("one")
OTHER = volume_id("other")


# Marks -------------------------------------------------------------------------------------------


@pytest.fixture
def marked(table: Table) -> Marked:
    for volume in (VOLUME, OTHER):
        table.create(Volume(volume, 1))
    table.attach(VOLUME, "node-1")
    return Marked(table, "node-1")


def test_volume_is_attached_staged_and_published(marked: Marked, table: Table, tmp_path: Path) -> None:
    folder = str(tmp_path / "staging")
    not_attached = f"{OTHER} is not attached to node node-1"
    refused(partial(marked.stage, OTHER, folder), Code.FAILED_PRECONDITION, not_attached)
    with pytest.raises(Refused, match="node-2"):
        Marked(table, "node-2").stage(VOLUME, folder)
    publish = partial(marked.publish, VOLUME, folder, str(tmp_path / "target"), read_only=False)
    refused(publish, Code.FAILED_PRECONDITION, "is not staged")


def test_folder_has_one_volume(marked: Marked, table: Table, tmp_path: Path) -> None:
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


# Commands ----------------------------------------------------------------------------------------

ACTING = ("mkfs.ext4", "mount", "umount")
PROGRAMS = {"findmnt": 'echo "$MOUNTED"', "mountpoint": '[ -n "$MOUNTED" ]', **dict.fromkeys(ACTING, "")}
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
        return [line for line in lines if line.split()[0] in ACTING]


FORMAT, MOUNT = "mkfs.ext4 -q -F {disk}", "mount -t ext4 {disk} {folder}/staging"


@pytest.mark.parametrize(
    ("content", "mounted", "commands"),
    [
        (bytes(4096), "", [FORMAT, MOUNT]),
        (bytes(2048) + b"descriptors", "", [FORMAT, MOUNT]),
        # The magic number of ext4 (ext4(5)), at its place.
        (bytes(1024 + 0x38) + b"\x53\xef" + bytes(4096), "", [MOUNT]),
        (bytes(4096), "dev/sdc", []),
    ],
    ids=["empty", "incomplete", "ext4", "mounted"],
)
def test_disk_is_formatted_without_a_file_system_and_mounted_once(
    tmp_path: Path, content: bytes, mounted: str, commands: list[str]
) -> None:
    guest = Guest(tmp_path, MOUNTED=str(tmp_path / mounted) if mounted else "")
    guest.disk.write_bytes(content)
    Commands(guest, "node-1").stage(VOLUME, str(tmp_path / "staging"))
    assert guest.did == [command.format(disk=guest.disk, folder=tmp_path) for command in commands]


def test_unreadable_missing_or_foreign_disk_is_left_alone(tmp_path: Path) -> None:
    guest, staging = Guest(tmp_path), str(tmp_path / "staging")
    commands = Commands(guest, "node-1")
    absent = volume_id("absent")
    lacking = f"no disk has the serial {absent}"
    refused(partial(commands.stage, absent, staging), Code.FAILED_PRECONDITION, lacking)
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
    guest, staging, target = Guest(tmp_path, MOUNTED="/dev/sdc"), tmp_path / "staging", tmp_path / "target"
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


def test_request_to_a_frozen_guest_leaves_open_who_has_the_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "GONE_TIMEOUT_S", 0.3)
    libvirt, goes_on = guests.Libvirt(lambda: None, "pool", None), threading.Event()
    late = f"{VOLUME} is not in node node-1"
    for request in (
        lambda: libvirt._request(VOLUME, late, goes_on.wait),
        lambda: libvirt.attach(VOLUME, "node-2"),
        lambda: libvirt.detach(VOLUME, "node-1"),
        lambda: libvirt.holders(VOLUME),
    ):
        refused(request, Code.DEADLINE_EXCEEDED, late, "0.3 s")
    goes_on.set()
    assert eventually(lambda: libvirt._pending[VOLUME][1].done(), TIMEOUT_S)
    libvirt._check_settled(VOLUME)


# As a process: its log, refusals, refused starts, and kills


TIMEOUT_S = 20.0
NODE = NODES[0]
_HERE: Mapping[str, Any] = {"volume_id": VOLUME, "node_id": NODE}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path) as place:
        yield place


def test_each_call_is_logged_with_its_times_and_code(on: Ground) -> None:
    began = time.monotonic()
    with driver(on), Driver(on.controller) as controller, Driver(on.node(NODE)) as node:
        volume = controller.create("one")
        controller.attach(volume, NODE)
        with pytest.raises(grpc.RpcError) as raised:
            controller.attach(volume, NODES[1])
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert [name for name in (volume, *NODES) if name not in str(raised.value.details())] == []
        info = node.call("Node", "NodeGetInfo", csi.NodeGetInfoRequest())
        assert (info.node_id, info.max_volumes_per_node) == (NODE, MAX_VOLUMES)
    lines = [line for line in on.lines() if line["method"] != "Probe"]
    assert [(line["method"], line["volume"], line["node"], line["code"]) for line in lines] == [
        ("Started", "", "", "OK"),
        ("CreateVolume", volume, "", "OK"),
        ("ControllerPublishVolume", volume, NODE, "OK"),
        ("ControllerPublishVolume", volume, NODES[1], "FAILED_PRECONDITION"),
        ("NodeGetInfo", "", NODE, "OK"),
    ]
    times = [began, *(time_ for line in lines for time_ in (line["begin"], line["end"])), time.monotonic()]
    assert times == sorted(times)


def test_torn_line_of_a_killed_driver_damages_no_other(on: Ground) -> None:
    on.calls.write_text('{"method": "Contro')
    with driver(on):
        pass
    torn, *whole = on.calls.read_text().splitlines()
    assert torn == '{"method": "Contro'
    assert whole[0].startswith('{"method": "Started"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--endpoint=tcp://1", "--hypervisor=table:t"], "is not an endpoint"),
        (["--endpoint=unix:///" + 200 * "x", "--hypervisor=table:t"], "longer than 107 bytes"),
        (["--endpoint=unix:///x", "--hypervisor=cloud:x"], "no hypervisor 'cloud:x'"),
        (["--endpoint=unix:///x", "--hypervisor=libvirt:x"], "needs --pool and --shell"),
        (["--endpoint=unix:///nowhere/x", "--hypervisor=table:t"], "/nowhere/x"),
    ],
)
def test_impossible_start_is_refused_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(python_path())}
    argv = [sys.executable, "-m", "infra.csi", *arguments]
    process = proc.run(argv, timeout_s=TIMEOUT_S, cwd=tmp_path, env=env, check=False)
    assert process.status == 2
    last = process.stderr.splitlines()[-1]
    assert last.startswith("csi driver: ")
    assert message in last


def test_client_creates_refuses_and_deletes_a_volume(on: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--endpoint", on.controller)
    with driver(on):
        assert client.main([*options, "create", "data"]) == 0
        volume = capsys.readouterr().out.strip()
        assert volume == volume_id("data")
        assert client.main([*options, "create", "data", "--mib", "128"]) == 1
        assert capsys.readouterr().err.startswith("csi driver: create data: ")
        assert client.main([*options, "delete", volume]) == 0
    codes = [(line["method"], line["code"]) for line in on.lines() if line["method"].endswith("Volume")]
    assert codes == [("CreateVolume", "OK"), ("CreateVolume", "ALREADY_EXISTS"), ("DeleteVolume", "OK")]


def test_second_driver_of_a_table_is_refused(on: Ground) -> None:
    with driver(on):
        env = {**os.environ, "PYTHONPATH": str(python_path())}
        process = proc.run(on.command(), timeout_s=TIMEOUT_S, cwd=on.folder, env=env, check=False)
        assert process.status == 2
        assert "another driver uses" in process.stderr


# Killed ------------------------------------------------------------------------------------------


def step(method: str, state: Json, **fields: Json) -> tuple[str, Message, Mapping[str, Any]]:
    """Return a call with what it changes of the visible state."""
    return method, getattr(csi, f"{method}Request")(**fields), state


class Life:
    """A volume's life as calls, with the visible state after each."""

    def __init__(self, on: Ground) -> None:
        self.on = on
        staging, target = on.folder / "staging", on.folder / "target"
        self._staging, self._target = staging, target
        staged: Json = {"volume_id": VOLUME, "staging_target_path": str(staging)}
        shown: Json = {"target_path": str(target)}
        capability: Json = {"volume_capability": WRITER}
        size = csi.CapacityRange(required_bytes=64 * MIB)
        self.steps = [
            step(
                "CreateVolume", {"there": True}, name="one", volume_capabilities=[WRITER], capacity_range=size
            ),
            step("ControllerPublishVolume", {"holders": [NODE]}, **_HERE, **capability),
            step("NodeStageVolume", {"staged": True}, **staged, **capability),
            step("NodePublishVolume", {"published": True}, **staged, **shown, **capability),
            step("NodeUnpublishVolume", {"published": False}, volume_id=VOLUME, **shown),
            step("NodeUnstageVolume", {"staged": False}, **staged),
            step("ControllerUnpublishVolume", {"holders": []}, **_HERE),
            step("DeleteVolume", {"there": False}, volume_id=VOLUME),
        ]

    def state(self) -> dict[str, Any]:
        """Return the visible state."""
        return {
            "there": self.on.table.find(VOLUME) is not None,
            "holders": self.on.table.holders(VOLUME),
            "staged": any(self._staging.iterdir()) if self._staging.is_dir() else False,
            "published": any(self._target.iterdir()) if self._target.is_dir() else False,
        }

    def has(self, state: Mapping[str, Any]) -> bool:
        return self.state() == state

    def asker(self, method: str) -> Driver:
        """Connect to the endpoint of a method; the call fails once the driver is gone."""
        asker = Driver(self.on.node(NODE) if _is_nodes(method) else self.on.controller, waits=False)
        asker.call("Identity", "Probe", csi.ProbeRequest())
        return asker


def call(asker: Driver, method: str, request: Message) -> None:
    """Make one call of a life. Raises grpc.RpcError."""
    asker.call("Node" if _is_nodes(method) else "Controller", method, request)


def _is_nodes(method: str) -> bool:
    return method.startswith("Node")


def stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped (proc_pid_stat(5))."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}


@pytest.mark.parametrize("is_seen", [False, True], ids=["before the call", "after the call"])
def test_call_interrupted_by_a_driver_kill_can_be_repeated(on: Ground, is_seen: bool) -> None:
    """A stopped driver does not see the call; one that cannot log it is blocked before its answer."""
    os.mkfifo(on.calls)
    log = os.open(on.calls, os.O_RDWR | os.O_NONBLOCK)
    life = Life(on)
    state = life.state()
    repeated: list[tuple[str, Message]] = []
    for method, request, changes in life.steps:
        with driver(on) as process:
            again(life, repeated)
            assert life.state() == state, method
            after = {**state, **changes}
            with life.asker(method) as asker, ThreadPoolExecutor() as pool:
                if is_seen:
                    fill_up(log)
                else:
                    process.send_signal(signal.SIGSTOP)
                    # Each thread stops when it is scheduled next; until then it may make a call.
                    assert eventually(lambda: stands_still(process.pid), TIMEOUT_S)
                future = pool.submit(call, asker, method, request)
                expected = after if is_seen else state
                assert eventually(partial(life.has, expected), TIMEOUT_S)
                assert not future.done()
                kill(process)
                with pytest.raises(grpc.RpcError):
                    future.result(TIMEOUT_S)
            drain(log)
            assert life.state() == expected
        state, repeated = after, [(method, request)]
    with driver(on):
        again(life, repeated)
    os.close(log)
    assert life.state() == state


def again(life: Life, calls: list[tuple[str, Message]]) -> None:
    for method, request in calls:
        with life.asker(method) as asker:
            call(asker, method, request)


def fill_up(pipe: int) -> None:
    """Fill the disk to the last byte."""
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, size * b" ")


def drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.read(pipe, 65536)


def kill(process: proc.Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(END_TIMEOUT_S)


def test_refusals_name_their_volume_and_node(on: Ground) -> None:
    """A request without a capability, and one for a volume whose file is torn."""
    with driver(on), Driver(on.controller) as controller:
        (on.folder / "table" / "volumes" / controller.create("one")).write_text("{")
        for capability in (None, WRITER):
            request = csi.ControllerPublishVolumeRequest(**_HERE, volume_capability=capability)
            with pytest.raises(grpc.RpcError) as raised:
                controller.call("Controller", "ControllerPublishVolume", request)
            assert [name for name in (VOLUME, NODE) if name not in str(raised.value.details())] == []
