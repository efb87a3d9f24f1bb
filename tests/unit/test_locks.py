"""Locks of files, and leases of labs: real lock files, held as by several processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.labs.client.handle import InUse, Leases
from nodeproof.locks import is_held, locked, try_lock
from tests.waiting import eventually

TIMEOUT_S = 30.0


def test_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    path, waits = tmp_path / "lock", list[str]()
    assert not is_held(path)
    with locked(path, lambda: waits.append("waits")):
        assert is_held(path)
    assert not is_held(path)
    assert waits == []


def test_shared_lock_excludes_only_the_exclusive_one(tmp_path: Path) -> None:
    files = [(tmp_path / "lock").open("w") for _ in range(3)]
    first, second, third = files
    assert try_lock(first, shared=True)
    assert try_lock(second, shared=True)
    assert not try_lock(third)
    first.close()
    second.close()
    assert try_lock(third)
    assert not try_lock((tmp_path / "lock").open("w"), shared=True)


def test_child_with_the_descriptor_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        assert try_lock(file)
        argv = [sys.executable, "-c", "import signal; signal.pause()"]
        child = proc.start(argv, log=tmp_path / "log", pass_fds=[file.fileno()])
    assert is_held(path)
    child.kill()
    child.wait()
    assert eventually(lambda: not is_held(path), TIMEOUT_S)


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
    for lease in (first, second):
        lease.take_zone(ZONES)
    assert not first.is_last()
    assert second.is_last()
    with pytest.raises(InUse):
        late.take_zone(ZONES)
    second.close()
    assert late.take_zone(ZONES) == ("zone-a", True)


def test_worker_without_a_lease_is_not_the_last(tmp_path: Path) -> None:
    assert not Leases(tmp_path).is_last()
    assert list(tmp_path.iterdir()) == []
