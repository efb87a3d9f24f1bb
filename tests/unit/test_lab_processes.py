"""A lab's processes: their logs, environments, ends, priorities and waits for a processor."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, cast

import pytest

from nodeproof import proc
from nodeproof.disk import write_private
from nodeproof.labs.base import autogroup
from nodeproof.labs.base.control_plane import Kubectl, Services
from nodeproof.labs.base.mounts import Memory, logs_in
from nodeproof.labs.base.nodes import Nodes, RunningNode
from nodeproof.labs.base.planes import Planes
from nodeproof.labs.base.processes import EventLog, Processes, kill_and_wait, limit_size, truncate
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.base.stalls import RunQueueWaits, record_stalls, sequential_wait_s
from nodeproof.labs.base.wire import MemoryUsage
from nodeproof.labs.kinds.process import node
from nodeproof.labs.kinds.process.node import NamespaceShell
from nodeproof.machines.machine import MachineError
from tests.fakes import executable
from tests.waiting import eventually, pause

TIMEOUT_S = 10.0
OWN = cast("Nodes", SimpleNamespace(get=lambda _: RunningNode(NodeSpec("node-1", 0, "", ""), os.getpid())))
"""A node whose first process is this one."""


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Return the components of a lab without any."""
    events, kubectl = EventLog(tmp_path / "events.jsonl"), Kubectl("/bin/kubectl", tmp_path / "kubeconfig")
    processes = Processes(tmp_path, events)
    return Services(
        processes, Planes(processes, ()), tmp_path / "settings", events, kubectl, machine=pytest.fail
    )


def test_append_to_truncated_log_starts_at_its_beginning(tmp_path: Path) -> None:
    """A console belongs to QEMU, an audit log to the API server; the lab's owner gets both."""
    log, earlier = tmp_path / "etcd.log", tmp_path / "etcd.log.1"
    looks: list[int] = []
    given: set[Path] = set()
    limit_size(tmp_path, given.update, lambda: looks.append(log.stat().st_size), limit_bytes=100)
    with log.open("ab", buffering=0) as out:
        for text in (b"a" * 101, b"b" * 102):
            out.write(text)
            assert eventually(lambda: log.stat().st_size == 0, TIMEOUT_S)
            assert earlier.read_bytes() == text
        out.write(b"after")
    assert log.read_bytes() == b"after"
    assert {101, 102} <= set(looks)
    assert given == {log, earlier}


def test_lab_remembers_when_its_memory_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {tmp_path: 100, logs_in(tmp_path): 100}
    monkeypatch.setattr(
        "os.statvfs", lambda path: SimpleNamespace(f_blocks=240, f_bavail=free[path], f_frsize=1 << 20)
    )
    memory = Memory(tmp_path)
    assert memory.usage()["memory for logs"] == MemoryUsage(240 << 20, 100 << 20, False, None)
    free[logs_in(tmp_path)], before_t = 10, time.monotonic()
    memory.update()
    free[logs_in(tmp_path)], after_t = 100, time.monotonic()
    entries = memory.usage()
    assert entries["memory"].full_t is None
    assert before_t - 0.001 < (entries["memory for logs"].full_t or 0.0) < after_t + 0.001


def test_log_is_truncated_even_if_its_copy_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("too long")

    def full(_source: IO[bytes], target: IO[bytes]) -> None:
        target.write(b"to")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        truncate(log, 1)
    assert log.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [log]


def test_root_follows_no_link_in_a_foreign_folder(tmp_path: Path) -> None:
    victim, logs = tmp_path / "victim", tmp_path / "logs"
    logs.mkdir()
    events = EventLog(tmp_path / "events.jsonl")
    (logs / "etcd.log").symlink_to(victim)
    with pytest.raises(proc.CommandFailed):
        Processes(logs, events).start("etcd", ["true"])
    events.path.unlink()
    events.path.symlink_to(victim)
    events.write("machine", node="node-1", step="booted")
    with pytest.raises(OSError, match="symbolic links"):
        truncate(logs / "etcd.log", 0)
    (tmp_path / "key").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        write_private(tmp_path / "key", b"secret")
    assert not victim.exists()


