"""A lab under a supervisor, seen from outside: its machines and components, and its life cycle."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nodeproof.artifacts.components import Components
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import kubelet_configz
from nodeproof.labs.base.control_plane import ATTACHER_PORT, ComponentShell, Kubectl, as_machine_errors
from nodeproof.labs.base.planes import enter_plane
from nodeproof.labs.base.processes import last_console_lines, refusal
from nodeproof.labs.base.spec import API_ADDRESS, API_PORT, ETCD_PORT, ControlPlane, NodeSpec, control_planes
from nodeproof.labs.base.wire import MemoryUsage, NodeInfo, ServiceStatus, SupervisorClient, folder_of
from nodeproof.labs.client.handle import MANAGER, LabHandle
from nodeproof.labs.kinds import kind_named
from nodeproof.labs.kinds.kind import Access, Fleet, Kind, Lifecycle
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, Machine, MachineError, PowerAction
from nodeproof.machines.ssh import Host, SshAccess, SshMachine
from nodeproof.model.needs import ATTACHER, CLOUD, COMPONENTS, role_of
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

DOWN_TIMEOUT_S = 30.0
LOG_LINES = 10
_ASK_TIMEOUT_S = 10.0
_JOURNAL_TIMEOUT_S = 20.0
_LOST = {
    "memory for logs": "its components' log lines are lost",
    "memory": "its etcd and its machines cannot write; end it with `nodeproof down`",
}
_TRY_DOWN = "run `nodeproof down`"
_ANSWER_TIMEOUT_S = 1.0
_LOOPBACK = "127.0.0.1"
_PORTS: Mapping[str, int] = {
    "etcd": ETCD_PORT,
    "kube-apiserver": API_PORT,
    "kube-controller-manager": 10257,
    "kube-scheduler": 10259,
    CLOUD: 10258,
    ATTACHER: ATTACHER_PORT,
    CONTROL_PLANE: API_PORT,
}
"""The port where each component serves."""
_LEADERS: Mapping[int, str] = {_PORTS[name]: name for name in ("kube-controller-manager", "kube-scheduler")}
"""The components of which only a leader works, by their ports."""
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_ZONE_SIZE_METRIC = "node_collector_zone_size{"
"""Exported once the node lifecycle controller has processed the nodes."""
_WITHOUT_TLS = ("etcd", ATTACHER)
_HEALTH_REQUEST = b"GET /healthz HTTP/1.0\r\n\r\n"
SERVICES = tuple(_PORTS)


def supervised(folder: Path, components: Components, hold: socket.socket | None) -> LabHandle:
    """Return a running lab; `hold` is the connection that keeps it, if this process has to.

    Raises Problem.
    """
    supervisor = SupervisorClient(folder / "s")
    status = supervisor.status()
    kind = kind_named(status.kind)
    config = folder / "pki" / "admin.kubeconfig"
    planes = {plane.name: plane for plane in control_planes(status.overrides.control_planes) if plane.number}
    api = LeaderApi(config, supervisor.dial, planes) if planes else Api(config, supervisor.dial)
    own_kubectl = Kubectl(str(components.path("kubectl")), config)
    fleet = SupervisedFleet(folder, supervisor, api, kind, own_kubectl, planes)

    def kubectl(arguments: Sequence[str], timeout_s: float, stdin: str) -> Mapping[str, Json]:
        command = [own_kubectl.path, f"--kubeconfig={config}", *arguments]
        return supervisor.spawn_command(command, timeout_s, stdin)

    access = Access(
        dir=folder,
        features=frozenset(status.features),
        profile=status.profile,
        components=components,
        api=api,
        kubectl=kubectl,
        fleet=fleet,
        life=SupervisedLifecycle(folder, supervisor, hold, fleet.is_in_other_zone),
        switch=supervisor,
        armed_faults=lambda: supervisor.status().not_disarmed,
        upgrade_version=status.upgrade_version,
    )
    return LabHandle(kind, access)


Dial = Callable[[str, int, float], socket.socket]


class LeaderApi(Api):
    """The API of a lab with several control planes: the loopback URL of a component means its leader."""

    def __init__(self, config: Path, dial: Dial, planes: Mapping[str, ControlPlane]) -> None:
        super().__init__(config, dial)
        self._planes = planes

    def text_at(self, url: str) -> str:
        return super().text_at(self._at_leader(url))

    def get_at(self, base: str, path: str) -> Json:
        return super().get_at(self._at_leader(base), path)

    def _at_leader(self, url: str) -> str:
        for port, component in _LEADERS.items():
            own = f"https://{_LOOPBACK}:{port}"
            if url.startswith(own):
                plane = self._planes.get(leader(self, component))
                return f"https://{plane.address if plane else _LOOPBACK}:{port}{url.removeprefix(own)}"
        return url


def leader(api: Api, component: str) -> str:
    """Return the control plane whose replica of a component leads; empty if none does.

    It is the host name in the identity of client-go's leader election. Raises ApiError.
    """
    spec = api.get(f"{_LEASES}/{component}")["spec"]
    return str(spec.get("holderIdentity") or "").partition("_")[0]


@dataclass
class SupervisedFleet(Fleet):
    """The machines of one lab, reached and powered through their supervisor."""

    folder: Path
    supervisor: SupervisorClient
    api: Api
    kind: Kind
    kubectl: Kubectl
    planes: Mapping[str, ControlPlane]
    _machines: dict[tuple[str, str], Machine] = field(default_factory=dict, init=False)
    _zone: str = field(default="", init=False)
    _zones: dict[str, str] = field(default_factory=dict, init=False)

    def nodes(self) -> list[NodeInfo]:
        return [entry for entry in self._all() if self._zone in ("", entry.zone)]

    def _all(self) -> list[NodeInfo]:
        """Return the nodes of the whole lab."""
        nodes = list(self.supervisor.status().nodes)
        self._zones |= {entry.name: entry.zone for entry in nodes}
        return nodes

    def zones(self) -> list[str]:
        return sorted({entry.zone for entry in self._all()})

    def restrict_to_zone(self, zone: str) -> None:
        self._zone = zone

    def is_in_other_zone(self, name: str) -> bool:
        if not self._zone:
            return False
        if name not in self._zones:
            self._all()
        return self._zones.get(name, self._zone) != self._zone

    def free_slot(self) -> int:
        """Return a slot where a node may join; those of different zones never collide. Raises Problem."""
        step = len(self.zones()) if self._zone else 1
        return step + max(entry.slot for entry in self.nodes())

    def has(self, name: str) -> bool:
        return self._is_component(name) or name in {entry.name for entry in self._all()}

    def control_planes(self) -> Mapping[str, str]:
        return {name: plane.address for name, plane in self.planes.items()}

    def _is_component(self, name: str) -> bool:
        return name in SERVICES or (role_of(name) != name and bool(self._plane_of(name)))

    def _plane_of(self, name: str) -> ControlPlane | None:
        """Return the control plane of a replica, or the one of that name."""
        return self.planes.get(f"{CONTROL_PLANE}-{name.rpartition('-')[2]}")

    def machine(self, name: str, purpose: str = "scenario") -> Machine:
        key = (purpose, name)
        if key not in self._machines:
            self._machines[key] = self._reach(name)
        return self._machines[key]

    def _reach(self, name: str) -> Machine:
        if self._is_component(name):
            return self._component(name)
        nodes = {entry.name: entry for entry in self.nodes()}
        if name not in nodes:
            raise Problem(f"no node {name!r}", f"lab {self.folder.name}", f"it has: {', '.join(nodes)}")
        info = nodes[name]
        pki, api_address = self.folder / "pki", self.supervisor.status().control_plane_address
        addresses = info.control_address, info.data_address, api_address
        host_key = (pki / f"{name}.hostkey").read_text().strip()
        access = SshAccess(name, *addresses, pki / "ssh", host_key)
        return SshMachine(access, self.supervisor.dial, SupervisedHost(self.supervisor, self.api))

    def _component(self, name: str) -> ServiceMachine:
        plane, role = self._plane_of(name), role_of(name)
        own_host = API_ADDRESS if name in ("kube-apiserver", CONTROL_PLANE) else _LOOPBACK
        hosts = {name: plane.address if plane else own_host}
        if role in COMPONENTS and plane is None and self.planes:
            hosts = {plane.component(role): plane.address for plane in self.planes.values()}
        served_at = {replica: (host, _PORTS[role]) for replica, host in hosts.items()}
        machine_type = PlaneMachine if name in self.planes else ServiceMachine
        bundle = self.folder / "pki" / "ca.crt"
        return machine_type(name, self.kubectl, self.machine, self.supervisor, self.api, bundle, served_at)

    def dial(self, host: str, port: int, timeout_s: float, source: str = "") -> socket.socket:
        return self.supervisor.dial(host, port, timeout_s, source)

    def command_lines(self) -> Mapping[str, Sequence[str]]:
        services = self.supervisor.status().services
        return {role_of(name): service.argv for name, service in services.items() if service.argv}

    def owner(self, name: str) -> str:
        return self.kind.owner(self._run, name)

    def _run(self, argv: Sequence[str]) -> str:
        return str(self.supervisor.spawn_command(list(argv), _ASK_TIMEOUT_S)["stdout"])

    def join(self, spec: NodeSpec) -> None:
        self._forget(spec.name)
        self.supervisor.spawn_node(asdict(spec))
        # A machine of that name may have left another zone.
        self._zones[spec.name] = spec.zone

    def leave(self, name: str) -> None:
        try:
            self.supervisor.power(name, "remove")
        finally:
            self._forget(name)
            self._zones.pop(name, None)

    def _forget(self, name: str) -> None:
        """Drop connections to a machine: it may have left, and another may get its name."""
        for key in [key for key in list(self._machines) if key[1] == name]:
            self._machines.pop(key).close()

    def fetch_journals(self, into: Path) -> None:
        with contextlib.suppress(Problem), ThreadPoolExecutor(4) as pool:
            names = [entry.name for entry in self.nodes() if entry.is_on]
            list(pool.map(lambda name: self._fetch_journal(name, into), names))

    def _fetch_journal(self, name: str, into: Path) -> None:
        argv = ["journalctl", "--boot", "--output=short-precise", "--no-pager"]
        with contextlib.suppress(MachineError, Problem, OSError):
            journal = self.machine(name).run(argv, timeout_s=_JOURNAL_TIMEOUT_S).stdout
            into.mkdir(exist_ok=True)
            (into / f"journal-{name}.log").write_text(journal)

    def close(self) -> None:
        for machine in list(self._machines.values()):
            machine.close()


@dataclass
class SupervisedLifecycle(Lifecycle):
    """The life cycle of one lab: its supervisor reports its state and ends it."""

    folder: Path
    supervisor: SupervisorClient
    hold: socket.socket | None
    is_in_other_zone: Callable[[str], bool]
    _logs: int | None = None

    def check_alive(self) -> None:
        for name, how in self.supervisor.status().died.items():
            if self.is_in_other_zone(name.partition("-")[2]):
                continue
            log_lines = self.last_lines(name)
            message = ": ".join(filter(None, (f"{name} {how}", refusal(log_lines))))
            raise Problem(message, f"lab {self.folder.name}", "its last log lines follow", log_lines)

    def has_control_plane(self) -> bool:
        return not set(COMPONENTS) & set(map(role_of, self.supervisor.status().died))

    @property
    def logs(self) -> Path:
        if self._logs is None:
            self._logs = self.supervisor.logs()
        return folder_of(self._logs)

    def last_lines(self, component: str) -> str:
        logs = self.logs
        log = logs / f"{component}.log"
        if not log.exists():
            # A guest ("node-NAME", "kubelet-NAME") logs to its console.
            log = logs / f"console-{component.partition('-')[2]}.log"
        return last_console_lines(log.read_text(errors="replace"), LOG_LINES) if log.exists() else ""

    def full_parts(self, since_t: float | None = None) -> list[str]:
        return [
            f"lab {self.folder.name}: its {name} {verb} full ({usage.size_bytes >> 20} MiB): {_LOST[name]}"
            for name, usage in self.supervisor.status().memory.items()
            if (verb := _is_or_was(usage, since_t))
        ]

    def close(self) -> None:
        if self.hold is not None:
            self.hold.close()
        if self._logs is not None:
            os.close(self._logs)
            self._logs = None

    def down(self) -> None:
        end(self.supervisor)
        self.close()


def _is_or_was(usage: MemoryUsage, since_t: float | None) -> str:
    """Return "is" if a part of a lab's memory is full, "was" if it was since a time, else ""."""
    if usage.is_full:
        return "is"
    was_t = usage.full_t
    return "was" if was_t is not None and since_t is not None and was_t >= since_t else ""


