"""The running labs of a machine: the default one, healing, sweeping up, leases, and supervisors' replies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeproof import locks, proc
from nodeproof.labs.base import wire
from nodeproof.labs.base.wire import LabStatus, MemoryUsage, NodeInfo, ServiceStatus, SupervisorClient
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import InUse, Leases
from nodeproof.labs.client.supervised import SupervisedHost
from nodeproof.machines.machine import MachineError
from nodeproof.model.overrides import Overrides
from nodeproof.model.problem import Problem
from nodeproof.safety.ledger import Ledger
from tests.fakes import in_turn
from tests.waiting import eventually

# The running labs of a machine: the default one, healing others, and sweeping up after killed ones


def _start(monkeypatch: pytest.MonkeyPatch, labs: Mapping[str, bool]) -> None:
    """Run these labs; the value is whether a person started it."""
    monkeypatch.setattr(registry, "running", lambda: list(labs))
    monkeypatch.setattr(registry, "spec_of", lambda lab: SimpleNamespace(keep=labs[lab]))


@pytest.mark.parametrize(
    ("labs", "name", "meant"),
    [
        ({"p-1": False}, None, "p-1"),
        ({"p-1": True, "p-2": False, "p-3": False}, None, "p-1"),
        ({"p-1": True, "p-2": False}, "p-2", "p-2"),
    ],
)
def test_lab_started_by_a_person_is_the_default(
    monkeypatch: pytest.MonkeyPatch, labs: Mapping[str, bool], name: str | None, meant: str
) -> None:
    _start(monkeypatch, labs)
    assert registry.default_lab(name) == meant


@pytest.mark.parametrize(
    ("labs", "name", "message"),
    [
        ({}, None, "no lab is up"),
        ({"p-1": True, "p-2": True}, None, "2 labs are up .*; choose one of: p-1, p-2"),
        ({"p-1": False, "p-2": False}, None, "2 labs are up .*; choose one of: p-1, p-2"),
        ({"p-1": True}, "p-9", "no lab 'p-9' is up .*; choose one of: p-1"),
    ],
)
def test_ambiguous_lab_must_be_named(
    monkeypatch: pytest.MonkeyPatch, labs: Mapping[str, bool], name: str | None, message: str
) -> None:
    _start(monkeypatch, labs)
    with pytest.raises(Problem, match=message):
        registry.default_lab(name)


@pytest.mark.parametrize("written", ['{"lab": "p-000001", "from_another": 1, "nodes": []}', "{", "{}"])
def test_other_version_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str) -> None:
    (tmp_path / "p-000001").mkdir()
    (tmp_path / "p-000001" / "spec.json").write_text(written)
    monkeypatch.setattr(registry, "RUNTIME_ROOT", tmp_path)
    with pytest.raises(Problem, match="another version of nodeproof") as error:
        registry.attach("p-000001")
    assert error.value.line.endswith("or run `nodeproof down --lab-name p-000001`")


MINE, OTHER = "p-000001", "p-000002"
FAULT = {"fault": "partition", "id": "cut", "node": "node-1"}
NOT_FOUND = FileNotFoundError(2, "No such file or directory", "in-use")


def test_lab_that_ends_while_healed_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []

    def end(name: str) -> None:
        assert name == OTHER
        monkeypatch.setattr(registry, "running", lambda: [MINE])
        raise Problem("not proven healed", f"lab {name}", "run `nodeproof down`")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "heal", end)
    monkeypatch.setattr(registry, "running", lambda: [MINE, OTHER])
    for lab in (MINE, OTHER):
        Ledger(lab).write("injected", FAULT)
    registry.heal_abandoned(MINE, reported.append)
    assert registry.running() == [MINE]
    assert reported == []


def test_lab_folder_lost_during_healing_is_a_problem_with_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = SimpleNamespace(status=lambda: SimpleNamespace(phase="ready"))
    monkeypatch.setattr(registry, "client", lambda _name: ready)
    monkeypatch.setattr(registry, "attach", lambda _name: in_turn(NOT_FOUND)())
    with pytest.raises(Problem, match=f"No such file or directory.*lab {OTHER}"):
        registry.heal(OTHER)


SWEEPS = """
import os, pathlib, sys
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import InUse, Leases
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
registry.RUNTIME_ROOT = pathlib.Path(sys.argv[1])
print(registry.sweep(), [path.name for path in registry.unswept_folders()], registry.running())
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of labs readable by all, with leftovers of a start killed a minute ago."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    (root / ".p-abc123").mkdir(mode=0o700)
    (root / ".p-abc123" / "lock").touch(mode=0o600)
    os.utime(root / ".p-abc123", (time.time() - 60,) * 2)
    monkeypatch.setattr(registry, "RUNTIME_ROOT", root)
    yield root
    shutil.rmtree(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_unprivileged_user_continues_and_sees_what_root_must_remove(runtime: Path) -> None:
    """Even if the environment's state folder still belongs to root."""
    process = proc.run([sys.executable, "-B", "-c", SWEEPS, str(runtime)], timeout_s=60)
    assert process.stdout == "[] ['.p-abc123'] []\n"
    assert (runtime / ".p-abc123").exists()


@pytest.mark.parametrize(
    ("is_locked", "has_lock", "may_be_root", "is_held"),
    [
        (True, True, True, True),
        (False, True, True, False),
        (True, False, True, False),
        (False, False, True, False),
        (False, True, False, True),
    ],
)
def test_root_checks_whether_a_lock_is_held(
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_locked: bool,
    has_lock: bool,
    may_be_root: bool,
    is_held: bool,
) -> None:
    """For a folder that the caller cannot read; as if by sudo. Who cannot be root leaves it."""
    lock = runtime / ".p-abc123" / "lock"
    no_root = Problem("a lab needs root and there is no sudo", "process lab", "run as root")
    monkeypatch.setattr(registry, "become_root", in_turn([] if may_be_root else no_root))
    monkeypatch.setattr(locks, "is_held", lambda path: in_turn(PermissionError(path))())
    with lock.open() as file:
        if is_locked:
            fcntl.flock(file, fcntl.LOCK_EX)
        if not has_lock:
            lock.unlink()
        assert registry._is_held(lock.parent) == is_held


def test_folder_renamed_meanwhile_is_not_swept(runtime: Path) -> None:
    shutil.rmtree(runtime / ".p-abc123")
    (runtime / ".p-abc123").symlink_to("renamed")
    assert registry.unswept_folders() == []
    assert registry.sweep() == []


# Locks of files, and leases of labs: real lock files, held as by several processes


def test_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    path, waits = tmp_path / "lock", list[str]()
    assert not locks.is_held(path)
    with locks.locked(path, TIMEOUT_S, lambda: waits.append("waits")):
        assert locks.is_held(path)
    assert not locks.is_held(path)
    assert waits == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_wait_for_a_lock_ends_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        locks.locked(path, TIMEOUT_S),
        pytest.raises(Problem, match=rf"still holds this lock after 0\.1 s \({path}\)"),
        locks.locked(path, 0.1),
    ):
        pytest.fail("two processes hold the lock")
    with locks.locked(path, 0.1):
        assert locks.is_held(path)


