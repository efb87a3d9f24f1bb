"""The control plane of a lab: its credentials, command lines, components as machines, and CSI driver."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nodeproof.labs.base.network import BRIDGES
from nodeproof.labs.base.nodes import LinkState
from nodeproof.labs.base.pki import Authority, Pair, pair_in, service_account_key, service_account_pair
from nodeproof.labs.base.planes import Planes
from nodeproof.labs.base.processes import (
    AUDIT_LIMIT_MB,
    EventLog,
    Processes,
    inherited_environment,
    refusal,
    run_command,
)
from nodeproof.labs.base.profiles import ELECTING, fixed_flags, profile_named
from nodeproof.labs.base.spec import (
    API_ADDRESS,
    API_PORT,
    DRIVER,
    ETCD_PEER_PORT,
    ETCD_PORT,
    ControlPlane,
    LabSpec,
)
from nodeproof.labs.base.wire import ServiceStatus
from nodeproof.machines.machine import CONTROL_PLANE, CommandResult, MachineError, PowerAction, Shell
from nodeproof.model.cluster import SERVICE_ADDRESS
from nodeproof.model.needs import ATTACHER, CLOUD, role_of
from nodeproof.model.problem import Problem
from nodeproof.waiting import retry_on

READY_TIMEOUT_S = 120.0
UID_TIMEOUT_S = 60.0
ATTACHER_USER = "csi-attacher"
"""The name of the service account to which its manifests bind its role."""
SERVICE_RANGE = "10.96.0.0/16"
ONLY = ControlPlane()
"""The control plane of a lab that has only one."""
_LEASES = {"group": "coordination.k8s.io", "resources": ["leases"]}
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["get"], "resources": [_LEASES]},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


def issue_credentials(folder: Path, planes: Sequence[ControlPlane]) -> Authority:
    """Create a lab's authority, and the pairs of the control plane's components and clients in its folder."""
    authority = Authority(folder)
    local = ["localhost", *{"127.0.0.1", *(plane.address for plane in planes)}]
    service = ["kubernetes", "kubernetes.default", API_ADDRESS, SERVICE_ADDRESS, BRIDGES["control"]]
    authority.issue("admin", "nodeproof-admin", "system:masters")
    authority.issue("apiserver", "kube-apiserver", hosts=[*service, *local])
    authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    authority.issue("controller-manager", "system:kube-controller-manager")
    authority.issue("scheduler", "system:kube-scheduler")
    authority.issue(ATTACHER, ATTACHER_USER)
    authority.issue("component-server", "component-server", hosts=local)
    service_account_key(folder)
    return authority


def kubeconfig(pair: Pair, authority: Path, user: str, address: str = API_ADDRESS) -> str:
    """Return a kubeconfig for one identity and one address of the API (JSON, which is YAML)."""
    cluster = {"server": f"https://{address}:{API_PORT}", "certificate-authority": str(authority)}
    client = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        }
    )


def write_kubeconfig(authority: Authority, name: str, plane: ControlPlane = ONLY) -> Path:
    """Write the kubeconfig of a client that uses the API server of a control plane; return its path."""
    path = authority.folder / f"{plane.component(name)}.kubeconfig"
    pair = pair_in(authority.folder, name)
    path.write_text(kubeconfig(pair, authority.bundle, name, plane.api_address))
    return path


def etcd(spec: LabSpec, data: Path, plane: ControlPlane = ONLY) -> list[str]:
    """Return the command of a control plane's etcd; its data is in memory, as it need not outlive the lab.

    The only one listens on loopback, several on a network of the control planes.
    """
    own = {
        "name": plane.name,
        "data-dir": str(data),
        "listen-client-urls": _client_url(plane),
        "advertise-client-urls": _client_url(plane),
        "listen-peer-urls": _peer_url(plane),
        "initial-advertise-peer-urls": _peer_url(plane),
        "initial-cluster": ",".join(f"{other.name}={_peer_url(other)}" for other in spec.control_planes),
        "log-level": "warn",
    }
    return _command(spec, "etcd", own)


def _client_url(plane: ControlPlane) -> str:
    return f"http://{plane.address}:{ETCD_PORT}"


def _peer_url(plane: ControlPlane) -> str:
    return f"http://{plane.address}:{ETCD_PEER_PORT}"


def api_server(spec: LabSpec, authority: Authority, logs: Path, plane: ControlPlane = ONLY) -> list[str]:
    """Return the command of kube-apiserver with TLS, RBAC, Node authorizer, NodeRestriction and audit log.

    It uses the etcd of its control plane, and advertises the address of the balancer, if there is one.
    """
    folder = authority.folder
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    client, service_account = pair_in(folder, "apiserver-kubelet"), service_account_pair(folder)
    own = {
        **_server_flags(authority, "apiserver"),
        "etcd-servers": _client_url(plane),
        "bind-address": "0.0.0.0",  # noqa: S104  the lab's own network namespace
        "advertise-address": API_ADDRESS,
        "secure-port": str(API_PORT),
        "cert-dir": str(folder),
        "kubelet-certificate-authority": str(authority.bundle),
        "kubelet-client-certificate": str(client.cert),
        "kubelet-client-key": str(client.key),
        "service-cluster-ip-range": SERVICE_RANGE,
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": str(service_account.cert),
        "service-account-signing-key-file": str(service_account.key),
        "audit-policy-file": str(policy),
        "audit-log-path": str(logs / f"{plane.component('audit')}.jsonl"),
        "audit-log-maxsize": str(AUDIT_LIMIT_MB),
        "audit-log-maxbackup": "1",
    }
    return _command(spec, "kube-apiserver", own, profile_named(spec.profile).api_server)


def controller_manager(spec: LabSpec, authority: Authority, plane: ControlPlane) -> list[str]:
    """Return the command of kube-controller-manager with the profile's timing."""
    own = {
        **_client_flags(authority, "controller-manager", plane),
        "root-ca-file": str(authority.bundle),
        "service-account-private-key-file": str(service_account_pair(authority.folder).key),
    }
    return _command(spec, "kube-controller-manager", own, profile_named(spec.profile).controller_manager)


