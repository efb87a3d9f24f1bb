"""The CSI driver as a process: its log, refusals, refused starts, and kills."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from infra.csi import MAX_VOLUMES, NAME, client, disks
from infra.csi.client import WRITER, Driver
from infra.csi.controller import MIB
from infra.csi.hypervisor import volume_id
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.protocol import registration_pb2 as registration
from infra.csi.table import Table
from nodeproof import proc
from nodeproof.artifacts.csi import python_path
from tests.csi_driver import END_TIMEOUT_S, NODES, Ground, driver, ground
from tests.waiting import eventually

Json = Any
TIMEOUT_S = 20.0
VOLUME = volume_id("one")
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


def test_kubelet_can_register_the_driver(on: Ground) -> None:
    with driver(on), grpc.insecure_channel(on.node(NODE)) as channel:
        ask = channel.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            registration.InfoRequest.SerializeToString,
            registration.PluginInfo.FromString,
        )
        reply = ask(registration.InfoRequest(), timeout=TIMEOUT_S)
    assert (reply.type, reply.name, reply.endpoint) == ("CSIPlugin", NAME, "")


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
def test_driver_refuses_an_impossible_start_in_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
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


def test_disks_command_creates_attaches_lists_and_forgets_disks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume, table = volume_id("data"), Table(tmp_path / "table", ["node-1", "node-2"])
    options = [f"--hypervisor=table:{tmp_path / 'table'}"]
    for _twice in range(2):
        assert disks.main([*options, "create", str(1 << 24), volume]) == 0
    assert disks.main([*options, "attach", volume, "node-1"]) == 0
    assert disks.main([*options, "holders", volume]) == 0
    assert capsys.readouterr().out == "node-1\n"
    assert disks.main([*options, "forget"]) == 0
    assert table.all() == []
    assert disks.main(["--hypervisor=cloud:x", "forget"]) == 2
    assert capsys.readouterr().err.startswith("disks: no hypervisor 'cloud:x'")


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


Kill = Callable[[Life, proc.Process, str, Message, Mapping[str, Any]], None]
"""Kills a driver in a call, and the visible state afterwards."""


def stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped (proc_pid_stat(5))."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}


@contextmanager
def stopped(_on: Ground) -> Iterator[Kill]:
    """Kill it before the call: the driver does not see it."""

    def stop(
        life: Life, process: proc.Process, method: str, request: Message, _after: Mapping[str, Any]
    ) -> None:
        before = life.state()
        with life.asker(method) as asker, ThreadPoolExecutor() as pool:
            process.send_signal(signal.SIGSTOP)
            # Each thread stops when it is scheduled next; until then it may make a call.
            assert eventually(lambda: stands_still(process.pid), TIMEOUT_S)
            future = pool.submit(call, asker, method, request)
            kill(process)
            with pytest.raises(grpc.RpcError):
                future.result(TIMEOUT_S)
        assert life.state() == before

    yield stop


@contextmanager
def unanswered(on: Ground) -> Iterator[Kill]:
    """Kill it after the call: the driver is blocked before its answer, as it cannot log the call."""
    os.mkfifo(on.calls)
    pipe = os.open(on.calls, os.O_RDWR | os.O_NONBLOCK)

    def fill(
        life: Life, process: proc.Process, method: str, request: Message, after: Mapping[str, Any]
    ) -> None:
        with life.asker(method) as asker, ThreadPoolExecutor() as pool:
            fill_up(pipe)
            future = pool.submit(call, asker, method, request)
            assert eventually(lambda: life.state() == after, TIMEOUT_S)
            assert not future.done()
            kill(process)
            with pytest.raises(grpc.RpcError):
                future.result(TIMEOUT_S)
        drain(pipe)
        assert life.state() == after

    yield fill
    os.close(pipe)


@pytest.mark.parametrize("way", [stopped, unanswered])
def test_call_interrupted_by_a_driver_kill_can_be_repeated(
    on: Ground, way: Callable[[Ground], AbstractContextManager[Kill]]
) -> None:
    life = Life(on)
    state = life.state()
    repeated: list[tuple[str, Message]] = []
    with way(on) as kill_in:
        for method, request, changes in life.steps:
            with driver(on) as process:
                again(life, repeated)
                assert life.state() == state, method
                state = {**state, **changes}
                kill_in(life, process, method, request, state)
            repeated = [(method, request)]
        with driver(on):
            again(life, repeated)
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
