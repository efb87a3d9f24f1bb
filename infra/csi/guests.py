"""The hypervisor libvirt: volumes are qcow2 files of a pool, plugged into running guests.

All state is libvirt's. A disk is plugged in live and never added to a guest's definition, so that a rebooted
guest has no disk that was not attached again. QEMU's own file lock also prevents two guests with one disk.
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

GONE_TIMEOUT_S = 10.0
"""Time limit for attaching or detaching a disk; external-attacher waits for 15 s."""
_POLL_PERIOD_S = 0.1
_SUFFIX = ".qcow2"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Libvirt:
    """The guests of a libvirtd, by name, and the volumes in one of its pools.

    Args:
        connect: opens a connection; called again after libvirtd was restarted.
        pool: name of the storage pool.
        library: the module libvirt.
    """

    def __init__(self, connect: Callable[[], Connection], pool: str, library: Any) -> None:
        self._connect = connect
        self._pool_name = pool
        self._library = library
        self._connection: Connection = None
        self._pending: dict[str, tuple[str, Future[object]]] = {}

    def create(self, volume: Volume) -> None:
        """Create a sparse file."""
        with self._refusing(f"volume {volume.id}"):
            self._pool().createXML(_volume_xml(volume), 0)

    def delete(self, volume: str) -> None:
        """Delete the file."""
        with self._refusing(f"volume {volume}"):
            file = self._look_up(volume)
            if file is not None:
                file.delete(0)

    def find(self, volume: str) -> Volume | None:
        """Return the volume with the size that a guest sees."""
        with self._refusing(f"volume {volume}"):
            file = self._look_up(volume)
            return None if file is None else Volume(volume, int(file.info()[1]))

    def all(self) -> Sequence[str]:
        """Return the ids in the file names of the pool."""
        with self._refusing(f"pool {self._pool_name}"):
            names = [name.removesuffix(_SUFFIX) for name in self._pool().listVolumes()]
            return sorted(filter(is_id, names))

    def running(self) -> Sequence[str]:
        """Return the names of all running guests."""
        with self._refusing("guests"):
            return [guest.name() for guest in self._running()]

    def has(self, node: str) -> bool:
        """Return whether a guest has this name."""
        with self._refusing(f"node {node}"):
            return self._guest(node) is not None

    def runs(self, node: str) -> bool:
        """Return whether the guest is active; a paused guest is, as it has its disks."""
        with self._refusing(f"node {node}"):
            guest = self._guest(node)
            return guest is not None and bool(guest.isActive())

    def holders(self, volume: str) -> Sequence[str]:
        """Search the disks of all running guests. Raises Refused while a request to a guest is pending."""
        self._check_settled(volume)
        with self._refusing(f"volume {volume}"):
            file = self._look_up(volume)
            if file is None:
                return []
            path = file.path()
            return [guest.name() for guest in self._running() if path in _disks(guest)]

    def volume_count(self, node: str) -> int:
        """Count the guest's disks with the serial of a volume."""
        with self._refusing(f"node {node}"):
            guest = self._guest(node)
            return 0 if guest is None else sum(is_id(serial) for serial in _serials(guest))

    def attach(self, volume: str, node: str) -> None:
        """Plug the disk into the guest's SCSI bus. Raises Refused if it takes over GONE_TIMEOUT_S."""
        self._check_settled(volume)
        with self._refusing(f"volume {volume}, node {node}"):
            guest, file = self._guest(node), self._look_up(volume)
            if guest is None or file is None:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"volume {volume}, node {node}: gone meanwhile")
            xml = _disk_xml(file.path(), _free_target(guest), volume)
            flags = self._library.VIR_DOMAIN_AFFECT_LIVE
            self._request(
                volume, f"volume {volume} is not in node {node}", guest.attachDeviceFlags, xml, flags
            )

    def detach(self, volume: str, node: str) -> None:
        """Unplug the disk without the guest's help. Raises Refused if it takes over GONE_TIMEOUT_S."""
        self._check_settled(volume)
        with self._refusing(f"volume {volume}, node {node}"):
            guest, file = self._guest(node), self._look_up(volume)
            disk = None if guest is None or file is None else _disks(guest).get(file.path())
            if disk is None:
                return
            flags, late = self._library.VIR_DOMAIN_AFFECT_LIVE, f"volume {volume} is still in node {node}"
            left_s = self._request(volume, late, guest.detachDeviceFlags, disk, flags)
            if not _wait_until(lambda: node not in self.holders(volume), left_s):
                raise _late(late)

    def _request(self, volume: str, late: str, call: Callable[..., object], *args: object) -> float:
        """Have a guest's QEMU change a disk; return how much of GONE_TIMEOUT_S is left (s).

        A paused QEMU does it after it continues. Until then it is unknown which guest has the volume.

        Raises:
            Refused: It was not done in time; also whatever `call` raises.
        """
        began = time.monotonic()
        self._pending[volume] = (late, _start(lambda: call(*args)))
        try:
            self._pending[volume][1].result(GONE_TIMEOUT_S)
        except TimeoutError:
            raise _late(late) from None
        return GONE_TIMEOUT_S - (time.monotonic() - began)

    def _check_settled(self, volume: str) -> None:
        """Check that no earlier request for this volume is pending. Raises Refused."""
        late, future = self._pending.get(volume, ("", None))
        if future is not None and not future.done():
            raise _late(late)

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.isAlive():
            self._connection = self._connect()
        return self._connection

    def _running(self) -> Sequence[Any]:
        flags = self._library.VIR_CONNECT_LIST_DOMAINS_ACTIVE
        return list(self._connected().listAllDomains(flags))

    def _pool(self) -> Any:
        return self._connected().storagePoolLookupByName(self._pool_name)

    def _look_up(self, volume: str) -> Any:
        if not is_id(volume):
            return None
        return self._or_none(
            lambda: self._pool().storageVolLookupByName(_file(volume)), self._library.VIR_ERR_NO_STORAGE_VOL
        )

    def _guest(self, node: str) -> Any:
        return self._or_none(lambda: self._connected().lookupByName(node), self._library.VIR_ERR_NO_DOMAIN)

    def _or_none(self, look: Callable[[], Any], absent: int) -> Any:
        try:
            return look()
        except self._library.libvirtError as error:
            if error.get_error_code() == absent:
                return None
            raise

    @contextlib.contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Convert libvirt's errors to refusals that may be retried."""
        try:
            yield
        except self._library.libvirtError as error:
            message = error.get_error_message() or error
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"{what}: libvirt: {message}") from error