def scheduler(spec: LabSpec, authority: Authority, plane: ControlPlane) -> list[str]:
    """Return the command of kube-scheduler with upstream's defaults, except for leader election."""
    return _command(spec, "kube-scheduler", _client_flags(authority, "scheduler", plane))


def cloud_controller_manager(spec: LabSpec, authority: Authority) -> list[str]:
    """Return the command of cloud-controller-manager with the node lifecycle controller only.

    It uses kube-controller-manager's identity. Faults set by flags what its cloud answers and whether it
    initializes nodes.
    """
    own = {
        **_client_flags(authority, "controller-manager", ONLY),
        "cloud-provider": "nodeproof",
        "controllers": "cloud-node-lifecycle-controller",
        "leader-elect": "false",
        "use-service-account-credentials": "true",
    }
    return _command(spec, CLOUD, own, profile_named(spec.profile).cloud_controller_manager)


_NO_FLAGS: Mapping[str, str] = {}


def _command(
    spec: LabSpec, component: str, own: Mapping[str, str], profile: Mapping[str, str] = _NO_FLAGS
) -> list[str]:
    """Return a component's command line.

    Args:
        spec: the lab.
        component: the name of the component and of its executable.
        own: the flags without which the lab does not work.
        profile: the flags of the profile, which those of the user replace.

    Raises:
        Problem: The user sets one of the lab's own flags.
    """
    spec.overrides.refuse_own(component, own)
    fixed = fixed_flags(profile_named(spec.profile), len(spec.control_planes))
    settings = {**fixed.get(component, {}), **profile, **spec.overrides.of(component)}
    return [spec.binary(component), *flags({**own, **settings})]


def _client_flags(authority: Authority, name: str, plane: ControlPlane) -> dict[str, str]:
    """Write the kubeconfig of a component that uses the API server; return the flags of each."""
    config = write_kubeconfig(authority, name, plane)
    clients = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return {**dict.fromkeys(clients, str(config)), **_server_flags(authority, "component-server")}


def _server_flags(authority: Authority, name: str) -> dict[str, str]:
    """Return the flags of a component that serves clients of the lab with the pair `name`."""
    pair = pair_in(authority.folder, name)
    return {
        "client-ca-file": str(authority.bundle),
        "tls-cert-file": str(pair.cert),
        "tls-private-key-file": str(pair.key),
    }


