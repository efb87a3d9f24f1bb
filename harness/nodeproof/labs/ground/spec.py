"""What a lab is asked to be, and where its things are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nodeproof.kept import half_made
from nodeproof.model.problem import Problem

Json = Any
RUNTIME_ROOT = Path("/run/nodeproof")
DRIVER = "csi-driver"
"""What a lab calls the folder that the CSI driver is imported from."""
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
"""A lab's own, as `unshare` takes them."""
CONTROL_NET = "10.78"
DATA_NET = "10.77"
API_ADDRESS = f"{DATA_NET}.0.1"
API_PORT = 6443
OUTSIDE_ADDRESS = "203.0.113.1"
"""Of the lab's own, in none of its networks: who asks from there is outside of the cluster."""
KUBELET_PORT = 10250
SSH_PORT = 22
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Shape:
    """A machine that is not like the others of its lab: so much memory (0: as much as they have) and so many
    CPUs, both in equal parts in so many NUMA nodes, and what its kernel is told besides.
    """

    memory_mib: int = 0
    cpus: int = 1
    numa_nodes: int = 1
    kernel: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises Problem where its NUMA nodes would not be alike."""
        if self.cpus % self.numa_nodes or self.memory_mib % self.numa_nodes:
            has = f"{self.cpus} CPUs and {self.memory_mib} MiB"
            raise Problem(
                f"{has} are no equal parts of {self.numa_nodes} NUMA nodes", "shape", "say a multiple of each"
            )


AS_ALL = Shape()
"""No other than the others."""


@dataclass(frozen=True)
class NodeSpec:
    """One machine to be: its slot gives its addresses, so that it keeps them over power cycles; `kubelet` are
    fields of its KubeletConfiguration that are not as in the rest of the lab, `flags` what its kubelet is
    told besides, `node` whose Node it is, where that is not called like the machine, and `shape` how it
    differs from the lab's others.
    """

    name: str
    slot: int
    zone: str
    machine_id: str
    kubelet: Mapping[str, Json] = field(default_factory=dict)
    flags: Sequence[str] = ()
    node: str = ""
    shape: Shape = AS_ALL

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> NodeSpec:
        """Read what `asdict` gave. Raises TypeError for anything else."""
        told = dict(data.get("shape", {}))
        shape = Shape(**{**told, "kernel": tuple(told.get("kernel", ()))})
        return cls(**{**data, "flags": tuple(data.get("flags", ())), "shape": shape})

    @property
    def node_name(self) -> str:
        """The name of its Node."""
        return self.node or self.name

    @property
    def data_address(self) -> str:
        """Address on the cluster's network."""
        return f"{DATA_NET}.{1 + self.slot // 200}.{1 + self.slot % 200}"

    @property
    def control_address(self) -> str:
        """Address on the SSH network, which no fault touches."""
        return f"{CONTROL_NET}.{1 + self.slot // 200}.{1 + self.slot % 200}"


@dataclass(frozen=True)
class LabSpec:
    """Everything the supervisor needs to build one lab.

    `guest` says, where nodes are virtual machines, what they boot: kernel, initrd, disk, arguments. `volumes`
    says where the programs are that a lab runs while it has volumes, whether they are built already or not.
    `harness_nice` is how nice the session is that measures (`nodeproof.labs.ground.autogroup`).
    """

    lab: str
    owner_uid: int
    owner_gid: int
    kubernetes_version: str
    components: Mapping[str, Mapping[str, str]]
    hollow_from_tree: bool
    sshd: str
    profile: str
    nodes: tuple[NodeSpec, ...]
    keep: bool
    kind: str
    guest: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    harness_nice: int = 0

    @property
    def dir(self) -> Path:
        """The lab's runtime folder."""
        return RUNTIME_ROOT / self.lab

    def half_made(self) -> list[Path]:
        """What killed labs left half made in the cache, where nodes are kept there."""
        return half_made(Path(self.guest["snapshots"])) if "snapshots" in self.guest else []

    def binary(self, role: str) -> str:
        """The executable of a role."""
        return self.components[role]["path"]

    def to_json(self) -> str:
        """As handed to the supervisor."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LabSpec:
        """Read what `to_json` wrote. Raises ValueError for anything else."""
        data: dict[str, Json] = json.loads(text)
        try:
            return cls(**{**data, "nodes": tuple(map(NodeSpec.from_json, data["nodes"]))})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no lab's spec: {error}") from error


def check_node_name(name: str) -> str:
    """Refuse a node name that is no DNS label (RFC 1123). Raises Problem."""
    if not _NAME.fullmatch(name):
        raise Problem(
            f"node name {name!r} is no DNS label", "lab", "use lower case letters, digits and dashes"
        )
    return name
