"""The hypervisor libvirt: volumes are qcow2 files of a pool, plugged into guests that run.

All state is libvirt's. A disk is plugged in live and never written into a guest's definition, so that a guest
that boots again has no disk that nobody attached. QEMU's own lock of the file is the second guard against two
guests that have it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any
from xml.etree import ElementTree as Tree

import grpc
import tenacity

from infra.csi.hypervisor import Refused, Volume, is_id

Connection = Any
"""`libvirt.virConnect`; the binding has no types."""

GONE_LIMIT_S = 10.0
"""So long may a disk take to leave a guest, or to come to it: external-attacher waits for 15 s."""
_LOOK_EACH_S = 0.1
_SUFFIX = ".qcow2"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Libvirt:
    """The guests of one libvirtd, by their names, and the volumes in one pool of it.

    `library` is the module libvirt. `connect` is called again when a connection has ended: libvirtd may start
    anew at any time.
    """

    def __init__(self, connect: Callable[[], Connection], pool: str, library: Any) -> None:
        self._connect = connect
        self._pool_name = pool
        self._library = library
        self._connection: Connection = None
        self._under_way: dict[str, tuple[str, Future[object]]] = {}

    def create(self, volume: Volume) -> None:
        """A file of no size yet."""
        with self._told(f"volume {volume.id}"):
            self._pool().createXML(_volume_xml(volume), 0)

    def delete(self, volume: str) -> None:
        """The file goes."""
        with self._told(f"volume {volume}"):
            found = self._look_up(volume)
            if found is not None:
                found.delete(0)

    def find(self, volume: str) -> Volume | None:
        """Its size is the one that a guest sees."""
        with self._told(f"volume {volume}"):
            found = self._look_up(volume)
            return None if found is None else Volume(volume, int(found.info()[1]))

    def all(self) -> Sequence[str]:
        """By the files of the pool."""
        with self._told(f"pool {self._pool_name}"):
            names = [name.removesuffix(_SUFFIX) for name in self._pool().listVolumes()]
            return sorted(filter(is_id, names))

    def running(self) -> Sequence[str]:
        """The guests that run."""
        with self._told("guests"):
            return [guest.name() for guest in self._running()]

    def knows(self, node: str) -> bool:
        """Whether a guest has that name."""
        with self._told(f"node {node}"):
            return self._guest(node) is not None

    def runs(self, node: str) -> bool:
        """One that is frozen runs: it has its disks."""
        with self._told(f"node {node}"):
            guest = self._guest(node)
            return guest is not None and bool(guest.isActive())

    def holders(self, volume: str) -> Sequence[str]:
        """Each guest that runs is asked for its disks. Raises Refused while a guest has not answered yet."""
        self._check_settled(volume)
        with self._told(f"volume {volume}"):
            found = self._look_up(volume)
            if found is None:
                return []
            file = found.path()
            return [guest.name() for guest in self._running() if file in _disks(guest)]

    def held(self, node: str) -> int:
        """By the serials of its disks."""
        with self._told(f"node {node}"):
            guest = self._guest(node)
            return 0 if guest is None else sum(is_id(serial) for serial in _serials(guest))

    def attach(self, volume: str, node: str) -> None:
        """Live, on the guest's SCSI bus. Raises Refused when it is not there after GONE_LIMIT_S."""
        self._check_settled(volume)
        with self._told(f"volume {volume}, node {node}"):
            guest, found = self._guest(node), self._look_up(volume)
            if guest is None or found is None:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"volume {volume}, node {node}: gone meanwhile")
            xml = _disk_xml(found.path(), _free_target(guest), volume)
            live = self._library.VIR_DOMAIN_AFFECT_LIVE
            self._ask(volume, f"volume {volume} is not in node {node}", guest.attachDeviceFlags, xml, live)

    def detach(self, volume: str, node: str) -> None:
        """Live; the guest need not help. Raises Refused when the disk is still there after GONE_LIMIT_S."""
        self._check_settled(volume)
        with self._told(f"volume {volume}, node {node}"):
            guest, found = self._guest(node), self._look_up(volume)
            disk = None if guest is None or found is None else _disks(guest).get(found.path())
            if disk is None:
                return
            live, late = self._library.VIR_DOMAIN_AFFECT_LIVE, f"volume {volume} is still in node {node}"
            left_s = self._ask(volume, late, guest.detachDeviceFlags, disk, live)
            if not _comes_true(lambda: node not in self.holders(volume), left_s):
                raise _late(late)

    def _ask(self, volume: str, late: str, do: Callable[..., object], *told: object) -> float:
        """Have a guest's QEMU do something with a disk; how much of GONE_LIMIT_S is left (s). One that stands
        still does it once it goes on, and until then nobody knows who has the volume.

        Raises Refused when it is not done in time, and what the call raises.
        """
        began = time.monotonic()
        self._under_way[volume] = (late, _begun(lambda: do(*told)))
        try:
            self._under_way[volume][1].result(GONE_LIMIT_S)
        except TimeoutError:
            raise _late(late) from None
        return GONE_LIMIT_S - (time.monotonic() - began)

    def _check_settled(self, volume: str) -> None:
        """Raises Refused while what was asked of a volume before is not done yet."""
        late, done = self._under_way.get(volume, ("", None))
        if done is not None and not done.done():
            raise _late(late)

    def _now(self) -> Connection:
        if self._connection is None or not self._connection.isAlive():
            self._connection = self._connect()
        return self._connection

    def _running(self) -> Sequence[Any]:
        flags = self._library.VIR_CONNECT_LIST_DOMAINS_ACTIVE
        return list(self._now().listAllDomains(flags))

    def _pool(self) -> Any:
        return self._now().storagePoolLookupByName(self._pool_name)

    def _look_up(self, volume: str) -> Any:
        if not is_id(volume):
            return None
        return self._or_none(
            lambda: self._pool().storageVolLookupByName(_file(volume)), self._library.VIR_ERR_NO_STORAGE_VOL
        )

    def _guest(self, node: str) -> Any:
        return self._or_none(lambda: self._now().lookupByName(node), self._library.VIR_ERR_NO_DOMAIN)

    def _or_none(self, look: Callable[[], Any], absent: int) -> Any:
        try:
            return look()
        except self._library.libvirtError as error:
            if error.get_error_code() == absent:
                return None
            raise

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """libvirt's errors as refusals that may be tried again."""
        try:
            yield
        except self._library.libvirtError as error:
            said = error.get_error_message() or error
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"{what}: libvirt: {said}") from error


