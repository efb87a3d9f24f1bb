"""The init of a lab: first process of its PID namespace, and the server of the eight verbs.

The supervisor runs it as `python -m nodeproof.labs.supervisor.init SPEC SOCKET PIPE`, in new network, mount,
PID, UTS and IPC namespaces. SOCKET is the listening Unix socket; PIPE closes when the supervisor ends. The
first process only reaps children; when it ends, the kernel kills all others. Its dead-man's switches heal
faults whose harness has exited or hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from nodeproof import proc, terminal
from nodeproof.disk import write_private
from nodeproof.faults import Fault, plugin_errors
from nodeproof.faults.fence import heal_fenced
from nodeproof.labs.base import autogroup, control_plane, network, wire
from nodeproof.labs.base.control_plane import Kubectl, Services
from nodeproof.labs.base.mounts import Memory, logs_in, mount_etc, mount_memory, protect_host
from nodeproof.labs.base.nodes import NodeEnvironment
from nodeproof.labs.base.pki import ssh_key
from nodeproof.labs.base.planes import BALANCER, Planes, balancer, set_up_network
from nodeproof.labs.base.processes import EventLog, Processes, inherited_environment, limit_size
from nodeproof.labs.base.spec import API_ADDRESS, ControlPlane, LabSpec, NodeSpec
from nodeproof.labs.base.stalls import record_stalls
from nodeproof.labs.base.wire import LabStatus
from nodeproof.labs.kinds import KINDS, kind_named
from nodeproof.machines.machine import Shell
from nodeproof.model.needs import ATTACHER, CLOUD, COMPONENTS
from nodeproof.model.pattern import Json
from nodeproof.model.problem import OutsideError, Problem

_RETRY_PERIOD_S = 1.0


@dataclass
class _Switch:
    """One arming of a fault's switch, due at `due_t` (s) of the monotonic clock.

    `ended` is set once the switch is renewed or disarmed, or has healed the fault.
    """

    fault: Mapping[str, Json]
    due_t: float
    ended: threading.Event = field(default_factory=threading.Event)


class Deadman:
    """Heals faults whose time to live has passed; the harness arms, renews and disarms them."""

    def __init__(self, heal: Callable[[Mapping[str, Json]], None], events: EventLog) -> None:
        self._heal = heal
        self._events = events
        self._lock = threading.Lock()
        self._switches: dict[str, _Switch] = {}
        self._disarmed: set[str] = set()

    def arm(self, fault: Mapping[str, Json], ttl_s: float) -> None:
        """Arm or renew the switch of `fault`; a `ttl_s` of 0 disarms it for good.

        Raises Problem if it was disarmed before: a late renewal must not arm it again.
        """
        fault_id = str(fault["id"])
        switch = _Switch(dict(fault), time.monotonic() + ttl_s)
        with self._lock:
            if fault_id in self._switches:
                self._switches[fault_id].ended.set()
            if ttl_s <= 0:
                self._switches.pop(fault_id, None)
                self._disarmed.add(fault_id)
                return
            if fault_id in self._disarmed:
                message = f"the switch of fault {fault_id} was disarmed"
                raise Problem(message, f"dead-man's switch of {fault['node']}", "inject a new fault")
            self._switches[fault_id] = switch
        threading.Thread(target=self._wait, args=(switch, ttl_s), daemon=True).start()

    def armed(self) -> Mapping[str, float]:
        """Return the armed switches and the seconds that each has left."""
        now = time.monotonic()
        with self._lock:
            armed = {name: switch for name, switch in self._switches.items() if not switch.ended.is_set()}
        return {fault_id: round(switch.due_t - now, 1) for fault_id, switch in armed.items()}

    def faults(self) -> list[Mapping[str, Json]]:
        """Return the faults that were armed and never disarmed, oldest first.

        No probe confirmed that they are healed.
        """
        with self._lock:
            return [switch.fault for switch in self._switches.values()]

    def _wait(self, switch: _Switch, ttl_s: float) -> None:
        """Heal the fault unless the switch ends before its time.

        Retry any error without a limit: the target may be recovering itself, such as a node that boots.
        """
        if switch.ended.wait(ttl_s):
            return
        self._log("deadman", switch)
        has_failed = False
        while not switch.ended.is_set():
            try:
                self._heal(switch.fault)
                switch.ended.set()
            except Exception as error:
                if not has_failed and not switch.ended.is_set():
                    reason = str(error).partition("\n")[0] or type(error).__name__
                    self._log("deadman-failed", switch, reason=reason)
                has_failed = True
                switch.ended.wait(_RETRY_PERIOD_S)

    def _log(self, kind: str, switch: _Switch, **data: Json) -> None:
        self._events.write(kind, id=switch.fault["id"], node=switch.fault["node"], **data)


_EXPECTED = (Problem, OutsideError, proc.CommandFailed)
"""Errors whose message says what happened."""
LINGER_S = 60.0
"""How long a lab that is not kept outlives the last client that holds it."""
_LOG_TAIL_LINES = 15
STORES, CONTROLLERS = COMPONENTS[:2], COMPONENTS[2:]
"""The components that a control plane needs first, and those that need a ready API server."""


class LabServer:
    """Builds the lab and answers its clients."""

    def __init__(self, spec: LabSpec, listener: socket.socket, supervisor: int) -> None:
        self.spec = spec
        self._kind = kind_named(spec.kind)
        self._supervisor = supervisor
        self._listener = listener
        self._events = EventLog(spec.dir / "events.jsonl")
        self._phase, self._error = "starting", ""
        self._holders = 0
        self._lock = threading.Lock()
        self._power_locks: dict[str, threading.Lock] = {}
        self._record_lock = threading.Lock()
        self._ended = threading.Event()
        self._linger: threading.Timer | None = None
        self._uid = ""
        self._end_unless_held()
        network.set_up_bridges()
        if len(spec.control_planes) > 1:
            set_up_network()
        self._witness = Listener()
        try:
            protect_host(spec.dir)
        except Problem as problem:
            # Build nothing, and report why.
            self._phase, self._error = "failed", str(problem)
        nodes, planes = len(spec.nodes), len(spec.control_planes)
        self._memory = mount_memory(spec.dir / "mem", self._kind.limits.node_mib, nodes, planes)
        os.environ["TMPDIR"] = str(self._memory / "scratch")
        self._logs, self._settings = logs_in(self._memory), self._memory / "settings"
        self._usage = Memory(self._memory)
        limit_size(self._logs, self.spec.give_to_owner, self._usage.update)
        self._processes = Processes(self._logs, self._events)
        mount_etc(self._memory / "etc")
        self._pki = spec.dir / "pki"
        self._authority = control_plane.issue_credentials(self._pki, spec.control_planes)
        (self._pki / "ssh.pub").write_text(ssh_key(self._pki / "ssh") + "\n")
        environment = NodeEnvironment(
            spec,
            self._kind.kubelet(),
            self._memory,
            self._authority,
            self._processes,
            self._events,
            self._power_lock,
        )
        self._nodes = self._kind.make_nodes(environment)
        kubectl = Kubectl(spec.binary("kubectl"), self._pki / "admin.kubeconfig")
        self._planes = Planes(self._processes, spec.control_planes)
        self._services = Services(
            self._processes, self._planes, self._settings, self._events, kubectl, self._shell
        )
        if spec.upgrade_version:
            self._services.add_version(spec.upgrade_version, spec.upgrades)
        self._deadman = Deadman(self._heal, self._events)

    def run(self) -> None:
        """Serve until `down`, or until no client holds the lab any more."""
        if self._phase == "starting":
            threading.Thread(target=self._build, daemon=True).start()
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._follow_supervisor, daemon=True).start()
        record_stalls(self._events, self._processes, self._ended)
        self._ended.wait()

    def _follow_supervisor(self) -> None:
        """End the lab once its supervisor was killed, which otherwise cleans up after it."""
        os.read(self._supervisor, 1)
        self._ended.set()

    def _build(self) -> None:
        try:
            self._nodes.prepare()
            control_plane.write_kubeconfig(self._authority, "admin")
            if self._kind.hosts_control_plane:
                self._start_hosted_control_plane()
            else:
                self._start_control_plane()
            for node in self._nodes.all():
                self._nodes.start_kubelet(node.spec.name)
            for node in self._nodes.all():
                self._nodes.wait_up(node.spec.name)
            # It never changes, so it stays available while the API server is down.
            self._uid = control_plane.kube_system_uid(self._authority)
            self._write_record()
            autogroup.set_nice(self.spec.harness_nice + autogroup.LAB)
            self._phase = "ready"
        except Exception as error:
            self._error = str(error) if isinstance(error, _EXPECTED) else repr(error)
            self._phase = "failed"

    def _start_control_plane(self) -> None:
        authority, planes = self._authority, self.spec.control_planes
        # All command lines first: a setting that the lab refuses must not leave half a control plane.
        commands = {plane: self._commands(plane) for plane in planes}
        cloud = control_plane.cloud_controller_manager(self.spec, authority)
        for name in self._planes.names:
            self._planes.boot(name)
        if self._planes.names:
            self._services.start(BALANCER, balancer(self.spec, [plane.address for plane in planes]))
        self._start_components(commands, STORES)
        self._join_nodes()
        for plane in planes:
            control_plane.wait_ready(authority, self._dead_component, plane)
        self._start_components(commands, CONTROLLERS)
        self._services.register(CLOUD, cloud)
        if self._kind.storage is not None:
            folders = control_plane.DriverFolders(self.spec, self._settings, self._memory / "nodes")
            attacher = control_plane.external_attacher(folders, self._kind.storage(folders), authority)
            self._services.register(ATTACHER, attacher)

    def _start_hosted_control_plane(self) -> None:
        self._services.start(BALANCER, balancer(self.spec, self._nodes.api_servers()))
        self._join_nodes()
        self._nodes.start_control_plane()

    def _join_nodes(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._nodes.join, self.spec.nodes))

    def _commands(self, plane: ControlPlane) -> Mapping[str, list[str]]:
        """Return the command line of each component of a control plane."""
        spec, authority = self.spec, self._authority
        return {
            "etcd": control_plane.etcd(spec, self._memory / plane.component("etcd"), plane),
            "kube-apiserver": control_plane.api_server(spec, authority, self._logs, plane),
            "kube-controller-manager": control_plane.controller_manager(spec, authority, plane),
            "kube-scheduler": control_plane.scheduler(spec, authority, plane),
        }

    def _start_components(
        self, commands: Mapping[ControlPlane, Mapping[str, list[str]]], roles: Sequence[str]
    ) -> None:
        for role in roles:
            for plane, command_of in commands.items():
                self._services.start(plane.component(role), command_of[role])

    def _dead_component(self) -> str:
        """Return the first component that has died, with its last log lines."""
        for name in self._processes.died():
            lines = (self._logs / f"{name}.log").read_text(errors="replace").splitlines()
            return "\n".join([name, *lines[-_LOG_TAIL_LINES:]])
        return ""

    def _write_record(self) -> None:
        """Write the record that the guard compares a target with, as a proof that it is this lab's."""
        with self._record_lock:
            specs = [node.spec for node in self._nodes.all()]
            record = {
                "lab": self.spec.lab,
                "kube_system_uid": self._uid,
                "machine_ids": {spec.name: spec.machine_id for spec in specs},
                "zones": {spec.name: spec.zone for spec in specs},
                "owners": {spec.name: owner for spec in specs if (owner := self._nodes.owner(spec))},
                "components": sorted(self._services.names),
                "control_planes": dict(self._services.hosts),
            }
            # Replace the file in one step: the guard may be reading it.
            fresh = self.spec.dir / ".record.json"
            write_private(fresh, json.dumps(record).encode())
            self.spec.give_to_owner([fresh])
            fresh.rename(self.spec.dir / "record.json")
            own = [path for path in self.spec.dir.iterdir() if path != self._memory]
            self.spec.give_to_owner([*own, *self._pki.iterdir()])

    def _accept(self) -> None:
        while True:
            client, _address = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            request, _ = wire.receive(client)
            try:
                self._answer(client, request)
            except _EXPECTED as error:
                message, _, detail = (str(error) or repr(error)).partition("\n")
                wire.send(client, {"error": message, "detail": detail})
            except Exception as error:  # the client needs an answer to any error
                wire.send(client, {"error": repr(error)})

    def _answer(self, client: socket.socket, request: Mapping[str, Json]) -> None:
        verbs = {"power": self._power, "arm": self._arm, "down": self._down}
        verb = request["verb"]
        if verb == "dial":
            self._dial(client, request)
        elif verb == "spawn":
            wire.send(client, self._spawn(request))
        elif verb == "logs":
            self.spec.give_to_owner(self._logs.iterdir())
            self._hand_over(client, self._logs, os.O_DIRECTORY)
        elif verb == "network":
            self._hand_over(client, Path("/proc/self/ns/net"))
        elif verb == "status":
            wire.send(client, self._status().to_json())
            if request.get("hold"):
                self._hold(client)
        elif verb in verbs:
            verbs[verb](request)
            wire.send(client, {"ok": True})
        else:
            wire.send(client, {"error": f"unknown verb {verb!r}"})

    def _dial(self, client: socket.socket, request: Mapping[str, Json]) -> None:
        try:
            address = (request["host"], request["port"])
            source = (request["source"], 0) if request.get("source") else None
            with socket.create_connection(address, request["timeout_s"], source) as connection:
                connection.settimeout(None)
                wire.send(client, {"ok": True}, connection.fileno())
        except ConnectionRefusedError as error:
            wire.send(client, {"error": str(error), "failure": "refused"})
        except OSError as error:
            failure = "lost" if isinstance(error, ConnectionError) else "timed-out"
            wire.send(client, {"error": str(error), "failure": failure})

    def _hand_over(self, client: socket.socket, path: Path, flags: int = 0) -> None:
        """Send a client a descriptor of a file that it cannot open by path."""
        descriptor = os.open(path, os.O_RDONLY | flags)
        try:
            wire.send(client, {"ok": True}, descriptor)
        finally:
            os.close(descriptor)

    def _spawn(self, request: Mapping[str, Json]) -> Mapping[str, Json]:
        if request["what"] == "node":
            node = NodeSpec.from_json(request["node"])
            with self._power_lock(node.name):
                self._nodes.join(node)
                self._nodes.start_kubelet(node.name)
            self._write_record()
            self._nodes.wait_up(node.name)
            return {"ok": True}
        argv, timeout_s, stdin = request["argv"], request["timeout_s"], request["stdin"]
        environment = inherited_environment()
        return asdict(proc.run(argv, timeout_s=timeout_s, stdin=stdin, env=environment, check=False))

    def _power(self, request: Mapping[str, Json]) -> None:
        name, action = request["node"], request["action"]
        if action != "remove":
            self._shell(name).power(action)
            return
        try:
            with self._power_lock(name):
                self._nodes.remove(name)
        finally:
            self._write_record()

    def _shell(self, name: str) -> Shell:
        if name in self._services:
            return self._services.shell(name)
        return self._nodes.shell(name, self._power_lock(name))

    def _arm(self, request: Mapping[str, Json]) -> None:
        """Arm, renew or disarm a switch; arm none that could not heal. Raises Problem."""
        if request["ttl_s"] > 0:
            _check_known(request["fault"])
        self._deadman.arm(request["fault"], request["ttl_s"])

    def _heal(self, fault: Mapping[str, Json]) -> None:
        heal_fenced(Fault.from_json(fault), self._shell(fault["node"]))

    def _power_lock(self, node: str) -> threading.Lock:
        """Return the node's own lock: a guest that joins for minutes must not delay another's heal."""
        with self._lock:
            return self._power_locks.setdefault(node, threading.Lock())

    def _status(self) -> LabStatus:
        nodes, kubelet = sorted(self._nodes.all(), key=lambda node: node.spec.slot), self._kind.kubelet_role
        return LabStatus(
            lab=self.spec.lab,
            kind=self.spec.kind,
            features=sorted(self._kind.features),
            phase=self._phase,
            failure=self._error,
            profile=self.spec.profile,
            kubernetes_version=self.spec.kubernetes_version,
            nodes=[replace(node.info(), kubelet=self.spec.kubelet(node.spec, kubelet)) for node in nodes],
            components=self._processes.pids(),
            services=self._services.status(),
            settings=str(self._settings),
            died=self._processes.died(),
            memory=self._usage.usage(),
            armed=self._deadman.armed(),
            not_disarmed=self._deadman.faults(),
            control_plane_address=API_ADDRESS,
            witness_port=self._witness.port,
            received=list(self._witness.received),
            holders=self._holders,
            kvm=self._nodes.runs_on_kvm(),
            overrides=self.spec.overrides,
            upgrade_version=self.spec.upgrade_version,
        )

    def _hold(self, client: socket.socket) -> None:
        with self._lock:
            self._holders += 1
            if self._linger:
                self._linger.cancel()
        client.settimeout(None)
        with contextlib.suppress(OSError):
            client.recv(1)
        with self._lock:
            self._holders -= 1
            self._end_unless_held()

    def _end_unless_held(self) -> None:
        """Start the timer that ends a lab that is not kept and has no holder, or never had one."""
        if self._holders == 0 and not self.spec.keep:
            self._linger = threading.Timer(LINGER_S, self._ended.set)
            self._linger.daemon = True
            self._linger.start()

    def _down(self, _request: Mapping[str, Json]) -> None:
        threading.Timer(0.05, self._ended.set).start()


