"""Labs of virtual machines created by Vagrant: the libvirt lab's guests, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nodeproof import hints
from nodeproof.artifacts.components import Components
from nodeproof.hints import hint_for, repository_root
from nodeproof.labs.kinds.libvirt import kind as libvirt
from nodeproof.labs.kinds.vagrant.nodes import VagrantNodes
from nodeproof.model.problem import Problem

TOOLS = ("dnsmasq", "iptables", "vagrant")
"""Programs that libvirt runs for Vagrant's plugin, besides those of every lab of virtual machines."""


def _vagrantfile() -> str:
    """Return a line for `doctor` that names the Vagrantfile's folder. Raises Problem."""
    root = repository_root()
    if root is None or not (root / "Vagrantfile").is_file():
        raise Problem("no Vagrantfile", "vagrant lab", hint_for(hints.VAGRANT))
    return f"Vagrantfile in {root}"


def _boot_files(components: Components, report: Callable[[str], None]) -> Mapping[str, str]:
    """Return the golden image's files and the folder of the Vagrantfile. Raises Problem."""
    return {**libvirt.boot_files(components, report), "vagrantfile": str(repository_root())}


VAGRANT = replace(
    libvirt.LIBVIRT,
    name="vagrant",
    # Vagrant configures only memory and CPUs of a machine, no NUMA nodes or kernel arguments.
    features=libvirt.LIBVIRT.features - {"shapes"},
    make_nodes=VagrantNodes,
    # Its Vagrantfile has one image for all machines.
    has_node_versions=False,
    # No snapshots: each machine boots, and `vagrant up` may need a second try.
    limits=replace(libvirt.LIBVIRT.limits, ready_timeout_s=1200.0),
    host=replace(
        libvirt.LIBVIRT.host,
        tools=(*libvirt.LIBVIRT.host.tools, *TOOLS),
        checks=(*libvirt.LIBVIRT.host.checks, _vagrantfile),
        hint=hints.VAGRANT,
        is_checked_by_default=False,
    ),
    boot_files=_boot_files,
)
