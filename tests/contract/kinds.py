"""The kinds of lab that pass these tests; a new kind is one more in KINDS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodeproof.artifacts.components import Components
from nodeproof.faults import Fault
from nodeproof.faults.machine import Clock, Freeze, HugePages, LinkDown, PowerOff, Reset, Swap
from nodeproof.faults.partition import Partition
from nodeproof.faults.settings import KubeletSettings, ReplaceFile
from nodeproof.faults.units import CancelledShutdown, KubeProxy, Shutdown, UnitDown, UnitUp
from nodeproof.labs.client import starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import LIBVIRT, PROCESS, VAGRANT


@dataclass(frozen=True)
class Kind:
    """A kind of lab.

    Attributes:
        nodes: How many nodes it is tried with.
        namespaces: How many namespaces it has at least with one node.
        credentials: Where the lab's side sees a node's credentials, below the node's own folder.
        boot_s: How long a node boots at most.
        lacks: The faults that it cannot have, each with the reason in short.
    """

    name: str
    nodes: int
    namespaces: int
    credentials: str
    boot_s: float
    lacks: Mapping[str, str] = field(default_factory=dict)

    def start(self, components: Components, nodes: int) -> LabHandle:
        """Start a lab with this many Ready nodes. Raises Problem."""
        request = starting.LabRequest(starting.new_name(), nodes, 1, "fast", False, self.name)
        return starting.up(request, components, print)

    def node_files(self, lab: LabHandle, node: str) -> Path:
        """Return where the lab's side sees a node's credentials."""
        return lab.dir / "mem" / "nodes" / node / self.credentials


_PROCESS = Kind(
    PROCESS.name,
    nodes=3,
    namespaces=6,
    credentials="run/node",
    boot_s=0.0,
    lacks={
        **dict.fromkeys(("called-off", "called-off-held", "shutdown", "shutdown-forced"), "logind"),
        **dict.fromkeys(("huge-pages", "swap"), "kernel of its own"),
        "clock": "clock of its own",
        "unit-up": "systemd",
    },
)
_LIBVIRT = Kind(
    LIBVIRT.name,
    nodes=2,
    namespaces=3,
    credentials="seed/root/etc/kubernetes",
    boot_s=90.0,
    lacks={"kube-proxy": "its host cannot start one"},
)
KINDS = {kind.name: kind for kind in (_PROCESS, _LIBVIRT, replace(_LIBVIRT, name=VAGRANT.name))}

FAULTS: Mapping[str, Callable[[str], Fault]] = {
    "partition-both": Partition,
    "partition-node-to-api": lambda node: Partition(node, "node-to-api"),
    "partition-api-to-node": lambda node: Partition(node, "api-to-node"),
    "partition-rejects": lambda node: Partition(node, answer="reject"),
    "power-off": PowerOff,
    "reset": Reset,
    "freeze": Freeze,
    "link-down": LinkDown,
    "shutdown": Shutdown,
    "shutdown-forced": lambda node: Shutdown(node, "forced"),
    "called-off": CancelledShutdown,
    "called-off-held": lambda node: CancelledShutdown(node, delay_s=60),
    "clock": lambda node: Clock(node, ahead_s=600),
    "huge-pages": HugePages,
    "swap": lambda node: Swap(node, used_mib=16),
    "other-file": lambda node: ReplaceFile(node, "/etc/motd.nodeproof-test", "another\n"),
    "kube-proxy": KubeProxy,
    "unit-down": UnitDown,
    "unit-up": lambda node: UnitUp(node, "exec sleep infinity"),
    "kubelet-settings": lambda node: KubeletSettings(node, {"shutdownGracePeriod": "90s"}),
}