class Listener:
    """Accepts connections and remembers what nodes sent."""

    def __init__(self) -> None:
        self._socket = socket.create_server((API_ADDRESS, 0))
        self.port: int = self._socket.getsockname()[1]
        self.received: deque[str] = deque(maxlen=200)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.settimeout(1.0)
                self.received.append(peer.recv(200).decode(errors="replace").strip())


def _check_known(fault: Mapping[str, Json]) -> None:
    """Check that this process can construct a fault. Raises Problem."""
    try:
        Fault.from_json(fault)
    except Exception as error:  # a plugin's own, too
        reason = "; ".join(plugin_errors()) or repr(error)
        raise Problem(
            f"the lab cannot heal the fault {fault.get('fault')!r}: {reason}",
            f"dead-man's switch of {fault.get('node')}",
            f"install its package beside nodeproof in {sys.prefix}, and start the lab again",
        ) from error


def main() -> None:
    """Reap children as the first process; serve in a child, and end with it."""
    server = os.fork()
    if server == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for message in (*plugin_errors(), *KINDS.errors):
            terminal.say(message)
        spec = LabSpec.from_json(sys.argv[1])
        LabServer(spec, socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])).run()
        os._exit(0)
    while True:
        pid, status = os.wait()
        if pid == server:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
