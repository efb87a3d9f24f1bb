"""The CSI driver over libvirt, against a libvirt that is made up: what it is told, and what its answers mean.

Whether libvirt and QEMU do what is made up here, only guests can say.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as Tree

import grpc
import pytest

from infra.csi import guests
from infra.csi.controller import MIB
from infra.csi.guests import Libvirt
from infra.csi.hypervisor import Refused, Volume, volume_id
from tests.csi_driver import refused
from tests.waiting import eventually

Code = grpc.StatusCode
VOLUME = volume_id("one")
ROOT = '<disk type="file"><source file="/root.qcow2"/><target dev="sda" bus="scsi"/></disk>'
FILE = f"/pool/{VOLUME}.qcow2"


def parsed(xml: str) -> Tree.Element:
    return Tree.fromstring(xml)  # noqa: S314  our own


class Library:
    """The names in the libvirt module that the driver uses, with libvirt's numbers."""

    VIR_ERR_NO_DOMAIN, VIR_ERR_NO_STORAGE_VOL, VIR_ERR_OTHER = 42, 50, 1
    VIR_DOMAIN_AFFECT_LIVE, VIR_CONNECT_LIST_DOMAINS_ACTIVE = 1, 1

    class libvirtError(Exception):
        def __init__(self, code: int, message: str) -> None:
            super().__init__(message)
            self.get_error_code = lambda: code
            self.get_error_message = lambda: message


def _going() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Guest:
    """A virtual machine: the XML of its disks.

    A `stubborn` one keeps what is pulled out of it, and one that does not go on answers nobody.
    """

    name_: str
    running: bool = True
    stubborn: bool = False
    goes_on: threading.Event = field(default_factory=_going)
    disks: list[str] = field(default_factory=lambda: [ROOT])

    def name(self) -> str:
        return self.name_

    def isActive(self) -> int:
        return int(self.running)

    def XMLDesc(self, _flags: int) -> str:
        return f"<domain><devices>{''.join(self.disks)}</devices></domain>"

    def attachDeviceFlags(self, xml: str, flags: int) -> None:
        assert flags == Library.VIR_DOMAIN_AFFECT_LIVE
        self.goes_on.wait()
        self.disks.append(xml)

    def detachDeviceFlags(self, xml: str, flags: int) -> None:
        assert flags == Library.VIR_DOMAIN_AFFECT_LIVE
        self.goes_on.wait()
        file = parsed(xml).find("source")
        assert file is not None
        if not self.stubborn:
            self.disks = [disk for disk in self.disks if str(file.get("file")) not in disk]


@dataclass
class Connection:
    """A libvirtd with a pool; `volumes` are their sizes by file name."""

    guests: dict[str, Guest]
    volumes: dict[str, int] = field(default_factory=dict)
    alive: bool = True

    def isAlive(self) -> int:
        return int(self.alive)

    def lookupByName(self, name: str) -> Guest:
        if name not in self.guests:
            raise Library.libvirtError(Library.VIR_ERR_NO_DOMAIN, "no domain")
        return self.guests[name]

    def listAllDomains(self, _flags: int) -> list[Guest]:
        return [guest for guest in self.guests.values() if guest.running]

    def listVolumes(self) -> list[str]:
        return [*self.volumes, "node-1.qcow2", "node-1-seed.img"]

    def storagePoolLookupByName(self, name: str) -> Any:
        if name != "pool":
            raise Library.libvirtError(Library.VIR_ERR_OTHER, f"no pool {name}")
        return self

    def createXML(self, xml: str, _flags: int) -> None:
        element = parsed(xml)
        self.volumes[str(element.findtext("name"))] = int(str(element.findtext("capacity")))

    def storageVolLookupByName(self, name: str) -> Any:
        if name not in self.volumes:
            raise Library.libvirtError(Library.VIR_ERR_NO_STORAGE_VOL, "no volume")
        return File(self, name)


@dataclass
class File:
    """A volume of the pool."""

    of: Connection
    name: str

    def path(self) -> str:
        return f"/pool/{self.name}"

    def info(self) -> list[int]:
        return [0, self.of.volumes[self.name], 0]

    def delete(self, _flags: int) -> None:
        del self.of.volumes[self.name]


@pytest.fixture
def connection() -> Connection:
    domains = {name: Guest(name) for name in ("node-1", "node-2")}
    return Connection({**domains, "off": Guest("off", running=False)})


