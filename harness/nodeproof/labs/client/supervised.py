"""A lab under a supervisor, seen from outside: its machines and its life cycle."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import Api
from nodeproof.labs.client.cluster import Cluster
from nodeproof.labs.client.fleet import NodeInfo
from nodeproof.labs.client.host import SupervisedHost
from nodeproof.labs.client.lab import Lab
from nodeproof.labs.client.leases import Leases
from nodeproof.labs.client.safety import Safety
from nodeproof.labs.client.service import SERVICES, ServiceMachine
from nodeproof.labs.ground.logs import last_words
from nodeproof.labs.ground.profiles import profile_named
from nodeproof.labs.ground.services import Kubectl
from nodeproof.labs.ground.spec import AS_ALL, NodeSpec, Shape
from nodeproof.labs.ground.wire import SupervisorClient, folder_of
from nodeproof.labs.kinds import kind_named
from nodeproof.labs.kinds.kind import Kind
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.machines.ssh import SshAccess, SshMachine
from nodeproof.model.needs import COMPONENTS
from nodeproof.model.problem import Problem
from nodeproof.waiting import until_empty

Json = Any
DOWN_LIMIT_S = 30.0
LOG_LINES = 10
_ASK_LIMIT_S = 10.0
_JOURNAL_LIMIT_S = 20.0
_LOST = {
    "memory for logs": "its components' log lines are lost",
    "memory": "its etcd and its machines cannot write; end it with `nodeproof down`",
}


def supervised(folder: Path, components: Components, hold: socket.socket | None) -> Lab:
    """Return a running lab; `hold` is the connection that keeps it, if this process has to.

    Raises Problem.
    """
    supervisor = SupervisorClient(folder / "s")
    status = supervisor.status()
    kind = kind_named(str(status["kind"]))
    features = frozenset(status.get("features", kind.features))
    config = folder / "pki" / "admin.kubeconfig"
    api = Api(config, supervisor.dial)
    own_kubectl = Kubectl(str(components.path("kubectl")), config)
    fleet = SupervisedFleet(folder, supervisor, api, kind, own_kubectl)

    def kubectl(arguments: Sequence[str], limit_s: float, stdin: str) -> Mapping[str, Json]:
        command = [own_kubectl.path, f"--kubeconfig={config}", *arguments]
        return supervisor.spawn_command(command, limit_s, stdin)

    return Lab(
        dir=folder,
        kind=kind,
        features=features,
        profile=profile_named(str(status["profile"])),
        components=components,
        cluster=Cluster(api, kubectl),
        fleet=fleet,
        safety=Safety(
            folder, api, fleet, supervisor, lambda: supervisor.status()["not_disarmed"], "systemd" in features
        ),
        life=SupervisedLife(folder, supervisor, hold, fleet.is_others),
        leases=Leases(folder),
    )


class SupervisedFleet:
    """The machines of one lab, reached and powered through their supervisor."""

    def __init__(
        self, folder: Path, supervisor: SupervisorClient, api: Api, kind: Kind, kubectl: Kubectl
    ) -> None:
        self._kubectl = kubectl
        self._pki = folder / "pki"
        self._lab = folder.name
        self._supervisor = supervisor
        self._api = api
        self._kind = kind
        self._machines: dict[tuple[str, str], Machine] = {}
        self._zone = ""
        self._zones: dict[str, str] = {}

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes, on or off. Raises Problem."""
        return [entry for entry in self._all() if self._zone in ("", entry.zone)]

    def _all(self) -> list[NodeInfo]:
        """Return the nodes of the whole lab."""
        fields = ("name", "slot", "zone", "on", "control_address", "data_address", "machine_id")
        nodes = [
            NodeInfo(**{key: entry[key] for key in fields}) for entry in self._supervisor.status()["nodes"]
        ]
        self._zones |= {entry.name: entry.zone for entry in nodes}
        return nodes

    def zones(self) -> list[str]:
        """Return the zones of the whole lab. Raises Problem."""
        return sorted({entry.zone for entry in self._all()})

    def narrow(self, zone: str) -> None:
        """Restrict the fleet to the nodes of one zone from now on."""
        self._zone = zone

    def is_others(self, name: str) -> bool:
        """Return whether a node is in another zone. Raises Problem."""
        if not self._zone:
            return False
        if name not in self._zones:
            self._all()
        return self._zones.get(name, self._zone) != self._zone

    def free_slot(self) -> int:
        """Return a slot where a node may join; those of different zones never collide. Raises Problem."""
        step = len(self.zones()) if self._zone else 1
        return step + max(entry.slot for entry in self.nodes())

    def node_names(self) -> list[str]:
        """Return the nodes' names. Raises Problem."""
        return [entry.name for entry in self.nodes()]

    def has(self, name: str) -> bool:
        """Return whether a node, or a control plane component, of that name exists. Raises Problem."""
        return name in SERVICES or name in self.node_names()

    def machine(self, name: str, purpose: str = "scenario") -> Machine:
        """Return a node, a control plane component or the whole control plane as a machine.

        Its connection stays open, one per purpose: a command's timeout cuts off all commands that share a
        connection.

        Raises Problem if there is no such machine.
        """
        key = (purpose, name)
        if key not in self._machines:
            self._machines[key] = self._reach(name)
        return self._machines[key]

    def _reach(self, name: str) -> Machine:
        if name in SERVICES:
            bundle = self._pki / "ca.crt"
            return ServiceMachine(name, self._supervisor, self._api, bundle, self._kubectl, self.machine)
        nodes = {entry.name: entry for entry in self.nodes()}
        if name not in nodes:
            raise Problem(f"no node {name!r}", f"lab {self._lab}", f"it has: {', '.join(nodes)}")
        info = nodes[name]
        host_key = (self._pki / f"{name}.hostkey").read_text().strip()
        api_address = str(self._supervisor.status()["control_plane_address"])
        key = self._pki / "ssh"
        access = SshAccess(name, info.control_address, info.data_address, api_address, key, host_key)
        return SshMachine(access, self._supervisor.dial, SupervisedHost(self._supervisor, self._api))

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        """Return the command line of each control plane component. Raises Problem."""
        return {name: service["argv"] for name, service in self._supervisor.status()["services"].items()}

    def owner(self, name: str) -> str:
        """Return a node's owner according to its hypervisor; empty without one. Raises Problem."""
        return self._kind.owner(self._run, name)

    def _run(self, argv: Sequence[str]) -> str:
        return str(self._supervisor.spawn_command(list(argv), _ASK_LIMIT_S)["stdout"])

    def join(
        self,
        name: str,
        zone: str,
        slot: int,
        kubelet: Mapping[str, Json],
        flags: Sequence[str] = (),
        node: str = "",
        shape: Shape = AS_ALL,
    ) -> None:
        """Let a machine join as `Fleet` describes it. Raises Problem."""
        spec = NodeSpec(name, slot, zone, uuid.uuid4().hex, kubelet, tuple(flags), node, shape)
        self._forget(name)
        self._supervisor.spawn_node(asdict(spec))

    def leave(self, name: str) -> None:
        """Power a node off for good. Raises Problem."""
        try:
            self._supervisor.power(name, "remove")
        finally:
            self._forget(name)

    def _forget(self, name: str) -> None:
        """Drop connections to a machine: it may have left, and another may get its name."""
        for key in [key for key in list(self._machines) if key[1] == name]:
            self._machines.pop(key).close()

    def fetch_journals(self, into: Path) -> None:
        """Fetch the present boot's journals of the machines; skip those that do not answer."""
        with contextlib.suppress(Problem), ThreadPoolExecutor(4) as pool:
            names = [entry.name for entry in self.nodes() if entry.on]
            list(pool.map(lambda name: self._fetch_journal(name, into), names))

    def _fetch_journal(self, name: str, into: Path) -> None:
        argv = ["journalctl", "--boot", "--output=short-precise", "--no-pager"]
        with contextlib.suppress(MachineError, Problem, OSError):
            journal = self.machine(name).run(argv, deadline_s=_JOURNAL_LIMIT_S).stdout
            into.mkdir(exist_ok=True)
            (into / f"journal-{name}.log").write_text(journal)

    def close(self) -> None:
        """Close all connections."""
        for machine in list(self._machines.values()):
            machine.close()