def _start(call: Callable[[], object]) -> Future[object]:
    """Start a call in a thread: libvirt itself waits for a paused QEMU without a time limit."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _late(what: str) -> Refused:
    return Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"{what} after {GONE_TIMEOUT_S:g} s")


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds; return whether it did within the time."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_fixed(_POLL_PERIOD_S),
        retry=tenacity.retry_if_result(lambda is_true: not is_true),
        retry_error_callback=lambda _state: False,
    )
    return bool(retry(condition))


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
    """Return the XML of a disk that is not shareable, so that QEMU locks the file.

    With `writeback`, data that a guest has flushed outlives QEMU, which keeps a part of qcow2's metadata in
    memory until then; `none` would need a file system on a disk.
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
    """Return the XML of each disk of a guest, by file."""
    disks = {}
    for disk in _elements(guest):
        source = disk.find("source")
        if source is not None and source.get("file"):
            disks[str(source.get("file"))] = Tree.tostring(disk, encoding="unicode")
    return disks


def _serials(guest: Any) -> list[str]:
    return [disk.findtext("serial") or "" for disk in _elements(guest)]


def _free_target(guest: Any) -> str:
    """Return the first SCSI disk name that is free in the guest."""
    used = {target.get("dev") for disk in _elements(guest) for target in disk.findall("target")}
    return next(f"sd{letter}" for letter in _LETTERS if f"sd{letter}" not in used)
