"""All that a living lab is made of and holds, as lines that can be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client import registry
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.machines.machine import Machine
from tests import leftovers

Json = Any
_COMMAND_LIMIT_S = 20.0
_KINDS = {
    "namespace": "/api/v1/namespaces",
    "pod": "/api/v1/pods",
    "lease": WATCHED["leases"],
    "secret": "/api/v1/secrets",
    "config map": "/api/v1/configmaps",
    "service account": "/api/v1/serviceaccounts",
    "node": WATCHED["nodes"],
}
TIMERS = ["systemctl", "list-units", "--plain", "--no-legend", "nodeproof-heal-*"]
"""What armed dead-man's switches, and their healings, are on a machine with systemd."""
_VIRSH = ["virsh", "-q", "-c", "qemu+unix:///system?socket=/run/libvirt/libvirt-sock"]


def census(lab: Lab) -> list[str]:
    """Processes, namespaces, mounts, nft tables, libvirt's objects, files and cluster objects of a lab.

    Raises ApiError, MachineError while something of it does not answer.
    """
    status = registry.client(lab.name).status()
    found = [f"switch {fault}" for fault in status["armed"]]
    found += [f"fault {fault}" for fault in status["not_disarmed"]]
    found += [f"died {name}" for name in status["died"]]
    found += [f"component {name}" for name in status["components"]]
    found += [f"open {entry.fault}" for entry in lab.safety.ledger.unfinished()]
    found += [f"{each.name} is {'on' if each.on else 'off'}" for each in lab.fleet.nodes()]
    found += leftovers.of_host(lab.name)
    found += [f"file {path.relative_to(lab.dir)}" for path in _files(lab.dir)]
    for name in lab.fleet.node_names():
        found += [f"{name}: {line}" for line in _inside(lab.fleet.machine(name))]
        if "systemd" in lab.features:
            armed = lab.fleet.machine(name).run(TIMERS, deadline_s=_COMMAND_LIMIT_S).stdout
            found += [f"{name}: timer {line.split()[0]}" for line in armed.splitlines()]
    for kind, path in _KINDS.items():
        found += [f"{kind} {_told(item)}" for item in lab.cluster.api.get(path)["items"]]
    if lab.kind == LIBVIRT:
        for what in ("list --all --name", "net-list --all --name", "pool-list --all --name"):
            done = registry.client(lab.name).spawn_command([*_VIRSH, *what.split()], _COMMAND_LIMIT_S)
            found += [f"{what.split('-', 1)[0]} {line}" for line in done["stdout"].splitlines() if line]
    return sorted(found)


def _files(folder: Path) -> list[Path]:
    """The lab's own files; what runs it keeps logs and its memory file system is out of sight."""
    return [path for path in folder.rglob("*") if path.parts[-2] != "logs" and path.name != "in-use"]


def _inside(machine: Machine) -> list[str]:
    """What a fault could leave on a machine."""
    lines = []
    for argv in (
        [
            "bash",
            "-c",
            "compgen -G '/var/tmp/nodeproof-*'; compgen -G '/etc/*/nodeproof-*'; "
            "compgen -G '/etc/systemd/system/*/nodeproof-*'",
        ],
        ["nft", "list", "tables"],
        ["ip", "-brief", "link"],
        ["ip", "-4", "route"],
        ["cat", "/proc/swaps"],
        ["bash", "-c", "cut -d' ' -f2,3 /proc/mounts | sort | uniq -c | grep -v 'kubelet\\|containerd'"],
    ):
        said = machine.run(argv, deadline_s=_COMMAND_LIMIT_S).stdout
        own = (line for line in said.splitlines() if leftovers.IMAGE_BUILD not in line)
        # The other end's number is new with each boot.
        lines += [f"{argv[0]} {re.sub(r'@if[0-9]+', '', ' '.join(line.split()))}" for line in own]
    return lines


def _told(item: Mapping[str, Json]) -> str:
    metadata = item["metadata"]
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    if "podCIDR" not in item.get("spec", {}) and "nodeInfo" not in item.get("status", {}):
        return name
    ready = [entry["status"] for entry in item["status"]["conditions"] if entry["type"] == "Ready"]
    spec = item["spec"]
    labels = sorted(metadata.get("labels", {}).items())
    return f"{name} ready {ready} taints {spec.get('taints')} {spec.get('unschedulable')} {labels}"