def end(supervisor: SupervisorClient) -> None:
    """Tear a lab down, and wait until its supervisor, which removes everything, has ended.

    Raises Problem, also if the lab's folder stays.
    """
    process = supervisor.process()
    try:
        supervisor.down()
        exit_poll = select.poll()
        exit_poll.register(process, select.POLLIN)
        has_ended = bool(exit_poll.poll(1000 * DOWN_TIMEOUT_S))
    finally:
        os.close(process)
    folder = supervisor.path.parent
    if not has_ended:
        raise Problem(f"the supervisor still runs after {DOWN_TIMEOUT_S:g} s", str(folder), _TRY_DOWN)
    if folder.exists():
        raise Problem("the supervisor ended and left its folder", str(folder), _TRY_DOWN)


@dataclass(frozen=True)
class SupervisedHost(Host):
    """Power and witness of one lab's nodes through its supervisor, and their kubelets through its API."""

    supervisor: SupervisorClient
    api: Api

    def power(self, node: str, action: PowerAction) -> None:
        with as_machine_errors():
            self.supervisor.power(node, action)

    def is_powered(self, node: str) -> bool:
        return any(entry.name == node and entry.is_on for entry in self.supervisor.status().nodes)

    def kubelet_configuration(self, node: str) -> Mapping[str, Json]:
        try:
            return kubelet_configz(self.api, node)
        except (ApiError, Problem) as error:
            raise MachineError(f"{node}: /configz: {error}") from error

    def probe_port(self) -> int:
        return self.supervisor.status().witness_port

    def has_received(self, token: str) -> bool:
        return token in self.supervisor.status().received


