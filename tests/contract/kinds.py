"""The kinds of lab that pass these tests; a new kind is one line of KINDS."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeproof.artifacts.components import Components
from nodeproof.faults import (
    CalledOff,
    Clock,
    Fault,
    Freeze,
    HugePages,
    KubeletSettings,
    KubeProxy,
    LinkDown,
    OtherFile,
    Partition,
    PowerOff,
    Reset,
    Shutdown,
    Swap,
    UnitDown,
    UnitUp,
)
from nodeproof.labs.client import starting
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.ground.control_plane import SERVICE_ADDRESS
from nodeproof.labs.kinds import LIBVIRT, PROCESS, VAGRANT


@dataclass(frozen=True)
class Kind:
    """A kind of lab: how many nodes it is tried with, how many namespaces it has at least with one of them,
    where below a node's own folder the lab's side sees its credentials, how long one boots at most (s), and
    which faults it can't have, with a word of the reason.
    """

    name: str
    nodes: int
    namespaces: int
    credentials: str
    boot_s: float
    lacks: Mapping[str, str] = field(default_factory=dict)

    def start(self, components: Components, nodes: int) -> Lab:
        """A lab with so many nodes, all Ready. Raises Problem."""
        asked = starting.Request(starting.new_name(), nodes, 1, "fast", False, self.name)
        return starting.up(asked, components, print)

    def node_files(self, lab: Lab, node: str) -> Path:
        """Where the lab's side sees a node's credentials."""
        return lab.dir / "mem" / "nodes" / node / self.credentials


KINDS: Mapping[str, Kind] = {
    PROCESS.name: Kind(
        PROCESS.name,
        nodes=3,
        namespaces=6,
        credentials="run/node",
        boot_s=0.0,
        lacks={
            "called-off": "systemd",
            "called-off-held": "systemd",
            "clock": "clock of its own",
            "huge-pages": "kernel of its own",
            "shutdown": "systemd",
            "shutdown-forced": "systemd",
            "swap": "kernel of its own",
            "unit-up": "systemd",
        },
    ),
    LIBVIRT.name: Kind(
        LIBVIRT.name,
        nodes=2,
        namespaces=3,
        credentials="seed/root/etc/kubernetes",
        boot_s=90.0,
        lacks={"kube-proxy": "its host cannot start one"},
    ),
    VAGRANT.name: Kind(
        VAGRANT.name,
        nodes=2,
        namespaces=3,
        credentials="seed/root/etc/kubernetes",
        boot_s=90.0,
        lacks={"kube-proxy": "its host cannot start one"},
    ),
}

FAULTS: Mapping[str, Callable[[str], Fault]] = {
    "partition-both": lambda node: Partition(_new_id(), node, "both"),
    "partition-node-to-api": lambda node: Partition(_new_id(), node, "node-to-api"),
    "partition-api-to-node": lambda node: Partition(_new_id(), node, "api-to-node"),
    "partition-rejects": lambda node: Partition(_new_id(), node, answer="reject"),
    "power-off": lambda node: PowerOff(_new_id(), node),
    "reset": lambda node: Reset(_new_id(), node),
    "freeze": lambda node: Freeze(_new_id(), node),
    "link-down": lambda node: LinkDown(_new_id(), node),
    "shutdown": lambda node: Shutdown(_new_id(), node),
    "shutdown-forced": lambda node: Shutdown(_new_id(), node, "forced"),
    "called-off": lambda node: CalledOff(_new_id(), node),
    "called-off-held": lambda node: CalledOff(_new_id(), node, holds_s=60),
    "clock": lambda node: Clock(_new_id(), node, ahead_s=600),
    "huge-pages": lambda node: HugePages(_new_id(), node),
    "swap": lambda node: Swap(_new_id(), node, used_mib=16),
    "other-file": lambda node: OtherFile(_new_id(), node, "/etc/motd.nodeproof-test", "another\n"),
    "kube-proxy": lambda node: KubeProxy(_new_id(), node, SERVICE_ADDRESS),
    "unit-down": lambda node: UnitDown(_new_id(), node),
    "unit-up": lambda node: UnitUp(_new_id(), node, "exec sleep infinity"),
    "kubelet-settings": lambda node: KubeletSettings(_new_id(), node, {"shutdownGracePeriod": "90s"}),
}


def _new_id() -> str:
    return uuid.uuid4().hex[:8]
