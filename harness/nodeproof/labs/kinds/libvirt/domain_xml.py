"""libvirt's XML descriptions of virtual machines, networks and storage pools, from the templates in `xml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Tree

if TYPE_CHECKING:
    from jinja2 import Environment

METADATA_NAMESPACE = "https://nodeproof.dev/libvirt/1"
"""The XML namespace of the element that names the lab an object belongs to."""
METADATA_PREFIX = "nodeproof"
_MAC_PREFIXES = {"control": "02:6e:70:00", "data": "02:6e:70:01"}


@dataclass(frozen=True)
class Nic:
    """A network card: the network it is plugged into, its address, its name there (15 characters)."""

    network: str
    mac: str
    target: str


@dataclass(frozen=True)
class Disk:
    """A disk on the virtio-scsi bus: file, format (`qcow2` or `raw`) and device name (`sda`)."""

    file: Path
    format: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Domain:
    """A virtual machine.

    Its memory is in MiB; without `kvm` it is emulated; `console` is the log of its serial console. Memory and
    CPUs are split evenly over `numa_nodes`. `lab` and `machine_id` identify its owner; the guest never sees
    them. `root` is its disk; `seed`, if any, makes it a node.
    """

    name: str
    uuid: str
    lab: str
    machine_id: str
    memory_mib: int
    vcpus: int
    kvm: bool
    kernel: Path
    initrd: Path
    arguments: Sequence[str]
    root: Disk
    seed: Disk | None
    nics: Sequence[Nic]
    console: Path
    numa_nodes: int = 1


def mac(network: str, slot: int) -> str:
    """Return the MAC address of a slot's card on `control` or `data`; the guest names the interface by it.

    Raises KeyError for another network.
    """
    return f"{_MAC_PREFIXES[network]}:{slot // 256:02x}:{slot % 256:02x}"


def domain_xml(domain: Domain) -> str:
    """Return the domain's whole definition."""
    return _render("domain", domain=domain)


def disk_xml(disk: Disk) -> str:
    """Return one disk, to be plugged into a running domain."""
    return _render("disk", disk=disk)


def nic_xml(nic: Nic, link: str) -> str:
    """Return one network card with its carrier `up` or `down`, to update a domain's card."""
    return _render("interface", nic=nic, link=link)


def network_xml(name: str, lab: str) -> str:
    """Return a network of the lab that uses an existing bridge of the same name."""
    return _render("network", name=name, lab=lab)


def leased_network_xml(name: str, lab: str, address: str, leases: Mapping[str, str]) -> str:
    """Return a network of the lab whose bridge libvirt creates, and on which it leases addresses.

    Args:
        name: the name of the network and of the bridge.
        lab: the owner.
        address: the bridge's address.
        leases: the leased address by the card's MAC address.
    """
    return _render("network", name=name, lab=lab, address=address, leases=leases)


def pool_xml(name: str, folder: Path) -> str:
    """Return a storage pool for a folder; libvirt stores no metadata for pools."""
    return _render("pool", name=name, folder=folder)


def _render(template: str, **values: object) -> str:
    return _templates().get_template(f"{template}.xml").render(values)


@functools.cache
def _templates() -> Environment:
    # A lab without virtual machines needs no templates.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("xml")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.globals["namespace"] = METADATA_NAMESPACE
    return templates


def tag_xml(lab: str, machine_id: str) -> str:
    """Return the ownership metadata for a machine that another program has described."""
    return Tree.tostring(Tree.Element("lab", name=lab, machine=machine_id), encoding="unicode")


def parse_owner(metadata: str) -> str:
    """Return the owner of a domain from the output of `virsh metadata`; empty if it has none."""
    try:
        element = Tree.fromstring(metadata)  # noqa: S314  libvirt's words
    except Tree.ParseError:
        return ""
    return owner(element.get("name", ""), element.get("machine", ""))


def owner(lab: str, machine_id: str) -> str:
    """Return the identifier of a domain's owner."""
    return f"{lab} {machine_id}"


def card_xml(described: str, card: str, link: str) -> str:
    """Return the card with a MAC address from a machine's description, with its carrier `up` or `down`.

    Raises ValueError if the machine has no such card.
    """
    machine = Tree.fromstring(described)  # noqa: S314  libvirt's words
    interface = machine.find(f".//interface/mac[@address='{card}']/..")
    if interface is None:
        raise ValueError(f"the machine has no network card with the address {card}")
    for former in interface.findall("link"):
        interface.remove(former)
    Tree.SubElement(interface, "link", state=link)
    return Tree.tostring(interface, encoding="unicode")
