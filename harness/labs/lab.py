"""A lab as scenarios and the command line use it, whatever its nodes are made of."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from harness.cluster import witness, workloads
from harness.cluster.api import Api, ApiError
from harness.cluster.resources import WATCHED, node
from harness.cluster.witness import Witness
from harness.cluster.workloads import Pod
from harness.faults import Fault, fault_from_json
from harness.labs.components import Components
from harness.labs.guest.ends import last_words
from harness.labs.guest.hypervisor import VIRSH
from harness.labs.host import SupervisedHost
from harness.labs.insist import insist
from harness.labs.kinds import KIND_FEATURES, LIBVIRT
from harness.labs.libvirt_domain import METADATA_NAMESPACE, owner_told
from harness.labs.measuring import Running, read_clock, read_configuration
from harness.labs.profiles import Profile, profile_named
from harness.labs.wire import SupervisorClient, folder_of
from harness.machines.machine import MachineError
from harness.machines.ssh import SshAccess, SshMachine
from harness.model.clocks import Reading
from harness.model.cluster import Calibration, Configuration
from harness.model.judgment import Check
from harness.model.problem import OutsideError, Problem
from harness.recording.recorder import Recording, Setting, events_end, unfaulted
from harness.safety.deadman import Switches, Timers
from harness.safety.guard import CONTROL_PLANE_LABEL, LAB_LABEL, Record, Target
from harness.safety.injector import HEAL_LIMIT_S, Cut, Injector, healed_at, held_off
from harness.safety.janitor import heal_unfinished, sweep
from harness.safety.ledger import Ledger

Json = Any
NODES_READY_LIMIT_S = 120.0
POD_LIMIT_S = 90.0
WITNESS_LIMIT_S = 240.0
"""Real containers; several at once on an emulated machine of one CPU, on a busy host."""
CLEAN_LIMIT_S = 60.0
DOWN_LIMIT_S = 30.0
LOG_LINES = 10
_CALIBRATION_SENTINELS = 5
_ASK_LIMIT_S = 10.0
_JOURNAL_LIMIT_S = 20.0
_FULL_FRACTION = 0.02
_LOST = {
    "memory for logs": "what its components say now is lost; verdicts need none of it",
    "memory": "its etcd and its machines cannot write; end it with `nodeproof down`",
}
_SWEEP_LIMIT_S = 15.0
"""Longer than one command's deadline: a machine that is busy, and not gone, gets a second chance."""


@dataclass(frozen=True)
class NodeInfo:
    """One node of a running lab."""

    name: str
    zone: str
    on: bool
    control_address: str
    data_address: str
    machine_id: str


class InUse(Problem):
    """Another process has the lab: its faults are that one's to heal."""


class TooFewNodes(Problem):
    """So many nodes are quarantined that a scenario's faults have no target."""


