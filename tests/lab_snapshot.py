"""Everything that a running lab consists of and stores, as comparable lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.client import registry
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT
from nodeproof.machines.machine import Machine
from nodeproof.model.pattern import Json
from tests import leftovers

_COMMAND_TIMEOUT_S = 20.0
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
"""Armed dead-man's switches and their heals on a machine with systemd."""
_VIRSH = ["virsh", "-q", "-c", "qemu+unix:///system?socket=/run/libvirt/libvirt-sock"]


def snapshot(lab: LabHandle) -> list[str]:
    """List processes, namespaces, mounts, nft tables, libvirt's objects, files and cluster objects of a lab.

    Raises ApiError, MachineError while something of it does not answer.
    """
    status = registry.client(lab.name).status()
    problems = [f"switch {fault}" for fault in status.armed]
    problems += [f"fault {fault}" for fault in status.not_disarmed]
    problems += [f"died {name}" for name in status.died]
    problems += [f"component {name}" for name in status.components]
    problems += [f"open {entry.fault}" for entry in lab.safety.ledger.unfinished()]
    problems += [f"{node.name} is {'on' if node.is_on else 'off'}" for node in lab.fleet.nodes()]
    problems += leftovers.of_host(lab.name)
    problems += [f"file {path.relative_to(lab.dir)}" for path in _files(lab.dir)]
    for name in lab.fleet.node_names():
        problems += [f"{name}: {line}" for line in _inside(lab.fleet.machine(name))]
        if "systemd" in lab.features:
            armed = lab.fleet.machine(name).run(TIMERS, timeout_s=_COMMAND_TIMEOUT_S).stdout
            problems += [f"{name}: timer {line.split()[0]}" for line in armed.splitlines()]
    for kind, path in _KINDS.items():
        problems += [f"{kind} {_describe(item)}" for item in lab.cluster.api.get(path)["items"]]
    if lab.kind == LIBVIRT:
        for what in ("list --all --name", "net-list --all --name", "pool-list --all --name"):
            output = registry.client(lab.name).spawn_command([*_VIRSH, *what.split()], _COMMAND_TIMEOUT_S)
            problems += [f"{what.split('-', 1)[0]} {line}" for line in output["stdout"].splitlines() if line]
    return sorted(problems)


def _files(folder: Path) -> list[Path]:
    """Return the lab's own files, without logs and its memory file system."""
    return [path for path in folder.rglob("*") if path.parts[-2] != "logs" and path.name != "in-use"]


def _inside(machine: Machine) -> list[str]:
    """Return what a fault could leave on a machine."""
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
        output = machine.run(argv, timeout_s=_COMMAND_TIMEOUT_S).stdout
        own = (line for line in output.splitlines() if leftovers.IMAGE_BUILD not in line)
        # The peer's number changes with each boot.
        lines += [f"{argv[0]} {re.sub(r'@if[0-9]+', '', ' '.join(line.split()))}" for line in own]
    return lines


def _describe(item: Mapping[str, Json]) -> str:
    metadata = item["metadata"]
    name = f"{metadata.get('namespace', '')}/{metadata['name']}"
    if "podCIDR" not in item.get("spec", {}) and "nodeInfo" not in item.get("status", {}):
        return name
    ready = [entry["status"] for entry in item["status"]["conditions"] if entry["type"] == "Ready"]
    spec = item["spec"]
    labels = sorted(metadata.get("labels", {}).items())
    return f"{name} ready {ready} taints {spec.get('taints')} {spec.get('unschedulable')} {labels}"
