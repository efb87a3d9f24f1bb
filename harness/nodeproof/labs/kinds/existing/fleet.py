"""The machines and the life cycle of somebody's own cluster, which outlives the harness."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE, SENTINEL, WATCHED, node, pod
from nodeproof.existing.inventory import ListedNode
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.kinds.existing.lock import ClusterLock
from nodeproof.labs.kinds.existing.machine import ClusterMachine
from nodeproof.labs.kinds.kind import Fleet, Lifecycle
from nodeproof.machines.machine import Machine
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.history import SENTINEL_ANNOTATION
from nodeproof.model.problem import Problem


@dataclass(frozen=True)
class ClusterFleet(Fleet):
    """The machines of a cluster: its nodes are those with a valid mark when it was attached.

    `addresses` has the internal address of every Node, and `listed` are the nodes of the inventory.
    """

    where: str
    marked: Sequence[NodeInfo]
    listed: Mapping[str, ListedNode]
    addresses: Mapping[str, str]
    api: Api
    ssh: Path

    def nodes(self) -> list[NodeInfo]:
        return list(self.marked)

    def zones(self) -> list[str]:
        return sorted({entry.zone for entry in self.marked})

    def restrict_to_zone(self, zone: str) -> None:
        """Raise Problem: its zones are not leased."""
        self._refuse(f"zone {zone} cannot be leased")

    def is_in_other_zone(self, name: str) -> bool:
        del name
        return False

    def free_slot(self) -> int:
        """Raise Problem: no machine joins."""
        self._refuse("no machine can join")

    def has(self, name: str) -> bool:
        """Return whether a node has that name, marked or not: a mark may expire before a fault is healed."""
        return name in self.listed or name in self.addresses

    def machine(self, name: str, purpose: str = "") -> Machine:
        del purpose
        if not self.has(name):
            self._refuse(f"no node {name!r}")
        power = self.listed[name].power if name in self.listed else None
        return ClusterMachine(OpenSsh(name, self.ssh), self.api, self.addresses.get(name, ""), power)

    def dial(self, host: str, port: int, timeout_s: float, source: str = "") -> socket.socket:
        """Raise Problem: the harness is in none of its networks."""
        del timeout_s, source
        self._refuse(f"{host}:{port} cannot be dialled")

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        return {}

    def owner(self, name: str) -> str:
        del name
        return ""

    def join(self, spec: NodeSpec) -> None:
        """Raise Problem: no machine joins."""
        self._refuse(f"{spec.name} cannot join")

    def leave(self, name: str) -> None:
        """Raise Problem: no machine leaves."""
        self._refuse(f"{name} cannot leave")

    def fetch_journals(self, into: Path) -> None:
        """Do nothing: the journals are the owner's."""

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def _refuse(self, what: str) -> NoReturn:
        raise Problem(what, self.where, "run this in a lab")


@dataclass(frozen=True)
class ClusterLife(Lifecycle):
    """The life cycle of a cluster that is only attached; `held` are its folder, lock and connections."""

    folder: Path
    lock: ClusterLock
    api: Api
    nodes: Sequence[str]
    held: ExitStack

    def check_alive(self) -> None:
        """Raise Problem if the lock is lost."""
        self.lock.check()

    def has_control_plane(self) -> bool:
        return True

    @property
    def logs(self) -> Path:
        """An empty folder: the logs are the owner's."""
        return self.folder / "logs"

    def last_lines(self, component: str) -> str:
        del component
        return ""

    def full_parts(self, since_t: float | None = None) -> list[str]:
        del since_t
        return []

    def close(self) -> None:
        """Remove the sentinels, release the lock and disconnect; open faults stay in the ledger.

        Sentinels of who has taken the lock meanwhile stay.
        """
        with self.held:
            self._remove_sentinels()

    def _remove_sentinels(self) -> None:
        with contextlib.suppress(Problem):
            self.lock.check()
            self._remove_objects()

    def _remove_objects(self) -> None:
        for name in self.nodes:
            self._remove_sentinel_of(name)
        for path in (
            f"{WATCHED['leases']}/{SENTINEL}",
            pod(NAMESPACE, SENTINEL),
            f"/api/v1/namespaces/{NAMESPACE}/events/{SENTINEL}",
        ):
            with contextlib.suppress(ApiError):
                self.api.delete(path, grace_s=0)

    def down(self) -> None:
        """Close it: the cluster stays."""
        self.close()

    def _remove_sentinel_of(self, name: str) -> None:
        with contextlib.suppress(ApiError):
            annotations = self.api.get(node(name))["metadata"].get("annotations") or {}
            if SENTINEL_ANNOTATION in annotations:
                self.api.patch(node(name), {"metadata": {"annotations": {SENTINEL_ANNOTATION: None}}})