class Lab:
    """One running cluster that may be harmed."""

    def __init__(self, folder: Path, components: Components, hold: socket.socket | None) -> None:
        self.dir = folder
        self.name = folder.name
        self.components = components
        self.supervisor = SupervisorClient(folder / "s")
        status = self.supervisor.status()
        self.kind = str(status["kind"])
        self.features: frozenset[str] = frozenset(status.get("features", KIND_FEATURES[self.kind]))
        self.profile: Profile = profile_named(str(status["profile"]))
        self.api = Api(folder / "pki" / "admin.kubeconfig", self.supervisor.dial)
        self.ledger = Ledger(self.name)
        self._hold = hold
        self._reserved: int | None = None
        self._logs: int | None = None
        self._machines: dict[tuple[str, str], SshMachine] = {}
        self._configuration: Configuration | None = None
        timers = (Timers(self._switched),) if "systemd" in self.features else ()
        self.switches = Switches((self.supervisor, *timers))
        self.injector = Injector(
            self.machine,
            self._target,
            self.record_of_itself,
            self._control_planes,
            self.ledger,
            self.switches,
        )

    def reserve(self) -> None:
        """Keep the lab to this process until it ends or closes it: two runs would heal each other's faults.

        Raises InUse when another process has it.
        """
        descriptor = os.open(self.dir / "in-use", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
            os.close(descriptor)
            said = f"process {who} is using it"
            raise InUse(said, f"lab {self.name}", "wait for it, or start another lab") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._reserved = descriptor

    def nodes(self) -> list[NodeInfo]:
        """The lab's nodes, on or off."""
        fields = ("name", "zone", "on", "control_address", "data_address", "machine_id")
        return [
            NodeInfo(**{key: entry[key] for key in fields}) for entry in self.supervisor.status()["nodes"]
        ]

    def node_names(self) -> list[str]:
        """Names of the lab's nodes."""
        return [entry.name for entry in self.nodes()]

    def machine(self, name: str) -> SshMachine:
        """A node as a computer; its connection stays warm. Raises Problem when there is no such node."""
        return self._connected("scenario", name)

    def _switched(self, name: str) -> SshMachine:
        """The same computer as the dead-man's switches reach it."""
        return self._connected("switches", name)

    def _connected(self, purpose: str, name: str) -> SshMachine:
        """A connection for each purpose: a command's deadline cuts all that share its own."""
        key = (purpose, name)
        if key not in self._machines:
            self._machines[key] = self._reach(name)
        return self._machines[key]

    def _reach(self, name: str) -> SshMachine:
        found = {entry.name: entry for entry in self.nodes()}
        if name not in found:
            raise Problem(f"no node {name!r}", f"lab {self.name}", f"it has: {', '.join(found)}")
        info, pki = found[name], self.dir / "pki"
        host_key = (pki / f"{name}.hostkey").read_text().strip()
        api_address = str(self.supervisor.status()["control_plane_address"])
        access = SshAccess(name, info.control_address, info.data_address, api_address, pki / "ssh", host_key)
        return SshMachine(access, self.supervisor.dial, SupervisedHost(self.supervisor, self.api))

    def record_of_itself(self) -> Record:
        """What the lab wrote down of itself when it was made."""
        data = json.loads((self.dir / "record.json").read_text())
        return Record(**data)

    def wait_nodes_ready(
        self, names: Sequence[str] | None = None, limit_s: float = NODES_READY_LIMIT_S
    ) -> None:
        """Wait until the nodes are Ready, free of taints and not cordoned.

        Raises Problem, with the last lines of a log, after `limit_s` or as soon as a component has died.
        """
        wanted = list(names) if names is not None else self.node_names()

        def look() -> list[str]:
            self._check_alive()
            return workloads.not_ready(self.api, wanted)

        left = _until_empty(look, limit_s)
        if left:
            said = f"not Ready after {limit_s:g} s: {', '.join(left)}"
            raise Problem(
                said, f"lab {self.name}", "its last log lines follow", self._tail(f"kubelet-{left[0]}")
            )

    def _check_alive(self) -> None:
        """Refuse to go on with a lab whose component has died. Raises Problem with its last log lines."""
        died = self.supervisor.status()["died"]
        if died:
            name, how = next(iter(died.items()))
            raise Problem(f"{name} {how}", f"lab {self.name}", "its last log lines follow", self._tail(name))

    def _tail(self, component: str) -> str:
        logs = self.logs
        log = logs / f"{component}.log"
        if not log.exists():
            # What a guest says ("node-NAME", "kubelet-NAME") it says to its console.
            log = logs / f"console-{component.partition('-')[2]}.log"
        return last_words(log.read_text(errors="replace"), LOG_LINES) if log.exists() else ""

    def prepare(self) -> None:
        """Make the cluster ready for scenarios, and measure how well time can be told here."""
        workloads.prepare(self.api)
        running = Running(self.kind, self.profile, self.components, self.node_names()[0])
        self._configuration = read_configuration(self.api, running, self.calibrate())

    @property
    def is_prepared(self) -> bool:
        """Whether the running configuration is known."""
        return self._configuration is not None

    @property
    def configuration(self) -> Configuration:
        """The running configuration as read when the lab was prepared."""
        if self._configuration is None:
            self.prepare()
        assert self._configuration is not None  # noqa: S101  set by prepare()
        return self._configuration

    def calibrate(self) -> Calibration:
        """Measure watch latency, and each node's clock against the harness's."""
        with ThreadPoolExecutor(4) as pool:
            readings = list(pool.map(self.read_clock, self.node_names()))
        setting = Setting(
            (), self.node_names()[-1], self.read_clock, self.dir / "events.jsonl", sentinel_period_s=0.1
        )
        path = self.dir / f"calibration-{uuid.uuid4().hex[:8]}.jsonl"
        try:
            with Recording(self.api, path, setting) as recording:
                latency = recording.worst_latency_s(_CALIBRATION_SENTINELS)
        finally:
            path.unlink(missing_ok=True)
        return Calibration(latency, {reading.node: reading.offset_s for reading in readings})

    def read_clock(self, name: str) -> Reading:
        """What a node's clock is ahead of ours. Raises MachineError, Problem."""
        return read_clock(self._connected("clock", name))

    def run_pod(self, on: str, tolerates_unreachable_s: int | None = None) -> Pod:
        """A Running pod on a node. Raises Problem, ApiError."""
        return workloads.run_pod(
            self.api, node_name=on, unreachable_toleration_s=tolerates_unreachable_s, limit_s=POD_LIMIT_S
        )

    def run_witnesses(self, on: str, witnesses: Sequence[Witness]) -> list[Pod]:
        """Running pods that tell what happens to them. Raises Problem, ApiError."""
        return witness.run(self.api, on, witnesses, WITNESS_LIMIT_S)

    def pending_pod(self, only_on: str) -> Pod:
        """A pod that the scheduler may bind to one node only. Raises ApiError."""
        return workloads.create_pod(self.api, only_on, None, by_scheduler=True)

    def kubectl(self, *arguments: str, limit_s: float = 60.0) -> str:
        """Run the lab's own kubectl inside the lab; gives its output. Raises Problem when it fails."""
        done = self.run_kubectl(arguments, limit_s)
        if done["status"] != 0:
            said = str(done["stderr"]).strip().replace("\n", " ")
            raise Problem(
                f"kubectl {' '.join(arguments)}: {said}", f"lab {self.name}", "try `nodeproof kubectl`"
            )
        return str(done["stdout"])

    def run_kubectl(self, arguments: Sequence[str], limit_s: float, stdin: str = "") -> Mapping[str, Json]:
        """Run the lab's own kubectl inside the lab; gives status, stdout, stderr."""
        binary = str(self.components.path("kubectl"))
        config = f"--kubeconfig={self.dir / 'pki' / 'admin.kubeconfig'}"
        return self.supervisor.spawn_command([binary, config, *arguments], limit_s, stdin)

    @contextmanager
    def record(self, path: Path, targets: Collection[str]) -> Iterator[Recording]:
        """Record everything until the context ends, then fence it."""
        # Read before the look: what dies from here on is seen by the one or in the other.
        events_at = events_end(self.dir / "events.jsonl")
        self._check_alive()
        names = self.node_names()
        carrier, events = unfaulted(names, list(targets)), self.dir / "events.jsonl"
        setting = Setting(tuple(names), carrier, self.read_clock, events, events_at)
        with Recording(self.api, path, setting) as recording:
            yield recording

    def inject(
        self, fault: Fault, declared: Collection[str], recording: Recording
    ) -> AbstractContextManager[Cut]:
        """Hold a fault for the length of the context; it is healed whatever happens."""
        return self.injector.inject(fault, declared, recording.append)

    def wait_for(self, recording: Recording, check: Check) -> None:
        """Wait until a check is decided or its window has passed."""
        recording.wait_for(check, self.configuration)

    def heal_unfinished(self) -> list[str]:
        """Heal whatever an earlier run left, by the ledger, by the dead-man's switches and by the names of
        what faults leave; gives what could not be proven healed.
        """
        left = heal_unfinished(self.ledger, self.supervisor.status()["not_disarmed"], self._heal)
        with ThreadPoolExecutor(4) as pool:
            unswept = list(pool.map(self._sweep, [entry.name for entry in self.nodes() if entry.on]))
        return [*left, *filter(None, unswept)]

    def tidy(self) -> None:
        """Remove what scenarios left: their pods, cordons, calibrations that were broken off. Raises
        ApiError.
        """
        for path in self.dir.glob("calibration-*.jsonl"):
            path.unlink(missing_ok=True)
        workloads.sweep_pods(self.api)
        for entry in self.api.get(WATCHED["nodes"])["items"]:
            if entry["spec"].get("unschedulable"):
                workloads.uncordon(self.api, entry["metadata"]["name"])

    def clean(self, faulted: int) -> None:
        """Between scenarios: all components live, no pods of ours, no cordon, enough nodes, all Ready.

        Raises Problem when the lab is not fit for a scenario that harms `faulted` nodes.
        """
        self._check_alive()
        usable = [name for name in self.node_names() if name not in self.injector.quarantined]
        if len(usable) <= faulted:
            left = ", ".join(sorted(self.injector.quarantined)) or "none"
            raise TooFewNodes("too few nodes that may be harmed", f"lab {self.name}", f"quarantined: {left}")
        self.tidy()
        self.wait_nodes_ready(usable, CLEAN_LIMIT_S)

    def join(self, name: str, zone: str, slot: int) -> None:
        """Let a node join while the lab runs. Raises Problem."""
        spec = {"name": name, "zone": zone, "slot": slot, "machine_id": uuid.uuid4().hex}
        self.supervisor.spawn_node(spec)
        self._configuration = None

    def leave(self, name: str) -> None:
        """Power a node off for good and delete its Node. Raises Problem, ApiError."""
        self.supervisor.power(name, "remove")
        for key in [key for key in self._machines if key[1] == name]:
            self._machines.pop(key).close()
        self.api.delete(node(name))
        self._configuration = None

    @property
    def logs(self) -> Path:
        """The folder of the components' logs, as long as the lab is not closed. Raises Problem."""
        if self._logs is None:
            self._logs = self.supervisor.logs()
        return folder_of(self._logs)

    @property
    def journals(self) -> Path:
        """Where `fetch_journals` puts them."""
        return self.dir / "journals"

    def full(self) -> list[str]:
        """What of the lab's own memory is full, a line each. Raises Problem."""
        return [
            f"lab {self.name}: its {name} is full ({told['size_bytes'] >> 20} MiB): {_LOST[name]}"
            for name, told in self.supervisor.status().get("memory", {}).items()
            if told["free_bytes"] < _FULL_FRACTION * told["size_bytes"]
        ]

    def fetch_journals(self) -> None:
        """Fetch what guests wrote of their present boot; who does not answer has none."""
        if self.kind != LIBVIRT:
            return
        with contextlib.suppress(Problem), ThreadPoolExecutor(4) as pool:
            list(pool.map(self._fetch_journal, [entry.name for entry in self.nodes() if entry.on]))

    def _fetch_journal(self, name: str) -> None:
        argv = ["journalctl", "--boot", "--output=short-precise", "--no-pager"]
        with contextlib.suppress(MachineError, Problem, OSError):
            said = self.machine(name).run(argv, deadline_s=_JOURNAL_LIMIT_S).stdout
            self.journals.mkdir(exist_ok=True)
            (self.journals / f"journal-{name}.log").write_text(said)

    def keep_logs(self, into: Path) -> None:
        """Copy component logs, audit log and machine events to a run's folder."""
        target = into / self.name
        with contextlib.suppress(shutil.Error):
            # What was made or removed this moment; the others are copied all the same.
            shutil.copytree(self.logs, target, dirs_exist_ok=True)
        if self.journals.exists():
            shutil.copytree(self.journals, target, dirs_exist_ok=True)
        for name in ("init.log", "events.jsonl"):
            with contextlib.suppress(OSError):
                shutil.copy(self.dir / name, target / name)

    def close(self) -> None:
        """Give up connections; the lab stays."""
        self._close_machines()
        self.api.close()
        if self._hold is not None:
            self._hold.close()
        if self._logs is not None:
            os.close(self._logs)
            self._logs = None
        if self._reserved is not None:
            os.close(self._reserved)
            self._reserved = None

    def down(self) -> None:
        """Tear the lab down and wait until nothing of it is left. Raises Problem."""
        self._close_machines()
        self.supervisor.down()
        self.close()
        wait_gone(self.dir)
        self.ledger.forget()

    def _close_machines(self) -> None:
        for machine in list(self._machines.values()):
            machine.close()

    def _heal(self, data: Mapping[str, Json]) -> bool:
        """Heal by a ledger's entry; whether a probe proved it. What a node had is gone with the node.

        What no fault is made of, or can't be healed now, stays open and keeps nothing else from being healed.
        """
        try:
            fault = fault_from_json(data)
        except (KeyError, TypeError):
            return False
        if fault.node not in self.node_names():
            self.supervisor.arm(data, 0)
            return True
        # The lab's own switch alone: a machine's timer undoes no more than the fault.
        with held_off(self.supervisor, fault):
            healed_t = healed_at(fault, self.machine(fault.node), HEAL_LIMIT_S)
        if healed_t is None:
            return False
        self.switches.arm(data, 0)
        return True

    def _sweep(self, name: str) -> str:
        """Remove what faults left on a node; why that did not work, if it did not."""
        try:
            insist(lambda: sweep(self.machine(name)), MachineError, limit_s=_SWEEP_LIMIT_S)
        except (OutsideError, Problem) as error:
            return str(error)
        return ""

    def _target(self, name: str) -> Target:
        found = self.api.get(node(name))
        uid = self.api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
        machine_id = (
            self.machine(name).run(["cat", "/etc/machine-id"], deadline_s=_ASK_LIMIT_S).stdout.strip()
        )
        label = found["metadata"].get("labels", {}).get(LAB_LABEL, "")
        told = found["status"]["nodeInfo"]["machineID"]
        return Target(name, uid, label, told, machine_id, self._owner(name))

    def _control_planes(self) -> frozenset[str]:
        planes = self.api.get(WATCHED["nodes"], {"labelSelector": CONTROL_PLANE_LABEL})["items"]
        return frozenset(entry["metadata"]["name"] for entry in planes)

    def _owner(self, name: str) -> str:
        """Whose machine the hypervisor says a node is; nobody's where there is no hypervisor."""
        if self.kind != LIBVIRT:
            return ""
        asked = [*VIRSH, "metadata", name, METADATA_NAMESPACE]
        return owner_told(str(self.supervisor.spawn_command(asked, _ASK_LIMIT_S, "")["stdout"]))


def wait_gone(folder: Path) -> None:
    """Wait until a lab's folder is gone. Raises Problem when it stays."""
    left = _until_empty(lambda: [str(folder)] if folder.exists() else [], DOWN_LIMIT_S)
    if left:
        raise Problem(f"{folder} is still there after {DOWN_LIMIT_S:g} s", "lab", "run `nodeproof down`")


def _until_empty(look: Any, limit_s: float) -> list[str]:
    """Look until nothing is left or the time is over; an API server that does not answer yet counts as
    something.
    """
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(limit_s),
        wait=tenacity.wait_fixed(0.1),
        retry=tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type((ApiError, MachineError)),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else [],
    )
    return list(retry(look))
