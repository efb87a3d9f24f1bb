"""The CSI driver as a process: what it writes down, what it refuses to start with, and being killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
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
from tests.csi_driver import END_LIMIT_S, NODES, Ground, driver, ground
from tests.waiting import eventually

LIMIT_S = 20.0
VOLUME = volume_id("one")
NODE = NODES[0]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path) as made:
        yield made


def test_each_call_is_written_down_with_its_time_and_code(on: Ground) -> None:
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


def test_a_line_that_a_killed_driver_left_half_spoils_no_other(on: Ground) -> None:
    on.calls.write_text('{"method": "Contro')
    with driver(on):
        pass
    torn, *whole = on.calls.read_text().splitlines()
    assert torn == '{"method": "Contro'
    assert whole[0].startswith('{"method": "Started"')


def test_a_kubelet_can_register_it(on: Ground) -> None:
    with driver(on), grpc.insecure_channel(on.node(NODE)) as channel:
        ask = channel.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            registration.InfoRequest.SerializeToString,
            registration.PluginInfo.FromString,
        )
        told = ask(registration.InfoRequest(), timeout=LIMIT_S)
    assert (told.type, told.name, told.endpoint) == ("CSIPlugin", NAME, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint=tcp://1", "--hypervisor=table:t"], "is not an endpoint"),
        (["--endpoint=unix:///" + 200 * "x", "--hypervisor=table:t"], "longer than 107 bytes"),
        (["--endpoint=unix:///x", "--hypervisor=cloud:x"], "no hypervisor 'cloud:x'"),
        (["--endpoint=unix:///x", "--hypervisor=libvirt:x"], "needs --pool and --shell"),
        (["--endpoint=unix:///nowhere/x", "--hypervisor=table:t"], "/nowhere/x"),
    ],
)
def test_what_it_cannot_do_it_refuses_in_a_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(python_path())}
    argv = [sys.executable, "-m", "infra.csi", *arguments]
    done = proc.run(argv, timeout_s=LIMIT_S, cwd=tmp_path, env=env, check=False)
    assert done.status == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("csi driver: ")
    assert said in last


def test_by_hand_a_volume_is_made_refused_and_deleted(on: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--endpoint", on.controller)
    with driver(on):
        assert client.main([*asked, "create", "data"]) == 0
        volume = capsys.readouterr().out.strip()
        assert volume == volume_id("data")
        assert client.main([*asked, "create", "data", "--mib", "128"]) == 1
        assert capsys.readouterr().err.startswith("csi driver: create data: ")
        assert client.main([*asked, "delete", volume]) == 0
    codes = [(line["method"], line["code"]) for line in on.lines() if line["method"].endswith("Volume")]
    assert codes == [("CreateVolume", "OK"), ("CreateVolume", "ALREADY_EXISTS"), ("DeleteVolume", "OK")]


def test_a_second_driver_of_a_table_is_refused(on: Ground) -> None:
    with driver(on):
        env = {**os.environ, "PYTHONPATH": str(python_path())}
        done = proc.run(on.command(), timeout_s=LIMIT_S, cwd=on.folder, env=env, check=False)
        assert done.status == 2
        assert "another driver uses" in done.stderr


def test_past_the_driver_disks_are_made_plugged_in_told_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume, table = volume_id("data"), Table(tmp_path / "table", ["node-1", "node-2"])
    asked = [f"--hypervisor=table:{tmp_path / 'table'}"]
    for _twice in range(2):
        assert disks.main([*asked, "create", str(1 << 24), volume]) == 0
    assert disks.main([*asked, "attach", volume, "node-1"]) == 0
    assert disks.main([*asked, "holders", volume]) == 0
    assert capsys.readouterr().out == "node-1\n"
    assert disks.main([*asked, "forget"]) == 0
    assert table.all() == []
    assert disks.main(["--hypervisor=cloud:x", "forget"]) == 2
    assert capsys.readouterr().err.startswith("disks: no hypervisor 'cloud:x'")


# Killed ------------------------------------------------------------------------------------------


class Life:
    """A volume's life in calls, and what there is to be seen after each."""

    def __init__(self, on: Ground) -> None:
        self.on = on
        staging, target = on.folder / "staging", on.folder / "target"
        self._staging, self._target = staging, target
        paths: dict[str, Any] = {"volume_id": VOLUME, "staging_target_path": str(staging)}
        self.steps: list[tuple[str, Message, Mapping[str, Any]]] = [
            (
                "CreateVolume",
                csi.CreateVolumeRequest(
                    name="one",
                    volume_capabilities=[WRITER],
                    capacity_range=csi.CapacityRange(required_bytes=64 * MIB),
                ),
                {"there": True},
            ),
            (
                "ControllerPublishVolume",
                csi.ControllerPublishVolumeRequest(volume_id=VOLUME, node_id=NODE, volume_capability=WRITER),
                {"holders": [NODE]},
            ),
            (
                "NodeStageVolume",
                csi.NodeStageVolumeRequest(**paths, volume_capability=WRITER),
                {"staged": True},
            ),
            (
                "NodePublishVolume",
                csi.NodePublishVolumeRequest(**paths, target_path=str(target), volume_capability=WRITER),
                {"published": True},
            ),
            (
                "NodeUnpublishVolume",
                csi.NodeUnpublishVolumeRequest(volume_id=VOLUME, target_path=str(target)),
                {"published": False},
            ),
            ("NodeUnstageVolume", csi.NodeUnstageVolumeRequest(**paths), {"staged": False}),
            (
                "ControllerUnpublishVolume",
                csi.ControllerUnpublishVolumeRequest(volume_id=VOLUME, node_id=NODE),
                {"holders": []},
            ),
            ("DeleteVolume", csi.DeleteVolumeRequest(volume_id=VOLUME), {"there": False}),
        ]

    def seen(self) -> dict[str, Any]:
        """What there is now."""
        return {
            "there": self.on.table.find(VOLUME) is not None,
            "holders": self.on.table.holders(VOLUME),
            "staged": any(self._staging.iterdir()) if self._staging.is_dir() else False,
            "published": any(self._target.iterdir()) if self._target.is_dir() else False,
        }

    def asker(self, method: str) -> Driver:
        """Connected to the endpoint that answers that method; it gives up when the driver is gone."""
        asker = Driver(self.on.node(NODE) if _is_nodes(method) else self.on.controller, waits=False)
        asker.call("Identity", "Probe", csi.ProbeRequest())
        return asker