@pytest.fixture
def libvirt(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Libvirt:
    monkeypatch.setattr(guests, "GONE_TIMEOUT_S", 0.3)
    backend = Libvirt(lambda: connection, "pool", Library)
    backend.create(Volume(VOLUME, 64 * MIB))
    return backend


def test_volume_is_a_file_of_the_pool(libvirt: Libvirt, connection: Connection) -> None:
    assert libvirt.find(VOLUME) == Volume(VOLUME, 64 * MIB)
    assert connection.volumes == {f"{VOLUME}.qcow2": 64 * MIB}
    libvirt.delete(VOLUME)
    libvirt.delete(VOLUME)
    assert libvirt.find(VOLUME) is None
    assert libvirt.holders(VOLUME) == []


def test_disk_is_attached_under_the_next_name_with_its_serial(
    libvirt: Libvirt, connection: Connection
) -> None:
    libvirt.attach(VOLUME, "node-1")
    disk = parsed(connection.guests["node-1"].disks[-1])
    assert disk.findtext("serial") == VOLUME
    assert [
        (element.tag, element.get("file") or element.get("dev"))
        for element in disk
        if element.tag != "serial"
    ] == [("driver", None), ("source", FILE), ("target", "sdb")]
    assert disk.find("shareable") is None, "QEMU's lock of the file is the second guard"
    assert libvirt.holders(VOLUME) == ["node-1"]
    assert (libvirt.volume_count("node-1"), libvirt.volume_count("node-2")) == (1, 0)


def test_only_the_requested_disk_is_detached(libvirt: Libvirt, connection: Connection) -> None:
    libvirt.attach(VOLUME, "node-1")
    for _twice in range(2):
        libvirt.detach(VOLUME, "node-1")
    libvirt.detach(VOLUME, "off")
    assert connection.guests["node-1"].disks == [ROOT]
    assert libvirt.holders(VOLUME) == []


def test_ended_guest_holds_no_volume(libvirt: Libvirt, connection: Connection) -> None:
    libvirt.attach(VOLUME, "node-1")
    connection.guests["node-1"].running = False
    assert libvirt.holders(VOLUME) == []
    assert not libvirt.runs("node-1")


def test_guests_are_found_by_name(libvirt: Libvirt) -> None:
    assert [libvirt.has(name) for name in ("node-1", "off", "node-9")] == [True, True, False]
    assert [libvirt.runs(name) for name in ("node-1", "off", "node-9")] == [True, False, False]


def test_disk_that_stays_attached_is_reported(libvirt: Libvirt, connection: Connection) -> None:
    connection.guests["node-1"].stubborn = True
    libvirt.attach(VOLUME, "node-1")
    refused(lambda: libvirt.detach(VOLUME, "node-1"), Code.DEADLINE_EXCEEDED, VOLUME, "node-1", "0.3 s")
    assert libvirt.holders(VOLUME) == ["node-1"]


def test_frozen_guest_does_not_block_the_driver(libvirt: Libvirt, connection: Connection) -> None:
    libvirt.attach(VOLUME, "node-1")
    goes_on = connection.guests["node-1"].goes_on
    goes_on.clear()
    still = ("is still in node node-1", VOLUME, "0.3 s")
    refused(lambda: libvirt.detach(VOLUME, "node-1"), Code.DEADLINE_EXCEEDED, *still)
    refused(lambda: libvirt.detach(VOLUME, "node-1"), Code.DEADLINE_EXCEEDED, *still)
    refused(lambda: libvirt.attach(VOLUME, "node-2"), Code.DEADLINE_EXCEEDED, *still)
    goes_on.set()
    assert eventually(lambda: has(libvirt, []), 5.0)


def test_pending_attachment_is_not_reported_as_missing(libvirt: Libvirt, connection: Connection) -> None:
    goes_on = connection.guests["node-1"].goes_on
    goes_on.clear()
    late = ("is not in node node-1", VOLUME, "0.3 s")
    refused(lambda: libvirt.attach(VOLUME, "node-1"), Code.DEADLINE_EXCEEDED, *late)
    refused(lambda: libvirt.detach(VOLUME, "node-1"), Code.DEADLINE_EXCEEDED, *late)
    refused(lambda: libvirt.holders(VOLUME), Code.DEADLINE_EXCEEDED, *late)
    goes_on.set()
    assert eventually(lambda: has(libvirt, ["node-1"]), 5.0)
    libvirt.detach(VOLUME, "node-1")
    assert libvirt.holders(VOLUME) == []


def has(libvirt: Libvirt, nodes: list[str]) -> bool:
    """Return whether these guests hold the volume, and this is known."""
    try:
        return libvirt.holders(VOLUME) == nodes
    except Refused:
        return False


def test_volumes_are_distinguished_from_other_pool_files(libvirt: Libvirt) -> None:
    assert libvirt.all() == [VOLUME]
    assert libvirt.running() == ["node-1", "node-2"]


def test_restarted_libvirtd_is_queried_again(libvirt: Libvirt, connection: Connection) -> None:
    connects = iter([connection, anew := Connection(connection.guests, connection.volumes)])
    reconnecting = Libvirt(lambda: next(connects), "pool", Library)
    assert reconnecting.has("node-1")
    connection.alive, anew.guests = False, {}
    assert not reconnecting.has("node-1")


def test_libvirt_error_may_be_retried(connection: Connection) -> None:
    without_pool = Libvirt(lambda: connection, "no-such", Library)
    refused(lambda: without_pool.find(VOLUME), Code.UNAVAILABLE, VOLUME, "no pool no-such")
