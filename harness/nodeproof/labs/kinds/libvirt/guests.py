"""Nodes that are virtual machines of one libvirtd: join, power, links, leave."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof.labs.ground import autogroup
from nodeproof.labs.ground.logs import last_words
from nodeproof.labs.ground.memory import logs_in
from nodeproof.labs.ground.network import BRIDGES
from nodeproof.labs.ground.node_shell import NodeShell
from nodeproof.labs.ground.nodes import Ground, RunningNode
from nodeproof.labs.ground.spec import SSH_PORT, NodeSpec, check_node_name
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.clock import TimeServer
from nodeproof.labs.kinds.libvirt.domain_xml import network_xml, owner
from nodeproof.labs.kinds.libvirt.ends import End
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor
from nodeproof.labs.kinds.libvirt.over_ssh import OverSsh
from nodeproof.labs.kinds.libvirt.storage import write_host
from nodeproof.machines.machine import MachineError, PowerAction
from nodeproof.model.clocks import SET, SETTING
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.waiting import insist

Json = Any
MAX_NODES = 8
"""The most nodes of a lab: a guest takes over a gigabyte of memory."""
MEMORY_MIB = 1280
BOOT_LIMIT_S = 240.0
"""How long a guest may take until its sshd serves: emulated, beside other booting guests, on a busy host."""
_END_LIMIT_S = 5.0
_CONSOLE_LINES = 15


class Guests:
    """All nodes of one lab.

    A kind of lab implements how machines are created, in the methods that raise NotImplementedError here.
    """

    def __init__(self, ground: Ground, hypervisor: Hypervisor) -> None:
        self._lab = ground.lab
        self._settings = ground.kubelet
        self._memory = ground.memory
        self._authority = ground.authority
        self._processes = ground.processes
        self._events = ground.events
        self._hypervisor = hypervisor
        self._time: TimeServer
        self._wanted: set[str] = set()
        self._late_clocks: set[str] = set()
        self._ends: dict[str, str] = {}
        self._specs: dict[str, NodeSpec] = {}

    def prepare(self) -> None:
        """Start the hypervisor. Raises Problem, OutsideError, CommandFailed."""
        self._hypervisor.start(Path(self._lab.guest["kernel"]), self._networks())
        self._hypervisor.domains.follow(self._on_start, self._on_end)
        self._time = TimeServer()

    def get(self, name: str) -> RunningNode:
        """Return a node by name. Raises Problem if the lab has no such node."""
        if name not in self._specs:
            raise Problem(f"no node {name!r}", f"lab {self._lab.lab}", f"it has: {', '.join(self._specs)}")
        return RunningNode(self._specs[name], self._hypervisor.pid(name))

    def all(self) -> list[RunningNode]:
        """Return every node, on or off."""
        specs = list(self._specs.values())
        return [RunningNode(spec, self._hypervisor.pid(spec.name)) for spec in specs]

    def join(self, spec: NodeSpec) -> None:
        """Write the node's seed, and create and start its machine.

        Raises Problem, OutsideError, CommandFailed.
        """
        check_node_name(spec.name)
        if spec.name in self._specs:
            raise Problem(f"node {spec.name} exists already", f"lab {self._lab.lab}", "choose another name")
        home = self._home(spec.name)
        home.mkdir()
        try:
            host_key = seed.make(home, self._seed(spec.name), self._seed_of(spec))
            (self._lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
            write_host(home, spec, host_key)
            self._make(spec)
        except BaseException:
            # A registered node is removed like any other; nothing would remove an unregistered one.
            if spec.name not in self._specs:
                shutil.rmtree(home)
                self._seed(spec.name).unlink(missing_ok=True)
            raise
        self._hypervisor.refresh_volumes()

    def start_kubelet(self, name: str) -> None:
        """Check that the node exists: its systemd starts the kubelet once the seed is read."""
        self.get(name)

    def wait_up(self, name: str) -> None:
        """Wait until the guest's sshd listens; after a thaw, also set its clock again.

        At boot, sshd listens once the clock is set. Raises Problem with the console's last lines.
        """
        self._wait_up(name, BOOT_LIMIT_S)

    def _wait_up(self, name: str, limit_s: float) -> None:
        try:
            insist(lambda: self._touch(name), OSError, MachineError, limit_s=limit_s, period_s=0.2)
            if name in self._late_clocks:
                insist(lambda: self._set_clock(name), OSError, MachineError, limit_s=limit_s, period_s=0.2)
                self._late_clocks.discard(name)
        except (OSError, MachineError) as error:
            message = f"{name} hangs at boot: no sshd after {limit_s:g} s"
            raise Problem(
                message, f"lab {self._lab.lab}", "its console follows", self._console(name)
            ) from error

    def _set_clock(self, name: str) -> None:
        """Set the guest's clock; the events around it mark its earlier measurements as invalid."""
        self._events.write("machine", node=name, step=SETTING)
        self._time.set_clock(self.shell(name, threading.Lock()))
        self._events.write("machine", node=name, step=SET)

    def power(self, name: str, action: PowerAction) -> None:
        """Do a power action to the node. Raises Problem."""
        actions: Mapping[PowerAction, Callable[[str], None]] = {
            "off": self.power_off,
            "on": self.power_on,
            "freeze": self.freeze,
            "reset": self.reset,
            "thaw": self.thaw,
            "link-down": self.link_down,
            "link-up": self.link_up,
        }
        if action not in actions:
            raise Problem(f"no {action} for {name}", f"lab {self._lab.lab}", "its systemd runs its kubelet")
        actions[action](name)

    def power_off(self, name: str) -> None:
        """End the virtual machine at once, without flushing anything; do nothing if it is off."""
        self._wanted.discard(name)
        if self.get(name).pid is None:
            return
        try:
            self._hypervisor.domains.destroy(name)
        except OutsideError:
            if self.get(name).pid is not None:
                raise
        self._processes.found(f"node-{name}", None)
        self._events.write("machine", node=name, step="powered-off")

    def power_on(self, name: str) -> None:
        """Start the virtual machine, which then boots; do nothing if it is on."""
        if self.get(name).pid is not None:
            return
        # A guest that powers itself off is gone a moment before libvirt notices.
        insist(lambda: self._hypervisor.domains.start(name), OutsideError, limit_s=_END_LIMIT_S, period_s=0.2)
        self._ends.pop(name, None)
        self._expect_running(name)
        self._events.write("machine", node=name, step="booted")

    def freeze(self, name: str) -> None:
        """Stop the virtual machine's processors, unless they are stopped. Raises OutsideError."""
        if not self._is_frozen(name):
            self._hypervisor.domains.suspend(name)
            self._events.write("machine", node=name, step="frozen")

    def reset(self, name: str) -> None:
        """Reset the virtual machine while its processors are stopped. Raises OutsideError."""
        self.freeze(name)
        self._hypervisor.domains.reset(name)
        self._events.write("machine", node=name, step="reset")

    def thaw(self, name: str) -> None:
        """Let the virtual machine's processors continue; do nothing if it runs or is off."""
        if self._is_frozen(name):
            self._hypervisor.domains.resume(name)
            self._late_clocks.add(name)
            self._events.write("machine", node=name, step="thawed")

    def link_down(self, name: str) -> None:
        """Remove the carrier of `data`, now and at each boot."""
        self._set_link(name, "down")

    def link_up(self, name: str) -> None:
        """Restore the carrier of `data`."""
        self._set_link(name, "up")

    def _is_frozen(self, name: str) -> bool:
        return self._hypervisor.domains.is_suspended(name)

    def _set_link(self, name: str, state: str) -> None:
        self._hypervisor.domains.update(name, self._card(name, state))
        self._events.write("machine", node=name, step=f"link-{state}")

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it, with its disks."""
        self.power_off(name)
        self._unmake(name)
        del self._specs[name]
        self._ends.pop(name, None)
        self._processes.found(f"node-{name}", None)
        shutil.rmtree(self._home(name))
        self._seed(name).unlink()
        self._hypervisor.refresh_volumes()

    def shell(self, name: str, power_lock: threading.Lock) -> NodeShell:
        """Return the node's shell: SSH from the control plane's side."""
        address = self.get(name).spec.control_address
        runner = OverSsh(address, self._lab.dir / "pki" / "ssh", self._home(name) / "known_hosts")
        return NodeShell(self, name, runner, power_lock)

    def owner(self, spec: NodeSpec) -> str:
        """Return the owner that libvirt must report for the node."""
        return owner(self._lab.lab, spec.machine_id)

    def facts(self) -> Mapping[str, Json]:
        """Return whether the guests run on KVM."""
        return {"kvm": self._hypervisor.kvm}

    def _expect_running(self, name: str) -> None:
        """From now on report the guest's end as unexpected, unless it is powered off."""
        self._wanted.add(name)
        self._processes.found(f"node-{name}", self.get(name).pid)

    def _on_start(self, name: str) -> None:
        """Lower the priority of a guest, whatever starts it; libvirt gives each its own session."""
        if (pid := self._hypervisor.pid(name)) is not None:
            autogroup.set_nice(self._lab.harness_nice + autogroup.MACHINE, pid)

    def _on_end(self, end: End) -> None:
        self._ends[end.domain] = end.how
        if end.domain in self._wanted:
            self._wanted.discard(end.domain)
            self._processes.lost(f"node-{end.domain}", end.domain, end.how)

    def _check_running(self, name: str) -> None:
        """Raise Problem, with the console's last lines, if the guest has ended."""
        how = self._ends.get(name) or ("" if self._hypervisor.pid(name) is not None else "ended")
        if how:
            message = f"{name} {how} while it booted"
            raise Problem(message, f"lab {self._lab.lab}", "its console follows", self._console(name))

    def _touch(self, name: str) -> None:
        """Connect to the guest's sshd. Raises OSError while it does not listen, Problem if it has ended."""
        self._check_running(name)
        address = self._specs[name].control_address
        socket.create_connection((address, SSH_PORT), timeout=1.0).close()

    def _home(self, name: str) -> Path:
        return self._memory / "nodes" / name

    def _console_log(self, name: str) -> Path:
        return logs_in(self._memory) / f"console-{name}.log"

    def _console(self, name: str) -> str:
        log = self._console_log(name)
        return last_words(log.read_text(errors="replace"), _CONSOLE_LINES) if log.exists() else ""

    def _seed(self, name: str) -> Path:
        return self._hypervisor.disks / f"{name}-seed.img"

    def _seed_of(self, spec: NodeSpec) -> seed.Seed:
        """Return the inputs of the node's seed."""
        return seed.Seed(self._lab, spec, self._authority, self._settings, self._time.place)

    def _networks(self) -> Sequence[str]:
        """Return libvirt's descriptions of the lab's networks, which are existing bridges."""
        return [network_xml(name, self._lab.lab) for name in BRIDGES]

    def _make(self, spec: NodeSpec) -> None:
        """Create the machine of a node whose seed is written, start it, and register its spec.

        Raises Problem, OutsideError, CommandFailed.
        """
        raise NotImplementedError

    def _unmake(self, name: str) -> None:
        """Forget a machine that is off, with its disk. Raises OutsideError, CommandFailed."""
        raise NotImplementedError

    def _card(self, name: str, state: str) -> str:
        """Return the XML of the machine's card on `data`, with its carrier `up` or `down`."""
        raise NotImplementedError