def call(asker: Driver, method: str, request: Message) -> None:
    """One call of a life. Raises grpc.RpcError."""
    asker.call("Node" if _is_nodes(method) else "Controller", method, request)


def _is_nodes(method: str) -> bool:
    return method.startswith("Node")


Kill = Callable[[Life, proc.Process, str, Message, Mapping[str, Any]], None]
"""Kills a driver in a call, after which there is to be seen what is told last."""


def stands_still(pid: int) -> bool:
    """Whether all threads of a process are stopped (proc_pid_stat(5))."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}


@contextmanager
def stopped(_on: Ground) -> Iterator[Kill]:
    """Before it: the driver sees nothing of the call."""

    def stop(
        life: Life, process: proc.Process, method: str, request: Message, _after: Mapping[str, Any]
    ) -> None:
        before = life.seen()
        with life.asker(method) as asker, ThreadPoolExecutor() as pool:
            process.send_signal(signal.SIGSTOP)
            # Each thread stops when it is its turn to run: until then it may do a call.
            assert eventually(lambda: stands_still(process.pid), LIMIT_S)
            asked = pool.submit(call, asker, method, request)
            kill(process)
            with pytest.raises(grpc.RpcError):
                asked.result(LIMIT_S)
        assert life.seen() == before

    yield stop


@contextmanager
def unanswered(on: Ground) -> Iterator[Kill]:
    """After it: the driver does the call and is stuck before the answer, as it cannot write the call down."""
    os.mkfifo(on.calls)
    pipe = os.open(on.calls, os.O_RDWR | os.O_NONBLOCK)

    def fill(
        life: Life, process: proc.Process, method: str, request: Message, after: Mapping[str, Any]
    ) -> None:
        with life.asker(method) as asker, ThreadPoolExecutor() as pool:
            fill_up(pipe)
            asked = pool.submit(call, asker, method, request)
            assert eventually(lambda: life.seen() == after, LIMIT_S)
            assert not asked.done()
            kill(process)
            with pytest.raises(grpc.RpcError):
                asked.result(LIMIT_S)
        drain(pipe)
        assert life.seen() == after

    yield fill
    os.close(pipe)


@pytest.mark.parametrize("way", [stopped, unanswered])
def test_the_call_in_which_a_driver_is_killed_is_done_when_repeated(
    on: Ground, way: Callable[[Ground], AbstractContextManager[Kill]]
) -> None:
    life = Life(on)
    state = life.seen()
    repeated: list[tuple[str, Message]] = []
    with way(on) as kill_in:
        for method, request, changes in life.steps:
            with driver(on) as process:
                again(life, repeated)
                assert life.seen() == state, method
                state = {**state, **changes}
                kill_in(life, process, method, request, state)
            repeated = [(method, request)]
        with driver(on):
            again(life, repeated)
    assert life.seen() == state


def again(life: Life, calls: list[tuple[str, Message]]) -> None:
    for method, request in calls:
        with life.asker(method) as asker:
            call(asker, method, request)


def fill_up(pipe: int) -> None:
    """Until not one byte more fits."""
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, size * b" ")


def drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        while True:
            os.read(pipe, 65536)


def test_what_was_answered_outlives_a_driver_that_is_killed_at_any_moment(on: Ground) -> None:
    chance = random.Random(15)  # noqa: S311  no secret
    names = [f"v{number}" for number in range(4)]
    volumes = [volume_id(name) for name in names]
    with driver(on), Driver(on.controller) as controller:
        assert [controller.create(name) for name in names] == volumes
    possible: list[list[list[str]]] = [[[]] for _ in volumes]
    for _round in range(8):
        with driver(on) as process, ThreadPoolExecutor(len(volumes)) as pool:
            moving = [
                pool.submit(move_about, on, volume, chance.choice(NODES), possible, at)
                for at, volume in enumerate(volumes)
            ]
            threading.Event().wait(chance.uniform(0.02, 0.3))
            kill(process)
            for each in moving:
                each.result(LIMIT_S)
        for volume, states in zip(volumes, possible, strict=True):
            assert on.table.holders(volume) in states
    with driver(on), Driver(on.controller) as controller:
        for volume in volumes:
            controller.detach(volume, "")
            controller.delete(volume)
    assert [volume for volume in volumes if on.table.find(volume)] == []


def move_about(on: Ground, volume: str, node: str, possible: list[list[list[str]]], at: int) -> None:
    """Attach and detach a volume until the driver is gone; `possible[at]` is what may then be the case."""
    with Driver(on.controller, waits=False) as controller:
        try:
            controller.detach(volume, "")
            while True:
                possible[at] = [[], [node]]
                controller.attach(volume, node)
                possible[at] = [[node], []]
                controller.detach(volume, node)
                possible[at] = [[]]
        except grpc.RpcError:
            return


def kill(process: proc.Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(END_LIMIT_S)
