"""The specification of a lab and of its nodes, and the paths of its files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nodeproof.cache import unfinished
from nodeproof.machines.machine import CONTROL_PLANE
from nodeproof.model.overrides import NO_OVERRIDES, Overrides
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

RUNTIME_ROOT = Path("/run/nodeproof")
DRIVER = "csi-driver"
"""The key in `LabSpec.volumes` of the folder that the CSI driver is imported from."""
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
"""The namespaces of a lab, as options of `unshare`."""
CONTROL_NET = "10.78"
DATA_NET = "10.77"
PLANES_NET = "10.79"
API_ADDRESS = f"{DATA_NET}.0.1"
API_PORT = 6443
OUTSIDE_ADDRESS = "203.0.113.1"
"""An address of the lab in none of its networks: requests from it come from outside of the cluster."""
KUBELET_PORT = 10250
ETCD_PORT, ETCD_PEER_PORT = 2379, 2380
SSH_PORT = 22
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Shape:
    """The hardware of a machine that differs from its lab's other nodes.

    `memory_mib` (0: the lab's default) and `cpus` are split evenly over `numa_nodes`; `kernel` are additional
    kernel arguments.
    """

    memory_mib: int = 0
    cpus: int = 1
    numa_nodes: int = 1
    kernel: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check that memory and CPUs split evenly. Raises Problem."""
        if self.cpus % self.numa_nodes or self.memory_mib % self.numa_nodes:
            hardware = f"{self.cpus} CPUs and {self.memory_mib} MiB"
            message = f"{hardware} do not split evenly into {self.numa_nodes} NUMA nodes"
            raise Problem(message, "shape", f"use multiples of {self.numa_nodes}")


DEFAULT_SHAPE = Shape()
"""The lab's default shape."""


@dataclass(frozen=True)
class NodeSpec:
    """The specification of one machine.

    `slot` determines its addresses, which it keeps over power cycles. `kubelet` overrides fields of its
    KubeletConfiguration, `flags` are additional kubelet flags, `node` is the name of its Node if it differs
    from the machine's, and `shape` is its hardware.
    """

    name: str
    slot: int
    zone: str
    machine_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    kubelet: Mapping[str, Json] = field(default_factory=dict)
    flags: Sequence[str] = ()
    node: str = ""
    shape: Shape = DEFAULT_SHAPE

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> NodeSpec:
        """Build a spec from the output of `asdict`. Raises TypeError for anything else."""
        fields = dict(data.get("shape", {}))
        shape = Shape(**{**fields, "kernel": tuple(fields.get("kernel", ()))})
        return cls(**{**data, "flags": tuple(data.get("flags", ())), "shape": shape})

    @property
    def node_name(self) -> str:
        """The name of its Node."""
        return self.node or self.name

    @property
    def data_address(self) -> str:
        """The address on the cluster's network."""
        return f"{DATA_NET}.{1 + self.slot // 200}.{1 + self.slot % 200}"

    @property
    def control_address(self) -> str:
        """The address on the SSH network, which no fault touches."""
        return f"{CONTROL_NET}.{1 + self.slot // 200}.{1 + self.slot % 200}"


@dataclass(frozen=True)
class ControlPlane:
    """One control plane of a lab, with every component.

    The `number` of the only one is 0; it has no network of its own.
    """

    number: int = 0

    @property
    def name(self) -> str:
        """The name of its machine, and of its member of etcd."""
        return self.component(CONTROL_PLANE)

    @property
    def address(self) -> str:
        """The address of its etcd."""
        return f"{PLANES_NET}.0.{10 + self.number}" if self.number else "127.0.0.1"

    @property
    def api_address(self) -> str:
        """The address at which its own components reach its API server."""
        return self.address if self.number else API_ADDRESS

    def component(self, role: str) -> str:
        """Return the name of one of its components."""
        return f"{role}-{self.number}" if self.number else role


def control_planes(count: int) -> tuple[ControlPlane, ...]:
    """Return the control planes of a lab that has so many."""
    return tuple(map(ControlPlane, range(1, count + 1))) if count > 1 else (ControlPlane(),)


@dataclass(frozen=True)
class LabSpec:
    """Everything that the supervisor needs to build one lab.

    `guest` contains what virtual machines boot: kernel, initrd, disk, arguments. `volumes` contains the paths
    of the programs that a lab with volumes runs, whether they are built yet or not. `harness_nice` is the
    nice value of the session that measures (`nodeproof.labs.base.autogroup`). `overrides` are the settings of
    the user. `kubelets` and `guests` contain the path of the nodes' kubelet, and what virtual machines boot,
    of each version that is not the lab's own; `upgrades` the path of each component's executable of
    `upgrade_version`.
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
    overrides: Overrides = NO_OVERRIDES
    kubelets: Mapping[str, str] = field(default_factory=dict)
    upgrade_version: str = ""
    upgrades: Mapping[str, str] = field(default_factory=dict)
    guests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def dir(self) -> Path:
        """The lab's runtime folder."""
        return RUNTIME_ROOT / self.lab

    @property
    def control_planes(self) -> tuple[ControlPlane, ...]:
        """The lab's control planes."""
        return control_planes(self.overrides.control_planes)

    def unfinished_snapshots(self) -> list[Path]:
        """Return the unfinished snapshots that killed labs left in the cache."""
        guests = (self.guest, *self.guests.values())
        folders = [Path(guest["snapshots"]) for guest in guests if "snapshots" in guest]
        return [path for folder in folders for path in unfinished(folder)]

    def give_to_owner(self, paths: Iterable[Path]) -> None:
        """Give files of root's to the lab's owner; skip one that is gone. Raises OSError."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.chown(path, self.owner_uid, self.owner_gid, follow_symlinks=False)

    def binary(self, role: str) -> str:
        """Return the path of a role's executable."""
        return self.components[role]["path"]

    def kubelet(self, node: NodeSpec, role: str) -> str:
        """Return the path of the executable that runs a node's kubelet; `role` is that of the lab's kind."""
        return self.kubelets.get(self.overrides.version_of(node.slot)) or self.binary(role)

    def guest_of(self, node: NodeSpec) -> Mapping[str, str]:
        """Return what a node's virtual machine boots."""
        return self.guests.get(self.overrides.version_of(node.slot), self.guest)

    def to_json(self) -> str:
        """Serialize the spec for the supervisor."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LabSpec:
        """Parse the output of `to_json`. Raises ValueError for anything else."""
        data: dict[str, Json] = json.loads(text)
        try:
            nodes = tuple(map(NodeSpec.from_json, data["nodes"]))
            return cls(**{**data, "nodes": nodes, "overrides": Overrides.from_json(data["overrides"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a lab spec: {error}") from error


def check_node_name(name: str) -> str:
    """Check that a node name is a DNS label (RFC 1123). Raises Problem."""
    if not _NAME.fullmatch(name):
        message = f"node name {name!r} is not a DNS label"
        raise Problem(message, "lab", "use lower case letters, digits and dashes")
    return name