def get(authority: Authority, path: str, timeout_s: float, address: str = API_ADDRESS) -> tuple[int, bytes]:
    """GET a path of an API server as the lab's admin. Raises OSError, http.client.HTTPException."""
    admin = pair_in(authority.folder, "admin")
    context = ssl.create_default_context(cafile=str(authority.bundle))
    context.load_cert_chain(admin.cert, admin.key)
    connection = http.client.HTTPSConnection(address, API_PORT, timeout=timeout_s, context=context)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def wait_ready(authority: Authority, dead: Callable[[], str], plane: ControlPlane = ONLY) -> None:
    """Wait until /readyz answers 200. Raises Problem if a component has died, or after READY_TIMEOUT_S."""

    def check_ready() -> None:
        if died := dead():
            name, _newline, last_lines = died.partition("\n")
            message = ": ".join(filter(None, (f"{name} died while the lab started", refusal(last_lines))))
            raise Problem(message, "lab", "its last log lines follow", last_lines)
        status, body = get(authority, "/readyz", 2, plane.api_address)
        if status != 200:
            raise OSError(f"/readyz: {status} {body[-200:]!r}")

    try:
        retry_on(check_ready, OSError, http.client.HTTPException, timeout_s=READY_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as error:
        message = f"the API server is not ready after {READY_TIMEOUT_S:g} s: {error}"
        raise Problem(message, "lab", "see the log of kube-apiserver") from error


def kube_system_uid(authority: Authority) -> str:
    """Return the UID that identifies the cluster, once its kube-system namespace exists.

    Raises OSError, http.client.HTTPException or KeyError after UID_TIMEOUT_S.
    """

    def fetch_uid() -> str:
        _status, body = get(authority, "/api/v1/namespaces/kube-system", 5)
        return str(json.loads(body)["metadata"]["uid"])

    # The API server may be slow now: all kubelets of a large lab are starting.
    return retry_on(fetch_uid, OSError, http.client.HTTPException, KeyError, timeout_s=UID_TIMEOUT_S)


def flags(settings: Mapping[str, str]) -> list[str]:
    """Return the command line options of flags."""
    return [f"--{name}={value}" for name, value in settings.items()]


ATTACHER_PORT = 10261
"""Next to the ports of Kubernetes; external-attacher has no default port."""
DISKS = "disks"
"""The script, beside the folders of components, that lists and changes the hypervisor's disks."""
_WITH_DRIVER = """
served=
{node_script}
setpriv --pdeathsig=KILL -- sh -c 'setpriv --pdeathsig=KILL -- "$@"; kill -KILL "$PPID"' \\
    beside {driver} $served &
exec "$0" "$@"
"""
"""PDEATHSIG ends the driver whenever its parent dies. The other direction needs the explicit kill:
external-attacher ends by itself only if it was connected to the driver before.
"""


@dataclass(frozen=True)
class DriverFolders:
    """Where a lab's driver keeps its files.

    `settings` contains the component's own folder, `home`, for its state; `nodes` contains the folders of the
    nodes.
    """

    spec: LabSpec
    settings: Path
    nodes: Path

    @property
    def home(self) -> Path:
        """The component's own folder."""
        return self.settings / ATTACHER


@dataclass(frozen=True)
class DriverOptions:
    """How a kind of lab serves the driver.

    `options` name the hypervisor and how to reach its nodes. `node_script` is a shell script that sets
    `served` to the options for the nodes that exist when it runs.
    """

    options: Sequence[str]
    node_script: str


DriverFactory = Callable[[DriverFolders], DriverOptions]


def external_attacher(folders: DriverFolders, served: DriverOptions, authority: Authority) -> list[str]:
    """Return the command that runs external-attacher, with upstream's defaults, and the CSI driver.

    If either of the two ends, so does the other. Also writes the script `DISKS`. Raises OSError.
    """
    home, volumes = folders.home, folders.spec.volumes
    python = ["env", f"PYTHONPATH={volumes[DRIVER]}", sys.executable, "-P", "-B", "-m"]
    disks = shlex.join([*python, "infra.csi.disks", *served.options])
    (folders.settings / DISKS).write_text(f'exec {disks} "$@"\n')
    files = [f"--endpoint=unix://{home}/csi.sock", f"--calls={home}/calls.jsonl"]
    driver = shlex.join([*python, "infra.csi", *served.options, *files])
    own = {
        "csi-address": f"{home}/csi.sock",
        "http-endpoint": f"127.0.0.1:{ATTACHER_PORT}",
        "kubeconfig": str(write_kubeconfig(authority, ATTACHER)),
    }
    script = _WITH_DRIVER.format(node_script=served.node_script, driver=driver)
    return ["sh", "-c", script, volumes[ATTACHER], *flags(own)]


_EXITS = ("leaderelection lost", "unable to load configmap", "connection refused")
"""Last log lines, in lower case, of a component that exits because it lost its Lease, or as its API server is
not up (cmd/kube-scheduler/app, k8s.io/apiserver/pkg/server/options/authentication.go).
"""
_RESTART_S = 1.0
"""How long after its exit such a component starts again."""
_VERSIONS = "versions"
STATE_FOLDER = ".state"
"""The `state_folder` of components, below the folder of their settings."""
_FIND_FIRST = 'PATH=$0:$PATH; export PATH; exec "$@"'


@contextlib.contextmanager
def as_machine_errors() -> Iterator[None]:
    """Raise a Problem in the block as a MachineError of one line."""
    try:
        yield
    except Problem as problem:
        raise MachineError(problem.line) from problem


@dataclass(frozen=True)
class Kubectl:
    """The lab's own kubectl, with its administrator's kubeconfig."""

    path: str
    kubeconfig: Path

    def wrap(self, folder: str, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs in `folder`, with this kubectl on PATH and its KUBECONFIG."""
        tools = str(Path(self.path).parent)
        settings = [f"--chdir={folder}", f"KUBECONFIG={self.kubeconfig}"]
        return ["env", *settings, "sh", "-c", _FIND_FIRST, tools, *argv]


@dataclass
class Services:
    """The components by name.

    `folder` contains a folder per component for the flags and versions that faults set; `machine` returns the
    shell of any machine of the lab. In a lab with several control planes, a component's own name means all
    its replicas, as `etcd` does `etcd-1`, `etcd-2` and `etcd-3`; `planes` are the machines that they run on.
    """

    processes: Processes
    planes: Planes
    folder: Path
    events: EventLog
    kubectl: Kubectl
    machine: Callable[[str], Shell]
    _argv: dict[str, Sequence[str]] = field(default_factory=dict, init=False)
    _started: set[str] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Create the folder."""
        self.folder.mkdir(exist_ok=True)

    def __contains__(self, name: str) -> bool:
        return name == CONTROL_PLANE or name in self.names

    @property
    def names(self) -> Set[str]:
        """The names of the components, of those that have replicas, and of the control planes."""
        return {*self._argv, *map(role_of, self._argv), *self.planes.names}

    @property
    def hosts(self) -> Mapping[str, str]:
        """The control plane that each replica runs on, and each control plane itself."""
        replicas = {name: self.planes.host_of(name) for name in self._argv}
        return {name: host for name, host in replicas.items() if host} | {
            name: name for name in self.planes.names
        }

    def register(self, name: str, argv: Sequence[str]) -> None:
        """Register the command of a component that only faults start."""
        self._argv[name] = argv
        for folder in (name, role_of(name)):
            (self.folder / folder).mkdir(exist_ok=True)

    def add_version(self, version: str, executables: Mapping[str, str]) -> None:
        """Link executables of another version to `versions/VERSION/COMPONENT`, where faults find them."""
        folder = self.folder / _VERSIONS / version
        folder.mkdir(parents=True)
        for name, path in executables.items():
            (folder / name).symlink_to(path)

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Register a component's command and start it. Raises CommandFailed."""
        self.register(name, argv)
        self._start(name)

    def _start(self, name: str) -> None:
        host = self.planes.host_of(name)
        on_exit = partial(self._may_exit, name) if host and role_of(name) in ELECTING else None
        self.processes.start(name, [*self.planes.enter(host), *self.command(name)], on_exit=on_exit)
        self._started.add(name)

    def _may_exit(self, name: str, last_output: str) -> bool:
        """Return whether a component may exit like this; start it again, as a kubelet does a static pod."""
        if not any(reason in last_output.lower() for reason in _EXITS):
            return False
        threading.Timer(_RESTART_S, self._restart, [name]).start()
        return True

    def _restart(self, name: str) -> None:
        """Start a component that exited, unless it was stopped meanwhile."""
        with self._lock:
            if name in self._started and self._is_startable(name):
                self._start(name)

    def command(self, name: str) -> list[str]:
        """Return a component's command line, in which flags and versions of faults replace the lab's.

        Faults on all replicas come before those on one.
        """
        argv, role = list(self._argv[name]), role_of(name)
        folders = [self.folder / folder for folder in dict.fromkeys((role, name))]
        for path in [path for folder in folders for path in folder.glob("*.version")]:
            argv[0] = str(self.folder / _VERSIONS / path.read_text() / role)
        for path in [path for folder in folders for path in sorted(folder.glob("*.json"))]:
            for flag, value in json.loads(path.read_text()).items():
                argv = [entry for entry in argv if not entry.startswith(f"--{flag}=")]
                argv.append(f"--{flag}={value}")
        return argv

    def power(self, name: str, action: PowerAction) -> None:
        """Stop (SIGKILL), start, freeze or thaw a component, with all its replicas, or a control plane.

        If its state is already as wanted, do nothing.

        Raises:
            Problem: the component or the action is unknown.
            CommandFailed: the component does not start.
        """
        verbs: Mapping[PowerAction, Callable[[str], None]] = {
            "off": self._off,
            "on": self._on,
            "freeze": partial(self._signal, signal.SIGSTOP, "down", "frozen"),
            "thaw": partial(self._signal, signal.SIGCONT, "up", "thawed"),
        }
        if name not in self.names or action not in verbs:
            raise Problem(f"no {action} for {name}", "control plane", f"there are: {', '.join(verbs)}")
        with self._lock:
            verbs[action](name)

    def status(self) -> Mapping[str, ServiceStatus]:
        pids = self.processes.pids()
        components = {name: ServiceStatus(pids.get(name), self.command(name)) for name in list(self._argv)}
        return components | {name: ServiceStatus(pid, ()) for name, pid in self.planes.pids().items()}

    def shell(self, name: str) -> ServiceShell:
        """Return the component's shell for the supervisor."""
        return ServiceShell(name, self.kubectl, self.machine, self, self.folder)

    def is_running(self, name: str) -> bool:
        """Return whether the component's process runs; the control plane as a whole always does."""
        return name == CONTROL_PLANE or any(part in self.processes.pids() for part in self._parts(name))

    def _parts(self, name: str) -> list[str]:
        """Return the components that a name means: one, all replicas of one, or those of a control plane."""
        if name in self._argv:
            return [name]
        return [part for part in self._argv if name in (role_of(part), self.planes.host_of(part))]

    def _off(self, name: str) -> None:
        parts = self._parts(name)
        # First, so that no peer gets a FIN.
        self.planes.set_link(name, "down")
        self.processes.expect_end(parts)
        self._started -= {*parts}
        for part in parts:
            self.processes.kill(part)
        self.planes.end(name)
        self.events.write("machine", node=name, step="powered-off")

    def _on(self, name: str) -> None:
        self.planes.boot(name)
        stopped = [part for part in self._parts(name) if self._is_startable(part)]
        for part in stopped:
            self._start(part)
        if stopped:
            self.events.write("machine", node=name, step="booted")

    def _is_startable(self, component: str) -> bool:
        """Return whether a component does not run, on a machine that is on: others start with theirs."""
        host = self.planes.host_of(component)
        is_on = not host or self.planes.pid(host) is not None
        return is_on and component not in self.processes.pids()

    def _signal(self, number: signal.Signals, link: LinkState, step: str, name: str) -> None:
        self.planes.set_link(name, link)
        running = self.processes.pids()
        pids = [running[part] for part in self._parts(name) if part in running]
        for pid in pids:
            os.kill(pid, number)
        if pids:
            self.events.write("machine", node=name, step=step)


@dataclass
class ComponentShell:
    """A component as a machine; `machine` returns the shell of any machine of the lab."""

    name: str
    kubectl: Kubectl
    machine: Callable[[str], Shell]

    data_address = API_ADDRESS
    control_plane_addresses = (API_ADDRESS,)
    state_folder = STATE_FOLDER

    def beside(self, name: str) -> Shell:
        """Return the shell of another machine of the lab. Raises MachineError if there is none."""
        with as_machine_errors():
            return self.machine(name)


@dataclass
class ServiceShell(ComponentShell):
    """Shell and power of one component or control plane; commands run in the folder of the settings."""

    services: Services
    folder: Path

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        """Run a command in the lab's namespaces, or in a control plane's network.

        Raises MachineError if it does not end in time.
        """
        with as_machine_errors():
            enter = self.services.planes.enter(self.name)
        command = [*enter, *self.kubectl.wrap(str(self.folder), argv)]
        return run_command(command, timeout_s, stdin, inherited_environment())

    def is_powered(self) -> bool:
        """Return whether the component's process runs."""
        return self.services.is_running(self.name)

    def power(self, action: PowerAction) -> None:
        """Do a power action to the component. Raises Problem, CommandFailed."""
        self.services.power(self.name, action)
