"""Logs that must not fill the memory they are in, nor lead root elsewhere."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from nodeproof import proc
from nodeproof.labs.ground.logs import begin_anew, give, keep_short
from nodeproof.labs.ground.memory import Room, logs_in
from nodeproof.labs.ground.pki import write_private
from nodeproof.labs.ground.processes import EventLog, Processes
from tests.waiting import eventually

LIMIT_S = 10.0


def test_who_appends_to_a_log_that_is_too_long_goes_on_at_its_beginning(tmp_path: Path) -> None:
    log, earlier = tmp_path / "etcd.log", tmp_path / "etcd.log.1"
    looks: list[int] = []
    keep_short(
        tmp_path,
        os.getuid(),
        os.getgid(),
        lambda: looks.append(log.stat().st_size if log.exists() else 0),
        limit_bytes=100,
    )
    with log.open("ab", buffering=0) as out:
        for text in (b"a" * 101, b"b" * 102):
            out.write(text)
            assert eventually(lambda: log.stat().st_size == 0, LIMIT_S)
            assert earlier.read_bytes() == text
        out.write(b"after")
    assert log.read_bytes() == b"after"
    assert {101, 102} <= set(looks)


def test_a_lab_remembers_when_its_memory_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {tmp_path: 100, logs_in(tmp_path): 100}
    monkeypatch.setattr(
        "os.statvfs", lambda path: SimpleNamespace(f_blocks=240, f_bavail=free[path], f_frsize=1 << 20)
    )
    room = Room(tmp_path)
    assert room.told()["memory for logs"] == {
        "size_bytes": 240 << 20,
        "free_bytes": 100 << 20,
        "is_full": False,
        "full_t": None,
    }
    free[logs_in(tmp_path)], before_t = 10, time.monotonic()
    room.look()
    free[logs_in(tmp_path)], after_t = 100, time.monotonic()
    told = room.told()
    assert told["memory"]["full_t"] is None
    assert before_t - 0.001 < told["memory for logs"]["full_t"] < after_t + 0.001


def test_a_log_that_nothing_has_room_for_begins_anew_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("too long")

    def full(_source: IO[bytes], target: IO[bytes]) -> None:
        target.write(b"to")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        begin_anew(log, 1)
    assert log.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [log]


def test_root_follows_no_link_in_the_folder_of_somebody_else(tmp_path: Path) -> None:
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
        begin_anew(logs / "etcd.log", 0)
    (tmp_path / "key").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        write_private(tmp_path / "key", b"secret")
    assert not victim.exists()


def test_a_component_gets_harmless_parts_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("CI_JOB_NAME", "nightly")
    processes = Processes(tmp_path, EventLog(tmp_path / "events.jsonl"))
    processes.start("kubelet-node-1", ["env"], env={"GOMAXPROCS": "1"}).wait()
    told = dict(line.split("=", 1) for line in (tmp_path / "kubelet-node-1.log").read_text().splitlines())
    assert told["PATH"] == os.environ["PATH"]
    assert (told["GOMAXPROCS"], told["TZ"]) == ("1", "UTC")
    assert not told.keys() & {"AWS_SECRET_ACCESS_KEY", "CI_JOB_NAME"}
    eventually(lambda: not processes.pids(), LIMIT_S)


def test_logs_that_root_makes_for_itself_are_their_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A console is QEMU's alone, an audit log the API server's; whoever started the lab reads both."""
    given: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, uid, gid, **_: given.append((path.name, uid, gid)))
    (tmp_path / "audit.jsonl").touch(mode=0o600)
    give(tmp_path, 1000, 1001)
    assert given == [("audit.jsonl", 1000, 1001)]