def test_components_and_commands_get_only_harmless_variables(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY")
    monkeypatch.setattr(node, "_sees_its_files", lambda _pid: True)
    services.processes.start("kubelet-node-1", ["env"], env={"GOMAXPROCS": "1"}).wait()
    log = (tmp_path / "kubelet-node-1.log").read_text()
    shells = NamespaceShell(OWN, "node-1", threading.Lock()), services.shell("etcd")
    for output in (log, *(shell.run(["env"], timeout_s=TIMEOUT_S).stdout for shell in shells)):
        names = {line.partition("=")[0] for line in output.splitlines()}
        assert "PATH" in names
        assert "AWS_SECRET_ACCESS_KEY" not in names
    assert {"GOMAXPROCS=1", "TZ=UTC"} <= {*log.splitlines()}
    eventually(lambda: not services.processes.pids(), TIMEOUT_S)


def test_component_is_started_with_the_version_that_a_fault_wrote(services: Services, tmp_path: Path) -> None:
    executable(tmp_path / "newer", "echo Kubernetes v1.37.2")
    services.add_version("v1.37.2", {"kube-scheduler": str(tmp_path / "newer")})
    services.register("kube-scheduler", ["/older/kube-scheduler", "--v=1"])
    assert services.command("kube-scheduler") == ["/older/kube-scheduler", "--v=1"]
    (tmp_path / "settings/kube-scheduler/nodeproof-0123abcd.version").write_text("v1.37.2")
    newer, *flags = services.command("kube-scheduler")
    assert (Path(newer).name, Path(newer).resolve()) == ("kube-scheduler", tmp_path / "newer")
    assert flags == ["--v=1"]


def test_command_is_refused_on_a_node_that_sees_host_files() -> None:
    with pytest.raises(MachineError, match="node-1 is booting"):
        NamespaceShell(OWN, "node-1", threading.Lock()).run(["env"], timeout_s=TIMEOUT_S)


LISTEN = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
# Freeing memory delays its end beyond the signal.
held = bytearray(400 << 20)
threading.Event().wait()
"""


def test_port_of_a_killed_process_is_free_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        port = int(output.readline())
    kill_and_wait(process.pid)
    with socket.create_server(("127.0.0.1", port)):
        pass
    process.wait()
    kill_and_wait(process.pid)


BUSY = "while True: pass"
PASSED_S = 0.3


@pytest.fixture
def rivals() -> Iterator[list[int]]:
    """Start two processes that always want the same core."""
    processor = str(min(os.sched_getaffinity(0)))
    started = [subprocess.Popen(["taskset", "-c", processor, sys.executable, "-c", BUSY]) for _ in range(2)]
    yield [process.pid for process in started]
    for process in started:
        process.kill()
        process.wait()


def test_lab_records_how_long_a_virtual_machine_waited(rivals: list[int], tmp_path: Path) -> None:
    events, ended = EventLog(tmp_path / "events.jsonl"), threading.Event()
    processes = Processes(tmp_path, events)
    processes.set_external("node-node-1", rivals[0])
    record_stalls(events, processes, ended)
    pause(1)
    ended.set()
    entries = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert max(entry.get("waited_s", 0.0) for entry in entries) > 0.05
    processes.set_external("node-node-1", None)
    assert processes.external_pids() == {}


def test_process_without_statistics_reports_no_wait(tmp_path: Path) -> None:
    """It has ended, or the kernel has none."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "7/task/7").mkdir(parents=True)
    for waits in (RunQueueWaits(ended.pid), RunQueueWaits(7, tmp_path)):
        assert [waits.since_last_look_s(), waits.since_last_look_s()] == [0, 0]


@pytest.mark.parametrize(
    ("waited", "expected"),
    [
        ({}, 0.0),
        ({"etcd": 0.03, "kube-apiserver": 0.04, "kubelet-node-1": 0.02, "kubelet-node-2": 0.05}, 0.12),
        ({"etcd": 0.03, "node-node-1": 0.1, "node-node-2": 0.2}, 0.23),
        ({"etcd": 0.19, "kube-apiserver": 0.19, "kube-scheduler": 0.19, "kubelet-node-1": 0.19}, PASSED_S),
        ({"etcd": 0.01, "kube-controller-manager": 0.9}, 0.9),
    ],
)
def test_sequential_wait_is_at_most_the_elapsed_time(waited: dict[str, float], expected: float) -> None:
    assert sequential_wait_s(waited, PASSED_S) == pytest.approx(expected)


SESSION_TIMEOUT_S = 120.0
SHOWN = """
import os
from nodeproof.labs.client.starting import raise_priority
from nodeproof.labs.base.autogroup import nice_of

raise_priority()
print(os.getsid(0) == os.getpid(), nice_of(), nice_of(os.getppid()))
"""

needs_autogroups = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/self/autogroup").exists(),
    reason="needs root and a kernel with autogroups",
)


@needs_autogroups
def test_worker_has_its_own_session_with_priority() -> None:
    nice = autogroup.nice_of()
    shown = proc.run([sys.executable, "-c", SHOWN], timeout_s=SESSION_TIMEOUT_S).stdout.split()
    assert shown == ["True", str(autogroup.HARNESS), str(nice)]


LOWERED = """
from nodeproof.labs.base.autogroup import lowered, nice_of

with lowered(3):
    inside = nice_of()
print(inside, nice_of())
"""


@needs_autogroups
def test_session_has_its_priority_back_after_it_was_lowered() -> None:
    command = ["setsid", "--wait", sys.executable, "-c", LOWERED]
    assert proc.run(command, timeout_s=SESSION_TIMEOUT_S).stdout.split() == ["3", "0"]