ZONES = ("zone-a", "zone-b")


def test_each_worker_gets_its_own_zone_while_there_are_any(tmp_path: Path) -> None:
    first, second, third = (Leases(tmp_path) for _ in range(3))
    assert first.take_zone(ZONES) == ("zone-a", False)
    assert second.take_zone(ZONES) == ("zone-b", False)
    with pytest.raises(InUse, match="every zone is in use"):
        third.take_zone(ZONES)
    first.close()
    assert third.take_zone(ZONES) == ("zone-a", True)


def test_zone_lease_and_lease_of_the_whole_lab_exclude_each_other(tmp_path: Path) -> None:
    whole, part = Leases(tmp_path), Leases(tmp_path)
    part.take_zone(ZONES)
    with pytest.raises(InUse, match="others are using its zones"):
        whole.take_lab()
    part.close()
    whole.take_lab()
    with pytest.raises(InUse, match=f"process {os.getpid()} is using it"):
        part.take_zone(ZONES)
    whole.close()
    part.take_zone(ZONES)


def test_disabled_zone_is_never_leased_again(tmp_path: Path) -> None:
    first, second, third = (Leases(tmp_path) for _ in range(3))
    first.take_zone(ZONES)
    first.disable_zone()
    first.close()
    assert second.take_zone(ZONES) == ("zone-b", False)
    with pytest.raises(InUse, match="every zone is in use"):
        third.take_zone(ZONES)


def test_one_of_several_returning_workers_is_the_last(tmp_path: Path) -> None:
    first, second, late = (Leases(tmp_path) for _ in range(3))
    assert not first.is_last(), "it has no lease"
    assert list(tmp_path.iterdir()) == []
    for lease in (first, second):
        lease.take_zone(ZONES)
    assert not first.is_last()
    assert second.is_last()
    with pytest.raises(InUse):
        late.take_zone(ZONES)
    second.close()
    assert late.take_zone(ZONES) == ("zone-a", True)