class SupervisedLife:
    """The life cycle of one lab: its supervisor reports its state and ends it."""

    def __init__(
        self,
        folder: Path,
        supervisor: SupervisorClient,
        hold: socket.socket | None,
        is_others: Callable[[str], bool],
    ) -> None:
        self._dir = folder
        self._supervisor = supervisor
        self._hold = hold
        self._is_others = is_others
        self._logs: int | None = None

    def check_alive(self) -> None:
        """Raise Problem, with the last log lines, if a component has died; ignore nodes of other zones."""
        for name, how in self._supervisor.status()["died"].items():
            if self._is_others(name.partition("-")[2]):
                continue
            log_lines = self.last_lines(name)
            raise Problem(f"{name} {how}", f"lab {self._dir.name}", "its last log lines follow", log_lines)

    def has_control_plane(self) -> bool:
        """Return whether no control plane component has died. Raises Problem."""
        return not set(COMPONENTS) & set(self._supervisor.status()["died"])

    @property
    def logs(self) -> Path:
        """The folder of the components' logs, until the lab is closed. Raises Problem."""
        if self._logs is None:
            self._logs = self._supervisor.logs()
        return folder_of(self._logs)

    def last_lines(self, component: str) -> str:
        """Return the end of a component's log; empty if it has none. Raises Problem."""
        logs = self.logs
        log = logs / f"{component}.log"
        if not log.exists():
            # A guest ("node-NAME", "kubelet-NAME") logs to its console.
            log = logs / f"console-{component.partition('-')[2]}.log"
        return last_words(log.read_text(errors="replace"), LOG_LINES) if log.exists() else ""

    def full(self, since_t: float | None = None) -> list[str]:
        """Describe each part of the lab's memory that is full, or was since a time (s, monotonic).

        Raises Problem.
        """
        return [
            f"lab {self._dir.name}: its {name} {verb} full ({usage['size_bytes'] >> 20} MiB): {_LOST[name]}"
            for name, usage in self._supervisor.status().get("memory", {}).items()
            if (verb := _is_or_was(usage, since_t))
        ]

    def close(self) -> None:
        """Give up the lab; it stays, unless no other process holds it."""
        if self._hold is not None:
            self._hold.close()
        if self._logs is not None:
            os.close(self._logs)
            self._logs = None

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        self._supervisor.down()
        self.close()
        wait_gone(self._dir)


def _is_or_was(usage: Mapping[str, Json], since_t: float | None) -> str:
    """Return "is" if a part of a lab's memory is full, "was" if it was since a time, else ""."""
    if usage.get("is_full"):
        return "is"
    was_t = usage.get("full_t")
    return "was" if was_t is not None and since_t is not None and was_t >= since_t else ""


def wait_gone(folder: Path) -> None:
    """Wait until a lab's folder is gone. Raises Problem if it stays."""
    remaining = until_empty(lambda: [str(folder)] if folder.exists() else [], limit_s=DOWN_LIMIT_S)
    if remaining:
        raise Problem(f"{folder} is still there after {DOWN_LIMIT_S:g} s", "lab", "run `nodeproof down`")