@dataclass
class ServiceMachine(ComponentShell):
    """One component, reached through its lab's supervisor; its only network probe is whether it answers.

    `served_at` is the address and port where it serves, by its name, or where each of its replicas does: then
    it is off if none runs, and healthy if all are.
    """

    supervisor: SupervisorClient
    api: Api
    bundle: Path
    served_at: Mapping[str, tuple[str, int]]

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the lab's namespaces and the folder of the components' settings.

        `kubectl` is the lab's. Raises MachineError.
        """
        with as_machine_errors():
            folder = self.supervisor.status().settings
            command = self.kubectl.wrap(folder, argv)
            return CommandResult(**self.supervisor.spawn_command(command, timeout_s, stdin))

    def power(self, action: PowerAction) -> None:
        """Stop, start, freeze or thaw the component. Raises MachineError."""
        with as_machine_errors():
            self.supervisor.power(self.name, action)

    def is_powered(self) -> bool:
        """Return whether it, or a replica, runs."""
        return self.name == CONTROL_PLANE or any(status.pid is not None for status in self._statuses())

    def boot_id(self) -> str:
        """Return its process ids, which change with each start."""
        return " ".join(str(status.pid) for status in self._statuses())

    def command(self) -> Sequence[str]:
        """Return the command line of the next start, of the first replica. Raises Problem."""
        return tuple(self._statuses()[0].argv)

    def answers_on_control(self) -> bool:
        """Return whether it, or a replica, answers a request."""
        return any(self._answers(*address) for address in self.served_at.values())

    def refuses_on_control(self) -> bool:
        """Return whether its port, or that of each replica, refuses connections."""
        return all(self._refuses(*address) for address in self.served_at.values())

    def reached_from_control_plane(self) -> bool:
        """Return whether it, or a replica, answers."""
        return self.answers_on_control()

    def reaches_control_plane(self) -> bool:
        """Return whether it, or each replica, answers."""
        return all(self._answers(*address) for address in self.served_at.values())

    def serves_kubelet(self) -> bool:
        """Return whether it, or each replica, answers, and it does its work: it has no kubelet.

        A controller manager answers for a second before its controllers run, and ends if the API server
        restarts in that second.
        """
        if not self.reaches_control_plane():
            return False
        try:
            if self.name == "kube-controller-manager":
                return _ZONE_SIZE_METRIC in self.api.text_at(f"{MANAGER}/metrics")
            if role_of(self.name) in ("kube-apiserver", CONTROL_PLANE):
                host, port = self.served_at.get(self.name, (API_ADDRESS, API_PORT))
                return bool(self.api.text_at(f"https://{host}:{port}/readyz"))
        except ApiError:
            return False
        return True

    def _answers(self, host: str, port: int) -> bool:
        """Return whether a request is answered: the kernel accepts connections of a frozen process, too."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            sock = sockets.enter_context(self.supervisor.dial(host, port, _ANSWER_TIMEOUT_S))
            sock.settimeout(_ANSWER_TIMEOUT_S)
            if role_of(self.name) not in _WITHOUT_TLS:
                context = ssl.create_default_context(cafile=str(self.bundle))
                sock = sockets.enter_context(context.wrap_socket(sock, server_hostname=host))
            sock.sendall(_HEALTH_REQUEST)
            return bool(sock.recv(1))
        return False

    def _refuses(self, host: str, port: int) -> bool:
        try:
            self.supervisor.dial(host, port, _ANSWER_TIMEOUT_S).close()
        except OSError as error:
            return isinstance(error, ConnectionRefusedError)
        return False

    def kubelet_configuration(self) -> Mapping[str, Json]:
        """Raise MachineError: it has no kubelet."""
        raise MachineError(f"{self.name} has no kubelet")

    def close(self) -> None:
        """Do nothing: it keeps no connection open."""

    def _statuses(self) -> Sequence[ServiceStatus]:
        services = self.supervisor.status().services
        return [services[replica] for replica in self.served_at]


@dataclass
class PlaneMachine(ServiceMachine):
    """One of several control planes, with its components; commands run in its network."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command in its network and the folder of the components' settings. Raises MachineError."""
        pid = self._statuses()[0].pid
        if pid is None:
            raise MachineError(f"{self.name} is off")
        return ServiceMachine.run(self, [*enter_plane(pid), *argv], timeout_s=timeout_s, stdin=stdin)

    def serves_kubelet(self) -> bool:
        """Return whether its API server is ready, and its other components answer."""
        number = self.name.rpartition("-")[2]
        parts = [self.machine(f"{role}-{number}") for role in COMPONENTS]
        return ServiceMachine.serves_kubelet(self) and all(
            part.is_powered() and isinstance(part, ServiceMachine) and part.answers_on_control()
            for part in parts
        )
