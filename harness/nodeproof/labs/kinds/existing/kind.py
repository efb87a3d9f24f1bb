"""Somebody's own cluster as a kind of lab: its inventory identifies it, and only marked nodes are faulted.

It outlives the harness.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from nodeproof import terminal
from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE, POD_NAMESPACE, SENTINEL, WATCHED, node, pod
from nodeproof.cluster.workloads import PodSettings
from nodeproof.existing.configuration import read_configuration
from nodeproof.existing.connection import connected, local_user
from nodeproof.existing.inspection import ssh_config
from nodeproof.existing.inventory import INJECTABLE, ListedNode
from nodeproof.existing.marks import machine_id
from nodeproof.hints import page
from nodeproof.labs.base.profiles import DOCUMENTED
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.kinds.existing.consent import MarkedNodes, marked_nodes, zone_of
from nodeproof.labs.kinds.existing.lock import ClusterLock
from nodeproof.labs.kinds.existing.machine import ClusterMachine, PowerSwitch, api_endpoints
from nodeproof.labs.kinds.kind import Access, Consent, Fleet, Kind, Lifecycle, Limits
from nodeproof.machines.machine import Machine
from nodeproof.machines.openssh import OpenSsh
from nodeproof.model.history import SENTINEL_ANNOTATION
from nodeproof.model.problem import Problem
from nodeproof.safety.injector import NEVER, AbortPoll

Json = Any
CLIENT = "nodeproof-run"
RIGHTS = f"what {page('docs/how-to/harm-your-cluster.md')} lists"
_FAKE_RUNTIME = "fakeRuntime://"
"""Runtime of hollow kubelets (FakeRuntimeName in k8s.io/cri-api/pkg/apis/testing)."""
_REQUESTS_PER_S = 100.0
"""Sentinels and probes measure time: they must not wait for each other."""


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
        with self.held, contextlib.suppress(Problem):
            self.lock.check()
            self._remove_sentinels()

    def _remove_sentinels(self) -> None:
        for name in self.nodes:
            with contextlib.suppress(ApiError):
                annotations = self.api.get(node(name))["metadata"].get("annotations") or {}
                if SENTINEL_ANNOTATION in annotations:
                    removed = {"metadata": {"annotations": {SENTINEL_ANNOTATION: None}}}
                    self.api.patch(node(name), removed)
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


def connect(inventory_file: str) -> Access:
    """Attach the cluster of an inventory file, and take its lock.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the cluster refuses, or another process is
            using it.
    """
    path = Path(inventory_file)
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(path, CLIENT, RIGHTS, _REQUESTS_PER_S))
        api, inventory = cluster.api, cluster.inventory
        ssh = stack.enter_context(ssh_config(inventory))
        lock = ClusterLock(api, f"{local_user()} (process {os.getpid()})", str(path), terminal.say)
        lock.take()
        stack.callback(lock.release)
        api_endpoints(api)
        parent = stack.enter_context(tempfile.TemporaryDirectory(prefix="nodeproof-"))
        shown = re.sub(r"[^A-Za-z0-9.-]+", "-", cluster.access.context).strip(".-")
        folder = Path(parent) / (shown or "cluster")
        (folder / "logs").mkdir(parents=True)
        nodes, version = cluster.nodes(), str(api.get("/version")["gitVersion"])
        marked = marked_nodes(cluster, nodes)
        addresses = {name: _internal_address(node) for name, node in nodes.items()}
        consent, abort = MarkedNodes(cluster, folder.name, ssh), inventory.abort
        infos = [
            NodeInfo(name, slot, zone_of(node), True, name, addresses[name], machine_id(node))
            for slot, (name, node) in enumerate(marked.items(), 1)
        ]
        # From here on, the life cycle releases the lock and the connections.
        held = stack.pop_all()
        return Access(
            dir=folder,
            features=_features(marked),
            profile=DOCUMENTED.name,
            components=Components(version, {}, hollow_from_tree=True),
            api=api,
            kubectl=_refuse_kubectl,
            fleet=ClusterFleet(str(path), infos, inventory.nodes, addresses, api, ssh),
            life=ClusterLife(folder, lock, api, list(nodes), held),
            switch=PowerSwitch(inventory, ssh),
            armed_faults=lambda: (),
            consent=Consent(
                consent.record,
                consent.permit,
                consent.check_open,
                AbortPoll(inventory.abort_reasons, abort.period_s) if abort.conditions else NEVER,
            ),
            ledger=lock,
            heal_command=f"nodeproof heal --cluster {path}",
            pods=PodSettings(POD_NAMESPACE, inventory.pod_image, True) if inventory.pod_image else None,
            read_configuration=partial(
                read_configuration,
                *(api, version, list(marked), str(path)),
                slack_limit_s=DOCUMENTED.slack_limit_s,
                negative_wait_s=DOCUMENTED.negative_wait_s,
            ),
        )


def _internal_address(node: Json) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(entry["address"]) for entry in addresses if entry["type"] == "InternalIP"), "")


def _features(marked: Mapping[str, Json]) -> frozenset[str]:
    """Return the features of a cluster; without containers on a marked node, it has no real pods."""
    runtimes = [str(node["status"]["nodeInfo"]["containerRuntimeVersion"]) for node in marked.values()]
    is_fake = any(runtime.startswith(_FAKE_RUNTIME) for runtime in runtimes)
    return EXISTING.features - ({"real-pods"} if is_fake else set())


def _refuse_kubectl(arguments: Sequence[str], _timeout_s: float, _stdin: str) -> NoReturn:
    """Raise Problem: no scenario runs kubectl on somebody's own cluster."""
    raise Problem(f"kubectl {' '.join(arguments[:1])} is refused", "somebody's own cluster", "use a lab")


EXISTING = Kind(
    "existing",
    features=frozenset({"power", "real-pods", "systemd"}),
    limits=Limits(nodes=5000, labs_per_core=0, zones_per_core=0, common_nodes=5000),
    connect=connect,
    only_faults={fault.word: arguments for fault, arguments in INJECTABLE.items()},
)
