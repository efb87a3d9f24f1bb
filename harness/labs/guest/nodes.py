"""The nodes of a libvirt lab: virtual machines with real systemd, containerd and kubelet."""

from __future__ import annotations

import socket
import threading
import uuid
from pathlib import Path

import tenacity

from harness import proc
from harness.labs.guest import seed
from harness.labs.guest.clock import TimeServer
from harness.labs.guest.hypervisor import Hypervisor
from harness.labs.guest.shell import GuestShell, Keys
from harness.labs.libvirt_domain import (
    ROOT_TARGET,
    SEED_TARGET,
    Disk,
    Domain,
    Nic,
    domain_xml,
    mac,
)
from harness.labs.pki import Authority
from harness.labs.process.network import BRIDGES, outer_end
from harness.labs.process.nodes import RunningNode
from harness.labs.process.processes import EventLog, Processes
from harness.labs.process.spec import SSH_PORT, LabSpec, NodeSpec, check_node_name
from harness.machines.machine import MachineError
from harness.model.problem import Problem

MEMORY_MIB = 1280
CPUS = 1
BOOT_LIMIT_S = 150.0
"""How long a guest may take to its sshd: under emulation, beside others that boot, on a busy host."""
_DISK_LIMIT_S = 30.0
_CONSOLE_LINES = 15
_WATCH_PERIOD_S = 0.2


class GuestNodes:
    """All nodes of one lab: join, power off, power on, leave."""

    def __init__(
        self,
        lab: LabSpec,
        memory: Path,
        authority: Authority,
        hypervisor: Hypervisor,
        processes: Processes,
        events: EventLog,
    ) -> None:
        self._lab = lab
        self._memory = memory
        self._authority = authority
        self._hypervisor = hypervisor
        self._processes = processes
        self._events = events
        self._time: TimeServer
        self._wanted: set[str] = set()
        self._specs: dict[str, NodeSpec] = {}

    def prepare(self) -> None:
        """Start the hypervisor. Raises Problem, CommandFailed."""
        self._hypervisor.start()
        self._time = TimeServer()

    def get(self, name: str) -> RunningNode:
        """Look a node up. Raises Problem when the lab has none of that name."""
        if name not in self._specs:
            raise Problem(f"no node {name!r}", f"lab {self._lab.lab}", f"it has: {', '.join(self._specs)}")
        return RunningNode(self._specs[name], self._hypervisor.pid(name))

    def all(self) -> list[RunningNode]:
        """Every node, on or off."""
        return [self.get(name) for name in list(self._specs)]

    def join(self, spec: NodeSpec) -> None:
        """Make the node's disks and let it boot. Raises Problem, CommandFailed."""
        check_node_name(spec.name)
        if spec.name in self._specs:
            raise Problem(f"node {spec.name} is there already", f"lab {self._lab.lab}", "choose another name")
        home = self._home(spec.name)
        home.mkdir()
        made = seed.make(home, self._lab, spec, self._authority)
        (self._lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{made.host_key}\n")
        (home / "known_hosts").write_text(f"{spec.control_address} {made.host_key}\n")
        backing = ["-b", self._lab.guest["disk"], "-F", "qcow2"]
        disk = home / "disk.qcow2"
        proc.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(disk)], timeout_s=_DISK_LIMIT_S)
        (home / "domain.xml").write_text(domain_xml(self._domain(spec, disk, made.disk)))
        self._hypervisor.virsh("define", str(home / "domain.xml"))
        self._specs[spec.name] = spec
        self.power_on(spec.name)

    def start_kubelet(self, name: str) -> None:
        """The node's own systemd starts it, once the seed has been read."""
        self.get(name)

    def wait_up(self, name: str) -> None:
        """Wait until the guest's sshd lets in and its clock is set.

        Raises Problem with the console's last lines.
        """
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(BOOT_LIMIT_S),
            wait=tenacity.wait_fixed(0.2),
            retry=tenacity.retry_if_exception_type((OSError, MachineError)),
            reraise=True,
        )
        try:
            retry(self._touch, name)
            retry(self._time.set_clock, self.shell(name, threading.Lock()))
        except (OSError, MachineError) as error:
            said = f"{name} has not booted after {BOOT_LIMIT_S:g} s"
            raise Problem(said, f"lab {self._lab.lab}", "its console follows", self._console(name)) from error

    def power_off(self, name: str) -> None:
        """End the virtual machine at once: nothing in it is flushed. Off already is fine."""
        self._wanted.discard(name)
        if self.get(name).pid is None:
            return
        self._hypervisor.virsh("destroy", name)
        self._events.write("machine", node=name, step="powered-off")

    def power_on(self, name: str) -> None:
        """Start the virtual machine, which then boots. On already is fine."""
        if self.get(name).pid is not None:
            return
        self._hypervisor.virsh("start", name)
        self._wanted.add(name)
        self._processes.found(f"node-{name}")
        threading.Thread(target=self._watch, args=(name,), daemon=True).start()
        self._events.write("machine", node=name, step="booted")

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it, with its disks."""
        self.power_off(name)
        self._hypervisor.virsh("undefine", name)
        del self._specs[name]
        proc.run(["rm", "-rf", "--", str(self._home(name))], timeout_s=_DISK_LIMIT_S)

    def shell(self, name: str, power_lock: threading.Lock) -> GuestShell:
        """The node over SSH, from the control plane's side."""
        keys = Keys(self._lab.dir / "pki" / "ssh", self._home(name) / "known_hosts")
        return GuestShell(self, self.get(name).spec, keys, power_lock)

    def _watch(self, name: str) -> None:
        """Wait until a virtual machine ends, and say so where nobody asked it to."""
        pid = self._hypervisor.pid(name)
        while pid is not None and self._hypervisor.pid(name) == pid:
            threading.Event().wait(_WATCH_PERIOD_S)
        if name in self._wanted:
            self._wanted.discard(name)
            self._processes.lost(f"node-{name}", name, "ended by itself")

    def _touch(self, name: str) -> None:
        """Connect to the guest's sshd. Raises OSError while nobody listens, Problem when it has ended."""
        node = self.get(name)
        if node.pid is None:
            said = f"{name} ended while it booted"
            raise Problem(said, f"lab {self._lab.lab}", "its console follows", self._console(name))
        socket.create_connection((node.spec.control_address, SSH_PORT), timeout=1.0).close()

    def _home(self, name: str) -> Path:
        return self._memory / "nodes" / name

    def _console_log(self, name: str) -> Path:
        return self._lab.dir / "logs" / f"console-{name}.log"

    def _console(self, name: str) -> str:
        log = self._console_log(name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-_CONSOLE_LINES:])

    def _domain(self, spec: NodeSpec, disk: Path, seed_disk: Path) -> Domain:
        guest = self._lab.guest
        return Domain(
            name=spec.name,
            uuid=str(uuid.UUID(spec.machine_id)),
            lab=self._lab.lab,
            memory_mib=MEMORY_MIB,
            vcpus=CPUS,
            kvm=self._hypervisor.kvm,
            kernel=Path(guest["kernel"]),
            initrd=Path(guest["initrd"]),
            arguments=guest["arguments"].split(),
            disks=[Disk(disk, "qcow2", ROOT_TARGET), Disk(seed_disk, "raw", SEED_TARGET, read_only=True)],
            nics=[Nic(bridge, mac(bridge, spec.slot), outer_end(spec, bridge)) for bridge in BRIDGES],
            console=self._console_log(spec.name),
        )
