"""A guest's start from its snapshot, and without one, by a hypervisor that only takes notes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nodeproof.labs.ground.processes import EventLog
from nodeproof.labs.kinds.libvirt.domain_xml import ROOT_TARGET, SEED_TARGET, Disk, Domain
from nodeproof.labs.kinds.libvirt.restoring import SETTLED, Restorer
from nodeproof.labs.kinds.libvirt.snapshots import Busy, Shelf
from nodeproof.model.problem import OutsideError, Problem

LIMIT_S = 0.5


class Notes:
    """Domains whose guests settle at once, unless `says` is something else."""

    def __init__(self, console: Path) -> None:
        self.ran: list[str] = []
        self.says = SETTLED
        self.broken: bytes | None = None
        self._console = console

    def create(self, xml: str) -> None:
        assert xml
        self.ran.append("create")
        with self._console.open("a") as console:
            console.write(f"{self.says}\n")

    def save(self, name: str, memory: Path) -> None:
        self.ran.append("save")
        memory.write_text(name and "good")

    def restore(self, memory: Path, xml: str) -> None:
        assert xml
        self.ran.append("restore")
        if memory.read_bytes() == self.broken:
            raise OutsideError("libvirt: restore: no memory in there")

    def attach(self, name: str, device_xml: str) -> None:
        assert name
        assert device_xml
        self.ran.append("attach")


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    """A guest with both its disks."""
    root = Disk(tmp_path / "node-1.qcow2", "qcow2", ROOT_TARGET)
    seed = Disk(tmp_path / "node-1-seed.img", "raw", SEED_TARGET, read_only=True)
    nowhere = Path("/nowhere")
    disks, console = [root, seed], tmp_path / "console"
    return Domain("node-1", "u", "p-1", "1", 512, 1, False, nowhere, nowhere, [], disks, [], console)


@pytest.fixture
def notes(domain: Domain) -> Notes:
    """The hypervisor."""
    return Notes(domain.console)


@pytest.fixture
def restorer(tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> Restorer:
    """Of an empty shelf, with a qemu-img that makes empty files."""
    tool = tmp_path / "bin" / "qemu-img"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nfor last in "$@"; do :; done\n: >"$last"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (tmp_path / "shelf").mkdir()
    shelf = Shelf(tmp_path / "shelf", os.getuid(), os.getgid())
    return Restorer(notes, "QEMU 1", shelf, Path("/image"), EventLog(tmp_path / "events"), lambda _name: None)


def _steps(tmp_path: Path) -> list[str]:
    return [json.loads(line)["step"] for line in (tmp_path / "events").read_text().splitlines()]


def _memory(tmp_path: Path, key: str | None) -> Path:
    assert key is not None
    return tmp_path / "shelf" / key / "memory"


def test_a_guest_without_a_snapshot_boots_and_goes_on_from_the_one_that_is_taken(
    restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path
) -> None:
    key = restorer.start(domain, LIMIT_S)
    assert notes.ran == ["create", "save", "restore", "attach"]
    assert _steps(tmp_path) == ["snapshot-taken", "restored"]
    assert _memory(tmp_path, key).read_text() == "good"


def test_the_next_one_only_goes_on(restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path) -> None:
    key = restorer.start(domain, LIMIT_S)
    notes.ran.clear()
    assert restorer.start(replace(domain, lab="p-2"), LIMIT_S) == key
    assert notes.ran == ["restore", "attach"]


def test_a_snapshot_that_does_not_restore_is_replaced(
    restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path
) -> None:
    key = restorer.start(domain, LIMIT_S)
    memory, notes.broken = _memory(tmp_path, key), b"evil"
    stat = memory.stat()
    memory.write_bytes(b"evil")
    os.utime(memory, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    notes.ran.clear()

    restorer.start(domain, LIMIT_S)
    assert notes.ran == ["restore", "create", "save", "restore", "attach"]
    assert _steps(tmp_path)[2:] == ["snapshot-refused", "snapshot-taken", "restored"]
    assert memory.read_text() == "good"


def test_a_guest_that_still_boots_gets_its_seed_and_no_snapshot(
    restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path
) -> None:
    notes.says = "still booting"
    assert restorer.start(domain, LIMIT_S) is None
    assert notes.ran == ["create", "attach"]
    assert _steps(tmp_path) == ["no-snapshot"]
    assert not list((tmp_path / "shelf").glob("*/memory"))


def test_what_an_earlier_boot_said_settles_nothing(
    restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path
) -> None:
    domain.console.write_text(f"{SETTLED}\n")
    notes.says = "still booting"
    restorer.start(domain, LIMIT_S)
    assert "save" not in notes.ran


def test_a_guest_that_panics_while_it_boots_is_no_snapshot(
    domain: Domain, notes: Notes, restorer: Restorer, tmp_path: Path
) -> None:
    def panicked(name: str) -> None:
        raise Problem(f"{name} panicked while it booted", "lab", "its console follows")

    shelf = Shelf(tmp_path / "shelf", os.getuid(), os.getgid())
    with pytest.raises(Problem, match="node-1 panicked"):
        Restorer(notes, "QEMU 1", shelf, Path("/image"), EventLog(tmp_path / "events"), panicked).start(
            domain, LIMIT_S
        )
    assert "save" not in notes.ran


def test_a_guest_does_not_wait_for_another_lab_that_takes_its_snapshot(
    restorer: Restorer, domain: Domain, notes: Notes, tmp_path: Path
) -> None:
    key = restorer.start(domain, LIMIT_S)
    notes.ran.clear()
    other = Shelf(tmp_path / "shelf", os.getuid(), os.getgid())
    with other.writing(str(key)), pytest.raises(Busy):
        restorer.start(domain, LIMIT_S)
    assert notes.ran == []


@pytest.mark.parametrize("proven", [True, False])
def test_only_a_snapshot_from_which_no_guest_ever_came_up_is_given_up(
    restorer: Restorer, domain: Domain, tmp_path: Path, proven: bool
) -> None:
    memory = _memory(tmp_path, restorer.start(domain, LIMIT_S))
    if proven:
        restorer.came_up(memory.parent.name)
    restorer.blame("node-1", memory.parent.name, "node-1 hangs at boot")
    assert memory.exists() is proven
    assert _steps(tmp_path)[-1] == "no-snapshot"
