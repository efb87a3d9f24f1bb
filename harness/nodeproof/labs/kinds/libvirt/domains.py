"""Virtual machines by name, through the Python binding of libvirt; no other module imports that extra."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import libvirt

from nodeproof.labs.kinds.libvirt.domain_xml import METADATA_NAMESPACE, METADATA_PREFIX
from nodeproof.model.problem import OutsideError

Verb = Literal["create", "destroy", "reset", "resume", "suspend", "undefine"]
"""What libvirt does to a defined machine: `create` starts it, `destroy` ends it without flushing anything."""
_KEEPALIVE_S, _KEEPALIVE_COUNT = 5, 6
"""After this many unanswered keepalives at this interval every call fails: libvirtd is gone."""


class DomainError(OutsideError):
    """libvirt failed or did not answer."""


class Domains:
    """The virtual machines of one libvirtd. Every verb raises DomainError."""

    def __init__(self, uri: str) -> None:
        _listen()
        with _domain_errors("connect"):
            self._connection = libvirt.open(uri)
            self._connection.setKeepAlive(_KEEPALIVE_S, _KEEPALIVE_COUNT)

    def follow(self, on_event: Callable[[str, int, int], None]) -> None:
        """Call `on_event` in a separate thread with machine, event and detail of each change of its state."""

        def forward(
            _connection: object, domain: libvirt.virDomain, event: int, detail: int, _: object
        ) -> None:
            on_event(domain.name(), event, detail)

        with _domain_errors("follow"):
            self._connection.domainEventRegisterAny(
                None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, forward, None
            )

    def versions(self) -> str:
        """Return the versions of libvirt and QEMU, which decide whether a saved memory fits."""
        with _domain_errors("versions"):
            return f"libvirt {self._connection.getLibVersion()}, QEMU {self._connection.getVersion()}"

    def make_pool(self, xml: str) -> None:
        """Create a transient storage pool, which ends with libvirtd."""
        with _domain_errors("storage pool"):
            self._connection.storagePoolCreateXML(xml)

    def refresh_pool(self, name: str) -> None:
        """Reread the pool's folder."""
        with _domain_errors("storage pool"):
            self._connection.storagePoolLookupByName(name).refresh()

    def make_network(self, xml: str) -> None:
        """Create a transient network, which ends with libvirtd."""
        with _domain_errors("network"):
            self._connection.networkCreateXML(xml)

    def define(self, xml: str) -> None:
        """Define a virtual machine, which stays known while it is off."""
        with _domain_errors("define"):
            self._connection.defineXML(xml)

    def uuid(self, name: str) -> str:
        """Return the UUID of a virtual machine; empty if libvirt knows none of that name."""
        with _domain_errors(f"find {name}"):
            domains = [domain for domain in self._connection.listAllDomains() if domain.name() == name]
            return str(domains[0].UUIDString()) if domains else ""

    def description(self, name: str) -> str:
        """Return the XML of a virtual machine as of its next start."""
        with self._named(name, "describe") as domain:
            return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))

    def tag(self, name: str, element: str) -> None:
        """Set a virtual machine's ownership metadata, now and for each start; `element` has no namespace."""
        with self._named(name, "tag") as domain:
            flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE
            kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
            domain.setMetadata(kind, element, METADATA_PREFIX, METADATA_NAMESPACE, flags)

    def act(self, verb: Verb, name: str) -> None:
        """Do something to a virtual machine."""
        with self._named(name, verb) as domain:
            getattr(domain, verb)()

    def create(self, xml: str) -> None:
        """Start a transient virtual machine from its description."""
        with _domain_errors("create"):
            self._connection.createXML(xml)

    def save(self, name: str, memory: Path) -> None:
        """Write a virtual machine's memory to a file and end it."""
        with self._named(name, "save") as domain:
            domain.save(str(memory))

    def restore(self, memory: Path, xml: str) -> None:
        """Restore a virtual machine from its memory, with another description of the same shape."""
        with _domain_errors("restore"):
            self._connection.restoreFlags(str(memory), xml, libvirt.VIR_DOMAIN_SAVE_RUNNING)

    def attach(self, name: str, device_xml: str) -> None:
        """Plug a device into a running virtual machine."""
        with self._named(name, "attach") as domain:
            domain.attachDeviceFlags(device_xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def update(self, name: str, device_xml: str) -> None:
        """Change a device, now if the machine runs, and at each start."""
        with self._named(name, "update") as domain:
            flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
            if domain.isActive():
                flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
            domain.updateDeviceFlags(device_xml, flags)

    def is_suspended(self, name: str) -> bool:
        """Return whether its processors are stopped."""
        with self._named(name, "state") as domain:
            return bool(domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED)

    @contextmanager
    def _named(self, name: str, doing: str) -> Iterator[libvirt.virDomain]:
        with _domain_errors(f"{doing} {name}"):
            yield self._connection.lookupByName(name)


@contextmanager
def _domain_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except libvirt.libvirtError as error:
        raise DomainError(f"libvirt: {doing}: {error.get_error_message() or error}") from error


@functools.cache
def _listen() -> None:
    """Run libvirt's event loop until the process ends; its errors are raised as exceptions."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def serve() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=serve, daemon=True).start()
