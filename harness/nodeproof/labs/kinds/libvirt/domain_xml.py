"""libvirt's XML descriptions of virtual machines, networks and storage pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as Tree

METADATA_NAMESPACE = "https://nodeproof.dev/libvirt/1"
"""The XML namespace of the element that names the lab an object belongs to."""
METADATA_PREFIX = "nodeproof"

CONTROL_MAC, DATA_MAC = "02:6e:70:00", "02:6e:70:01"
ROOT_TARGET, SEED_TARGET = "sda", "sdb"

# The guest's kernel panics at random through cmpxchg16b under emulation; the others are unneeded and slow.
_TOO_MUCH_FOR_TCG = ("cx16", "la57", "pku", "smap", "smep", "svm")

# QEMU would keep 1 GiB of translated code, which is more than the guest itself needs.
_TRANSLATED_MIB = 256


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
    them.
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
    disks: Sequence[Disk]
    nics: Sequence[Nic]
    console: Path
    numa_nodes: int = 1


def mac(network: str, slot: int) -> str:
    """Return the MAC address of a slot's card on `control` or `data`; the guest names the interface by it.

    Raises KeyError for another network.
    """
    prefix = {"control": CONTROL_MAC, "data": DATA_MAC}[network]
    return f"{prefix}:{slot // 256:02x}:{slot % 256:02x}"


def domain_xml(domain: Domain) -> str:
    """Return the domain's whole definition."""
    root = Tree.Element("domain", type="kvm" if domain.kvm else "qemu")
    _text(root, "name", domain.name)
    _text(root, "uuid", domain.uuid)
    # libvirt changes it whenever a snapshot is restored; the kernel then reseeds its random numbers.
    _text(root, "genid", domain.uuid)
    _tag(_text(root, "metadata"), name=domain.lab, machine=domain.machine_id)
    _text(root, "memory", str(domain.memory_mib), unit="MiB")
    _text(root, "vcpu", str(domain.vcpus))
    _boot(root, domain)
    features = _text(root, "features")
    _text(features, "acpi")
    _text(features, "apic")
    if not domain.kvm:
        _text(_text(features, "tcg"), "tb-cache", str(_TRANSLATED_MIB), unit="MiB")
    _cpu(root, domain)
    _text(root, "clock", offset="utc")
    for event, action in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "preserve")):
        _text(root, f"on_{event}", action)
    _devices(root, domain)
    return _rendered(root)


def network_xml(name: str, lab: str) -> str:
    """Return a network that uses an existing bridge of the same name."""
    root = Tree.Element("network")
    _text(root, "name", name)
    _tag(_text(root, "metadata"), name=lab)
    _text(root, "forward", mode="bridge")
    _text(root, "bridge", name=name)
    return _rendered(root)


def pool_xml(name: str, folder: Path) -> str:
    """Return a storage pool for a folder; libvirt stores no metadata for pools."""
    root = Tree.Element("pool", type="dir")
    _text(root, "name", name)
    _text(_text(root, "target"), "path", str(folder))
    return _rendered(root)


def leased_network_xml(name: str, lab: str, address: str, addresses: Mapping[str, str]) -> str:
    """Return a network whose bridge libvirt creates, and on which it leases addresses.

    Args:
        name: the name of the network and of the bridge.
        lab: the owner.
        address: the bridge's address.
        addresses: the leased address by the card's MAC address.
    """
    root = Tree.Element("network")
    _text(root, "name", name)
    _tag(_text(root, "metadata"), name=lab)
    _text(root, "bridge", name=name, stp="off", delay="0")
    _text(root, "dns", enable="no")
    leases = _text(_text(root, "ip", address=address, netmask="255.255.0.0"), "dhcp")
    for card, leased in addresses.items():
        _text(leases, "host", mac=card, ip=leased)
    return _rendered(root)


def tag_xml(lab: str, machine_id: str) -> str:
    """Return the ownership metadata for a machine that another program has described."""
    return Tree.tostring(Tree.Element("lab", name=lab, machine=machine_id), encoding="unicode")


