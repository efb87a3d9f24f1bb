"""What the machines of an inventory answer over SSH, and which faults that refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nodeproof.existing import ansible, marks
from nodeproof.existing.inventory import POWER_FAULTS, Inventory
from nodeproof.faults.fault import FIRST_PID_NAMESPACE
from nodeproof.faults.settings import SETTINGS_FILE
from nodeproof.faults.units import KUBELET
from nodeproof.machines.machine import MachineError, checked
from nodeproof.machines.openssh import OpenSsh, strict_config

Json = Any
_TIMEOUT_S = 20.0
_WORKERS = 4
SYSTEMD, OWN_KERNEL = "systemd", "own-kernel"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "called-off-shutdown": ("busctl", "systemd-inhibit", KUBELET),
    "clock": (OWN_KERNEL,),
    "kubelet-settings": (KUBELET, SETTINGS_FILE),
    "link-down": ("ip",),
    "partition": ("nft",),
    "swap": ("fallocate", "mkswap", "swapoff", "swapon", OWN_KERNEL),
    "unit-down": (KUBELET,),
}
"""What faults need of a machine besides systemd: programs, active units, files, a kernel of its own."""
_PHRASES = {KUBELET: f"active {KUBELET}", OWN_KERNEL: "kernel of its own"}
_FACTS = f"""
cat /etc/machine-id && cat /proc/sys/kernel/random/boot_id || exit 1
for need; do
    case $need in
        {SYSTEMD}) [ -d /run/systemd/system ] && systemd-run --expand-environment=no --version ;;
        {OWN_KERNEL}) [ "$(readlink /proc/1/ns/pid)" = '{FIRST_PID_NAMESPACE}' ] ;;
        *.service) systemctl is-active "$need" ;;
        /*) [ -e "$need" ] ;;
        *) command -v "$need" ;;
    esac >/dev/null 2>&1 && echo "$need"
done
exit 0
"""


@dataclass(frozen=True)
class Inspection:
    """Facts about a machine: its ids, and what of `SYSTEMD` and `NEEDS` it has."""

    machine_id: str
    boot_id: str
    provides: frozenset[str]


def inspect(inventory: Inventory) -> Mapping[str, Inspection | str]:
    """Read the facts of all listed nodes' machines, or why they cannot be read; changes nothing.

    Raises:
        Problem: Ansible's inventory cannot be used.
    """
    with ssh_config(inventory) as config:
        hosts = [OpenSsh(name, config) for name in inventory.nodes]
        with ThreadPoolExecutor(_WORKERS) as pool:
            return dict(zip(inventory.nodes, pool.map(inspect_host, hosts), strict=True))


@contextlib.contextmanager
def ssh_config(inventory: Inventory) -> Iterator[Path]:
    """Write the configuration by which ssh reaches the listed nodes. Raises Problem as `inspect` does."""
    own = ansible.ssh_config(inventory.hosts, inventory.nodes) if inventory.hosts else ""
    with strict_config(inventory.ssh.config, inventory.ssh.known_hosts, own) as config:
        yield config


def inspect_host(host: OpenSsh) -> Inspection | str:
    """Read the facts of one machine, or why they cannot be read."""
    needs = sorted({SYSTEMD, *chain.from_iterable(NEEDS.values())})
    try:
        completed = host.run(["sh", "-c", _FACTS, "sh", *needs], timeout_s=_TIMEOUT_S)
        machine_id, boot_id, *present = checked(completed, f"{host.host}: machine id").split()
    except (MachineError, ValueError) as error:
        return str(error)
    return Inspection(machine_id, boot_id, frozenset(present))


def refusals(fault: str, node: Json, inspection: Inspection | str) -> Iterator[str]:
    """Yield why a fault must not or cannot be injected on a Node's machine."""
    if isinstance(inspection, str):
        yield f"its machine does not answer as root over SSH: {inspection}"
        return
    if inspection.machine_id != marks.machine_id(node):
        yield "SSH leads to a machine with another machine id than its Node"
    elif inspection.boot_id != node["status"]["nodeInfo"]["bootID"]:
        yield "SSH leads to a machine with another boot id than its Node"
    if fault in POWER_FAULTS:
        return
    if SYSTEMD not in inspection.provides:
        yield "its machine has no systemd 254 or newer, whose timer heals a fault if nodeproof ends"
    missing = [_PHRASES.get(need, need) for need in NEEDS.get(fault, ()) if need not in inspection.provides]
    if missing:
        yield f"its machine has no {', no '.join(missing)}"
