"""Labs of virtual machines created by Vagrant: the libvirt lab's guests, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nodeproof.artifacts.components import Components
from nodeproof.hints import VAGRANT as REMEDY
from nodeproof.hints import clone, hint_for
from nodeproof.labs.base.nodes import NodeEnvironment, Nodes
from nodeproof.labs.kinds.libvirt import kind as libvirt
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor
from nodeproof.labs.kinds.vagrant.nodes import VagrantNodes
from nodeproof.model.problem import Problem
from nodeproof.root import check_tools

TOOLS = ("dnsmasq", "iptables", "vagrant")
"""Programs that libvirt runs for Vagrant's plugin, besides those of every lab of virtual machines."""


def _make_nodes(environment: NodeEnvironment) -> Nodes:
    return VagrantNodes(
        environment, Hypervisor(environment.lab.dir, environment.memory, environment.processes)
    )


def _vagrantfile() -> str:
    """Return where the project's Vagrantfile is. Raises Problem."""
    checkout = clone()
    if checkout is None or not (checkout / "Vagrantfile").is_file():
        raise Problem("no Vagrantfile", "vagrant lab", hint_for(REMEDY))
    return f"Vagrantfile in {checkout}"


def _boots(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """Return the golden image's files and the folder of the Vagrantfile. Raises Problem."""
    check_tools(TOOLS, "vagrant lab", f"{hint_for(REMEDY)}, or see `nodeproof doctor`")
    _vagrantfile()
    return {**libvirt.boot_files(components, report), "vagrantfile": str(clone())}


VAGRANT = replace(
    libvirt.LIBVIRT,
    name="vagrant",
    # Of a shape, Vagrant gets memory and CPUs only.
    features=libvirt.LIBVIRT.features - {"shapes"},
    make_nodes=_make_nodes,
    # Every machine boots, and Vagrant may have to create it twice.
    limits=replace(libvirt.LIBVIRT.limits, ready_s=1200.0),
    host=replace(
        libvirt.LIBVIRT.host,
        tools=(*libvirt.LIBVIRT.host.tools, *TOOLS),
        checks=(*libvirt.LIBVIRT.host.checks, _vagrantfile),
        hint=REMEDY,
        is_checked_by_default=False,
    ),
    boot_files=_boots,
)