# Replies of a lab's supervisor over its socket


TIMEOUT_S = 5.0
NO_API: Any = None
REPLY = {"error": "node-1 hangs at boot", "detail": "Kernel panic\nCPU: 0"}


ON = NodeInfo("node-1", 0, "zone-a", True, "10.78.1.1", "10.77.1.1", "0" * 32, pid=7)
OVERRIDES = Overrides(
    gates={"A": True}, known_gates={"kubelet": ["A"]}, node_versions=("v1.36.3",), upgrade_to="v1.37.2"
)
STATUS = LabStatus(
    lab="p-000000",
    kind="process",
    features=["power"],
    phase="ready",
    failure="",
    profile="fast",
    kubernetes_version="v1.36.3",
    nodes=[ON, replace(ON, name="node-2", is_on=False, pid=None)],
    components={"etcd": 5},
    services={"etcd": ServiceStatus(5, ["etcd"]), "kube-scheduler": ServiceStatus(None, [])},
    settings="/run/nodeproof/p-000000/mem/settings",
    died={"kubelet-node-2": "exited 1"},
    memory={"memory": MemoryUsage(2, 1, False, None)},
    armed={"cut": 44.9},
    not_disarmed=[FAULT],
    control_plane_address="10.77.0.1",
    witness_port=40000,
    received=["token"],
    holders=1,
    overrides=OVERRIDES,
)
WIRE = STATUS.to_json()


@pytest.mark.parametrize("status", [STATUS, replace(STATUS, kind="libvirt", kvm=False)])
def test_status_keeps_its_json(status: LabStatus) -> None:
    sent = json.loads(json.dumps(status.to_json()))
    parsed = LabStatus.from_json(sent)
    assert [(node.is_on, node.pid) for node in parsed.nodes] == [(True, 7), (False, None)]
    assert (parsed.kvm, parsed.overrides) == (status.kvm, OVERRIDES)
    assert json.loads(json.dumps(parsed.to_json())) == sent


@pytest.mark.parametrize("status", [{}, {**WIRE, "new": 1}, {**WIRE, "nodes": [{"name": "node-1"}]}])
def test_status_of_another_version_fails(status: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    client = SupervisorClient(Path("p-000000/s"))
    monkeypatch.setattr(client, "_checked", lambda *_: status)
    with pytest.raises(Problem, match=r"another version .*`nodeproof down --lab-name p-000000"):
        client.status()


SUPERVISES = """
import fcntl, os, pathlib, shutil, socket, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX)
listener.bind(str(folder / "new"))
listener.listen()
(folder / "new").rename(folder / "s")
while True:
    client, _ = listener.accept()
    if b"down" in client.recv(1000):
        break
client.sendall(b'{"ok": true}\\n')
if sys.argv[2] == "removes":
    shutil.rmtree(folder)
time.sleep(0.5)
"""
"""A supervisor that ends only after it has removed its lab's folder, or that leaves it."""


@pytest.mark.parametrize("removes", [True, False])
def test_lab_is_down_once_its_supervisor_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removes: bool
) -> None:
    monkeypatch.setattr(registry, "RUNTIME_ROOT", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    argv = [sys.executable, "-c", SUPERVISES, str(tmp_path / MINE), "removes" * removes]
    child = proc.start(argv, log=tmp_path / "log")
    try:
        assert eventually((tmp_path / MINE / "s").is_socket, TIMEOUT_S)
        with contextlib.nullcontext() if removes else pytest.raises(Problem, match="left its folder"):
            registry.down(MINE)
        assert child.poll() == 0
    finally:
        child.kill()
        child.wait(timeout=TIMEOUT_S)


def test_hanging_machine_is_one_line_and_its_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of a socket is short (unix(7)).
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind("lab.sock")
        listener.listen()
        listener.settimeout(TIMEOUT_S)
        answered = pool.submit(_answer, listener)
        with pytest.raises(MachineError) as raised:
            SupervisedHost(SupervisorClient(Path("lab.sock")), NO_API).power("node-1", "on")
        assert answered.result(TIMEOUT_S) == {"verb": "power", "node": "node-1", "action": "on"}

    assert str(raised.value).splitlines() == [str(raised.value)]
    assert str(raised.value).startswith("node-1 hangs at boot (lab ")
    assert isinstance(raised.value.__cause__, Problem)
    assert raised.value.__cause__.detail == "Kernel panic\nCPU: 0"


def _answer(listener: socket.socket) -> object:
    client, _ = listener.accept()
    with client:
        request, _ = wire.receive(client)
        wire.send(client, REPLY)
    return request
