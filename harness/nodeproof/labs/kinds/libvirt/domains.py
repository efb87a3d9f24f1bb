"""Virtual machines by name, through libvirt's own library. The only user of it, as it is an extra."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import libvirt

from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE, METADATA_PREFIX
from nodeproof.labs.kinds.libvirt.ends import End, end_of
from nodeproof.model.problem import OutsideError

_KEEPALIVE_S, _KEEPALIVE_COUNT = 5, 6
"""A libvirtd that answers no keepalive for so long, so often, is gone: every call ends with an error."""


class DomainError(OutsideError):
    """libvirt refused, or did not answer."""


class Domains:
    """What is done with the virtual machines of one libvirtd. Every verb raises DomainError."""

    def __init__(self, uri: str) -> None:
        _listen()
        with _told("connect"):
            self._connection = libvirt.open(uri)
            self._connection.setKeepAlive(_KEEPALIVE_S, _KEEPALIVE_COUNT)

    def follow(self, on_start: Callable[[str], None], on_end: Callable[[End], None]) -> None:
        """Have each start and each end of a virtual machine told, on a thread of its own."""

        def tell(_connection: object, domain: libvirt.virDomain, event: int, detail: int, _: object) -> None:
            if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
                on_start(domain.name())
            end = end_of(domain.name(), event, detail)
            if end is not None:
                on_end(end)

        with _told("follow"):
            self._connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, tell, None)

    def versions(self) -> str:
        """libvirt's and QEMU's, by which a saved memory can be told to fit."""
        with _told("versions"):
            return f"libvirt {self._connection.getLibVersion()}, QEMU {self._connection.getVersion()}"

    def make_pool(self, xml: str) -> None:
        """A storage pool that goes with libvirtd."""
        with _told("storage pool"):
            self._connection.storagePoolCreateXML(xml)

    def refresh_pool(self, name: str) -> None:
        """See what is in the pool's folder."""
        with _told("storage pool"):
            self._connection.storagePoolLookupByName(name).refresh()

    def make_network(self, xml: str) -> None:
        """A network that goes with libvirtd."""
        with _told("network"):
            self._connection.networkCreateXML(xml)

    def define(self, xml: str) -> None:
        """Make a virtual machine known, which stays when it is off."""
        with _told("define"):
            self._connection.defineXML(xml)

    def uuid(self, name: str) -> str:
        """By which libvirt knows one; nothing where it knows none of that name."""
        with _told(f"find {name}"):
            known = [domain for domain in self._connection.listAllDomains() if domain.name() == name]
            return str(known[0].UUIDString()) if known else ""

    def description(self, name: str) -> str:
        """One as it is at its next start."""
        with self._named(name, "describe") as domain:
            return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))

    def tag(self, name: str, element: str) -> None:
        """Write down on one, for now and for each start, whose it is; without a namespace in `element`."""
        with self._named(name, "tag") as domain:
            flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE
            kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
            domain.setMetadata(kind, element, METADATA_PREFIX, METADATA_NAMESPACE, flags)

    def undefine(self, name: str) -> None:
        """Forget one that is off."""
        with self._named(name, "undefine") as domain:
            domain.undefine()

    def create(self, xml: str) -> None:
        """Start one from its description."""
        with _told("create"):
            self._connection.createXML(xml)

    def start(self, name: str) -> None:
        """Start one that is known."""
        with self._named(name, "start") as domain:
            domain.create()

    def destroy(self, name: str) -> None:
        """End one at once: nothing in it is flushed."""
        with self._named(name, "destroy") as domain:
            domain.destroy()

    def save(self, name: str, memory: Path) -> None:
        """Write one's memory to a file and end it."""
        with self._named(name, "save") as domain:
            domain.save(str(memory))

    def restore(self, memory: Path, xml: str) -> None:
        """Let one go on from its memory, with another description of the same shape."""
        with _told("restore"):
            self._connection.restoreFlags(str(memory), xml, libvirt.VIR_DOMAIN_SAVE_RUNNING)

    def attach(self, name: str, device_xml: str) -> None:
        """Plug a device into one that runs."""
        with self._named(name, "attach") as domain:
            domain.attachDeviceFlags(device_xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def update(self, name: str, device_xml: str) -> None:
        """Change a device, now where it runs and at each start."""
        with self._named(name, "update") as domain:
            flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
            if domain.isActive():
                flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
            domain.updateDeviceFlags(device_xml, flags)

    def suspend(self, name: str) -> None:
        """Stop its processors."""
        with self._named(name, "suspend") as domain:
            domain.suspend()

    def resume(self, name: str) -> None:
        """Let its processors go on."""
        with self._named(name, "resume") as domain:
            domain.resume()

    def reset(self, name: str) -> None:
        """Press its reset button."""
        with self._named(name, "reset") as domain:
            domain.reset()

    def is_suspended(self, name: str) -> bool:
        """Whether its processors are stopped."""
        with self._named(name, "state") as domain:
            return bool(domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED)

    @contextmanager
    def _named(self, name: str, doing: str) -> Iterator[libvirt.virDomain]:
        with _told(f"{doing} {name}"):
            yield self._connection.lookupByName(name)


@contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except libvirt.libvirtError as error:
        raise DomainError(f"libvirt: {doing}: {error.get_error_message() or error}") from error


@functools.cache
def _listen() -> None:
    """Let libvirt's own event loop run for as long as the process does; its errors come as exceptions."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def serve() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=serve, daemon=True).start()