def card_xml(described: str, card: str, link: str) -> str:
    """Return the card with a MAC address from a machine's description, with its carrier `up` or `down`.

    Raises ValueError if the machine has no such card.
    """
    for element in Tree.fromstring(described).iter("interface"):  # noqa: S314  libvirt's words
        address = element.find("mac")
        if address is not None and address.get("address") == card:
            for link_element in element.findall("link"):
                element.remove(link_element)
            _text(element, "link", state=link)
            return Tree.tostring(element, encoding="unicode")
    raise ValueError(f"the machine has no network card with the address {card}")


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


def disk_xml(disk: Disk) -> str:
    """Return one disk, to be plugged into a running domain."""
    return _rendered(_disk(Tree.Element("holder"), disk))


def nic_xml(nic: Nic, link: str) -> str:
    """Return one network card with its carrier `up` or `down`, to update a domain's card."""
    element = _nic(Tree.Element("holder"), nic)
    _text(element, "link", state=link)
    return _rendered(element)


def _rendered(element: Tree.Element) -> str:
    Tree.indent(element)
    return Tree.tostring(element, encoding="unicode").rstrip() + "\n"


def _text(parent: Tree.Element, name: str, text: str | None = None, /, **attributes: str) -> Tree.Element:
    element = Tree.SubElement(parent, name, attributes)
    element.text = text
    return element


def _tag(metadata: Tree.Element, **attributes: str) -> None:
    Tree.register_namespace(METADATA_PREFIX, METADATA_NAMESPACE)
    Tree.SubElement(metadata, f"{{{METADATA_NAMESPACE}}}lab", attributes)


def _boot(root: Tree.Element, domain: Domain) -> None:
    os = _text(root, "os")
    _text(os, "type", "hvm", arch="x86_64", machine="q35")
    _text(os, "kernel", str(domain.kernel))
    _text(os, "initrd", str(domain.initrd))
    _text(os, "cmdline", " ".join(domain.arguments))


def _cpu(root: Tree.Element, domain: Domain) -> None:
    cpu = _text(root, "cpu", mode="host-passthrough" if domain.kvm else "maximum")
    if domain.numa_nodes > 1:
        cores = domain.vcpus // domain.numa_nodes
        _text(cpu, "topology", sockets=str(domain.numa_nodes), cores=str(cores), threads="1")
    for name in () if domain.kvm else _TOO_MUCH_FOR_TCG:
        _text(cpu, "feature", policy="disable", name=name)
    if domain.numa_nodes > 1:
        _numa(cpu, domain)


def _numa(cpu: Tree.Element, domain: Domain) -> None:
    cpus, memory = domain.vcpus // domain.numa_nodes, domain.memory_mib // domain.numa_nodes
    numa = _text(cpu, "numa")
    for cell in range(domain.numa_nodes):
        cell_cpus = f"{cell * cpus}-{(cell + 1) * cpus - 1}"
        _text(numa, "cell", id=str(cell), cpus=cell_cpus, memory=str(memory), unit="MiB")


def _devices(root: Tree.Element, domain: Domain) -> None:
    devices = _text(root, "devices")
    for disk in domain.disks:
        _disk(devices, disk)
    _text(devices, "controller", type="scsi", index="0", model="virtio-scsi")
    _text(devices, "controller", type="usb", model="none")
    for nic in domain.nics:
        _nic(devices, nic)
    console = _text(devices, "serial", type="pty")
    _text(console, "log", file=str(domain.console), append="on")
    _text(console, "target", type="isa-serial", port="0")
    _text(_text(devices, "rng", model="virtio"), "backend", "/dev/urandom", model="random")
    _text(devices, "memballoon", model="none")
    _text(devices, "panic", model="isa")


def _disk(devices: Tree.Element, disk: Disk) -> Tree.Element:
    element = _text(devices, "disk", type="file", device="disk")
    _text(element, "driver", name="qemu", type=disk.format, cache="unsafe", discard="unmap")
    _text(element, "source", file=str(disk.file))
    _text(element, "target", dev=disk.target, bus="scsi")
    if disk.read_only:
        _text(element, "readonly")
    return element


def _nic(devices: Tree.Element, nic: Nic) -> Tree.Element:
    element = _text(devices, "interface", type="network")
    _text(element, "source", network=nic.network)
    _text(element, "mac", address=nic.mac)
    _text(element, "target", dev=nic.target)
    _text(element, "model", type="virtio")
    return element
