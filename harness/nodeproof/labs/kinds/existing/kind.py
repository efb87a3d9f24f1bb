"""Somebody's own cluster as a kind of lab: its inventory identifies it, and only marked nodes are faulted."""

from __future__ import annotations

import getpass
import os
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from nodeproof import terminal
from nodeproof.artifacts.components import Components
from nodeproof.cluster.resources import POD_NAMESPACE
from nodeproof.cluster.workloads import PodSettings
from nodeproof.existing.configuration import read_configuration
from nodeproof.existing.connection import ConnectedCluster, connected
from nodeproof.existing.inspection import ssh_config
from nodeproof.existing.inventory import Inventory
from nodeproof.existing.marks import machine_id
from nodeproof.hints import page
from nodeproof.labs.base.profiles import DOCUMENTED
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.kinds.existing.consent import FAULTS, MarkedNodes, marked_nodes, zone_of
from nodeproof.labs.kinds.existing.fleet import ClusterFleet, ClusterLife
from nodeproof.labs.kinds.existing.lock import ClusterLock
from nodeproof.labs.kinds.existing.machine import api_endpoints
from nodeproof.labs.kinds.existing.switch import PowerSwitch
from nodeproof.labs.kinds.kind import Access, Consent, Kind, Limits
from nodeproof.model.problem import Problem
from nodeproof.safety.injector import NEVER, AbortPoll

Json = Any
CLIENT = "nodeproof-run"
RIGHTS = f"what {page('docs/how-to/harm-your-cluster.md')} lists"
_FAKE_RUNTIME = "fakeRuntime://"
"""Runtime of hollow kubelets (FakeRuntimeName in k8s.io/cri-api/pkg/apis/testing)."""
_REQUESTS_PER_S = 100.0
"""Sentinels and probes measure time: they must not wait for each other."""


def connect(inventory: str) -> Access:
    """Attach the cluster of an inventory file, and take its lock.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the cluster refuses, or another process is
            using it.
    """
    path = Path(inventory)
    with ExitStack() as stack:
        cluster = stack.enter_context(connected(path, CLIENT, RIGHTS, _REQUESTS_PER_S))
        ssh = stack.enter_context(ssh_config(cluster.inventory))
        lock = ClusterLock(cluster.api, _holder(), str(path), terminal.say)
        lock.take()
        stack.callback(lock.release)
        api_endpoints(cluster.api)
        parent = stack.enter_context(tempfile.TemporaryDirectory(prefix="nodeproof-"))
        folder = Path(parent) / _name(cluster)
        (folder / "logs").mkdir(parents=True)
        nodes, version = cluster.nodes(), str(cluster.api.get("/version")["gitVersion"])
        fleet = _fleet(cluster, ssh, nodes)
        # From here on, the life cycle releases the lock and the connections.
        held = stack.pop_all()
        consent = MarkedNodes(cluster, folder.name, ssh)
        return Access(
            dir=folder,
            features=_features([nodes[name] for name in fleet.node_names()]),
            profile=DOCUMENTED.name,
            components=Components(version, {}, hollow_from_tree=True),
            api=cluster.api,
            kubectl=_refuse_kubectl,
            fleet=fleet,
            life=ClusterLife(folder, lock, cluster.api, list(fleet.addresses), held),
            switch=PowerSwitch(cluster.inventory, ssh),
            armed_faults=lambda: (),
            consent=Consent(
                consent.record, consent.permit, consent.check_open, _abort_poll(cluster.inventory)
            ),
            ledger=lock,
            heal_command=f"nodeproof heal --cluster {path}",
            pods=_pod_settings(cluster.inventory),
            read_configuration=partial(
                read_configuration, cluster.api, version, fleet.node_names(), str(path), DOCUMENTED
            ),
        )


def _abort_poll(inventory: Inventory) -> AbortPoll:
    """Return the poll of an inventory's conditions, if it has any."""
    if not inventory.abort.conditions:
        return NEVER
    return AbortPoll(inventory.abort_reasons, inventory.abort.period_s)


def _pod_settings(inventory: Inventory) -> PodSettings | None:
    return PodSettings(POD_NAMESPACE, inventory.pod_image, True) if inventory.pod_image else None


def _features(marked: Sequence[Json]) -> frozenset[str]:
    """Return the features of a cluster; without containers on a marked node, it has no real pods."""
    runtimes = [str(node["status"]["nodeInfo"]["containerRuntimeVersion"]) for node in marked]
    is_fake = any(runtime.startswith(_FAKE_RUNTIME) for runtime in runtimes)
    return EXISTING.features - ({"real-pods"} if is_fake else set())


def _fleet(cluster: ConnectedCluster, ssh: Path, nodes: Mapping[str, Json]) -> ClusterFleet:
    addresses = {name: _internal_address(node) for name, node in nodes.items()}
    marked = [
        NodeInfo(name, slot, zone_of(node), True, name, addresses[name], machine_id(node))
        for slot, (name, node) in enumerate(marked_nodes(cluster, nodes).items(), 1)
    ]
    inventory = cluster.inventory
    return ClusterFleet(str(inventory.path), marked, inventory.nodes, addresses, cluster.api, ssh)


def _internal_address(node: Json) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((str(entry["address"]) for entry in addresses if entry["type"] == "InternalIP"), "")


def _holder() -> str:
    """Return who runs this process, for other users of the cluster."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"


def _name(cluster: ConnectedCluster) -> str:
    """Return a name for messages and files: the context's."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", cluster.access.context).strip(".-") or "cluster"


def _refuse_kubectl(arguments: Sequence[str], _timeout_s: float, _stdin: str) -> NoReturn:
    """Raise Problem: no scenario runs kubectl on somebody's own cluster."""
    raise Problem(f"kubectl {' '.join(arguments[:1])} is refused", "somebody's own cluster", "use a lab")


EXISTING = Kind(
    "existing",
    features=frozenset({"power", "real-pods", "systemd"}),
    limits=Limits(nodes=5000, labs_per_core=0, zones_per_core=0, common_nodes=5000),
    connect=connect,
    only_faults=FAULTS,
)
