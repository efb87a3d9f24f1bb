"""Labs of virtual machines that Vagrant makes: the libvirt lab's guests, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nodeproof.artifacts.components import Components
from nodeproof.labs.ground.nodes import Ground, Nodes
from nodeproof.labs.kinds.libvirt import kind as libvirt
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor
from nodeproof.labs.kinds.vagrant.nodes import VagrantNodes
from nodeproof.model.problem import Problem
from nodeproof.remedy import VAGRANT as REMEDY
from nodeproof.remedy import clone, remedy
from nodeproof.root import check_tools

TOOLS = ("dnsmasq", "iptables", "vagrant")
"""What Vagrant's libvirt plugin has libvirt run, beyond what every lab of virtual machines does."""


def _make_nodes(on: Ground) -> Nodes:
    return VagrantNodes(on, Hypervisor(on.lab.dir, on.memory, on.processes))


def _vagrantfile() -> str:
    """Where the project's Vagrantfile is. Raises Problem."""
    top = clone()
    if top is None or not (top / "Vagrantfile").is_file():
        raise Problem("no Vagrantfile", "vagrant lab", remedy(REMEDY))
    return f"Vagrantfile in {top}"


def _boots(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """The golden image, and where the Vagrantfile is. Raises Problem."""
    check_tools(TOOLS, "vagrant lab", f"{remedy(REMEDY)}, or see `nodeproof doctor`")
    _vagrantfile()
    return {**libvirt.boots(components, report), "vagrantfile": str(clone())}


VAGRANT = replace(
    libvirt.LIBVIRT,
    name="vagrant",
    # Vagrant is told of memory and CPUs, and of nothing else that a shape has.
    features=libvirt.LIBVIRT.features - {"shapes"},
    make_nodes=_make_nodes,
    # Every machine boots, and may be made a second time.
    limits=replace(libvirt.LIBVIRT.limits, ready_s=1200.0),
    host=replace(
        libvirt.LIBVIRT.host,
        tools=(*libvirt.LIBVIRT.host.tools, *TOOLS),
        checks=(*libvirt.LIBVIRT.host.checks, _vagrantfile),
        remedy=REMEDY,
        is_looked_at=False,
    ),
    boots=_boots,
)