def _begun(call: Callable[[], object]) -> Future[object]:
    """A call under way: libvirt itself waits without end for a QEMU that stands still."""
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # whatever it is, it is the call's
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def _late(what: str) -> Refused:
    return Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"{what} after {GONE_LIMIT_S:g} s")


def _comes_true(look: Callable[[], bool], limit_s: float) -> bool:
    """Whether that is so within a time."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(_LOOK_EACH_S),
        retry=tenacity.retry_if_result(lambda so: not so),
        retry_error_callback=lambda _state: False,
    )
    return bool(retry(look))


def _file(volume: str) -> str:
    return f"{volume}{_SUFFIX}"


def _volume_xml(volume: Volume) -> str:
    root = Tree.Element("volume")
    Tree.SubElement(root, "name").text = _file(volume.id)
    Tree.SubElement(root, "capacity", unit="bytes").text = str(volume.size)
    Tree.SubElement(root, "allocation").text = "0"
    Tree.SubElement(Tree.SubElement(root, "target"), "format", type="qcow2")
    return Tree.tostring(root, encoding="unicode")


def _disk_xml(file: str, target: str, serial: str) -> str:
    """Not shareable, so that QEMU locks the file. With `writeback` what a guest has flushed outlives QEMU,
    which keeps a part of qcow2's own data to itself until then; `none` would need a file system on a disk.
    """
    root = Tree.Element("disk", type="file", device="disk")
    Tree.SubElement(root, "driver", name="qemu", type="qcow2", cache="writeback", discard="unmap")
    Tree.SubElement(root, "source", file=file)
    Tree.SubElement(root, "target", dev=target, bus="scsi")
    Tree.SubElement(root, "serial").text = serial
    return Tree.tostring(root, encoding="unicode")


def _elements(guest: Any) -> list[Tree.Element]:
    return Tree.fromstring(guest.XMLDesc(0)).findall("./devices/disk")  # noqa: S314  libvirt's words


def _disks(guest: Any) -> dict[str, str]:
    """The XML of each of a guest's disks, by file."""
    found = {}
    for disk in _elements(guest):
        source = disk.find("source")
        if source is not None and source.get("file"):
            found[str(source.get("file"))] = Tree.tostring(disk, encoding="unicode")
    return found


def _serials(guest: Any) -> list[str]:
    return [disk.findtext("serial") or "" for disk in _elements(guest)]


def _free_target(guest: Any) -> str:
    """The first name of a SCSI disk that the guest has none of."""
    taken = {target.get("dev") for disk in _elements(guest) for target in disk.findall("target")}
    return next(f"sd{letter}" for letter in _LETTERS if f"sd{letter}" not in taken)
