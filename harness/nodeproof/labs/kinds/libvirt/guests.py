"""Nodes that are virtual machines of one libvirtd: join, power, links, leave; clocks, shells and volumes.

A clock chip has whole seconds only, so each guest asks for the lab's own time. The supervisor's commands in a
guest run through the ordinary ssh client, on `control`.

Volumes are disks of the lab's libvirtd, plugged into running guests. The driver runs beside libvirtd. A
guest's kubelet reaches it through a socket that the guest's sshd forwards for as long as an SSH connection
lasts; each connection is restarted when it ends.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base import autogroup
from nodeproof.labs.base.control_plane import DriverFolders, DriverOptions
from nodeproof.labs.base.mounts import logs_in
from nodeproof.labs.base.network import BRIDGES
from nodeproof.labs.base.nodes import LinkState, NodeEnvironment, Nodes, NodeShell
from nodeproof.labs.base.processes import last_console_lines, run_command
from nodeproof.labs.base.spec import SSH_PORT, NodeSpec
from nodeproof.labs.kinds.libvirt import seed
from nodeproof.labs.kinds.libvirt.domain_xml import network_xml, owner
from nodeproof.labs.kinds.libvirt.hypervisor import URI, Hypervisor
from nodeproof.machines.machine import CommandResult, MachineError, Shell, checked
from nodeproof.model.clocks import SET, SETTING
from nodeproof.model.problem import OutsideError
from nodeproof.waiting import retry_on

MAX_NODES = 8
"""The most nodes of a lab: a guest takes over a gigabyte of memory."""
MEMORY_MIB = 1280
BOOT_TIMEOUT_S = 240.0
"""How long a guest may take until its sshd serves: emulated, beside other booting guests, on a busy host."""
_END_TIMEOUT_S = 5.0
_CONSOLE_LINES = 15
# virDomainEventType and its details in libvirt's include/libvirt/libvirt-domain.h
_STARTED, _STOPPED, _CRASHED = 2, 5, 8
_ENDS = {(_CRASHED, 0): "panicked", (_STOPPED, 0): "powered itself off", (_STOPPED, 5): "lost its QEMU"}
"""How a guest ended by itself, by event and detail."""
_COMMAND_TIMEOUT_S, _DISK_TIMEOUT_S = 20.0, 30.0
_SSH_FAILED = 255


class Guests(Nodes):
    """All nodes of one lab.

    A kind of lab implements how machines are created, in the methods that raise NotImplementedError here.
    """

    def __init__(self, environment: NodeEnvironment) -> None:
        super().__init__(environment)
        self._hypervisor = Hypervisor(environment.lab.dir, environment.memory, environment.processes)
        self._time: TimeServer
        self._expected_running: set[str] = set()
        self._late_clocks: set[str] = set()
        self._ends: dict[str, str] = {}

    def prepare(self) -> None:
        """Start the hypervisor. Raises Problem, OutsideError, CommandFailed."""
        self._hypervisor.start(Path(self._lab.guest["kernel"]), self._networks())
        self._hypervisor.domains.follow(self._on_event)
        self._time = TimeServer()

    def _find_pid(self, name: str) -> int | None:
        return self._hypervisor.pid(name)

    def _create(self, spec: NodeSpec) -> None:
        home = self._home(spec.name)
        home.mkdir()
        try:
            host_key = self._make_seed(home, spec)
            (self._lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
            self._write_ssh_config(home, spec, host_key)
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
        self._wait_up(name, BOOT_TIMEOUT_S)

    def _wait_up(self, name: str, timeout_s: float) -> None:
        retry = partial(retry_on, timeout_s=timeout_s, period_s=0.2)
        try:
            retry(lambda: self._touch(name), OSError, MachineError)
            if name in self._late_clocks:
                retry(lambda: self._set_clock(name), OSError, MachineError)
                self._late_clocks.discard(name)
        except (OSError, MachineError) as error:
            message = f"{name} hangs at boot: no sshd after {timeout_s:g} s"
            raise self._problem(message, "its console follows", self._console(name)) from error

    def _set_clock(self, name: str) -> None:
        """Set the guest's clock; the events around it mark its earlier measurements as invalid."""
        self._events.write("machine", node=name, step=SETTING)
        self._time.set_clock(self.shell(name, threading.Lock()))
        self._events.write("machine", node=name, step=SET)

    def power_off(self, name: str) -> None:
        """End the virtual machine at once, without flushing anything; do nothing if it is off."""
        self._expected_running.discard(name)
        if self.get(name).pid is None:
            return
        try:
            self._hypervisor.domains.act("destroy", name)
        except OutsideError:
            if self.get(name).pid is not None:
                raise
        self._processes.set_external(f"node-{name}", None)
        self._events.write("machine", node=name, step="powered-off")

    def power_on(self, name: str) -> None:
        """Start the virtual machine, which then boots; do nothing if it is on."""
        if self.get(name).pid is not None:
            return
        # A guest that powers itself off is gone a moment before libvirt notices.
        start = partial(self._hypervisor.domains.act, "create", name)
        retry_on(start, OutsideError, timeout_s=_END_TIMEOUT_S, period_s=0.2)
        self._ends.pop(name, None)
        self._expect_running(name)
        self._events.write("machine", node=name, step="booted")

    def freeze(self, name: str) -> None:
        """Stop the virtual machine's processors, unless they are stopped. Raises OutsideError."""
        if not self._hypervisor.domains.is_suspended(name):
            self._hypervisor.domains.act("suspend", name)
            self._events.write("machine", node=name, step="frozen")

    def reset(self, name: str) -> None:
        """Reset the virtual machine while its processors are stopped. Raises OutsideError."""
        self.freeze(name)
        self._hypervisor.domains.act("reset", name)
        self._events.write("machine", node=name, step="reset")

    def thaw(self, name: str) -> None:
        """Let the virtual machine's processors continue; do nothing if it runs or is off."""
        if self._hypervisor.domains.is_suspended(name):
            self._hypervisor.domains.act("resume", name)
            self._late_clocks.add(name)
            self._events.write("machine", node=name, step="thawed")

    def set_link(self, name: str, state: LinkState) -> None:
        """Remove or restore the carrier of `data`, now and at each boot."""
        self._hypervisor.domains.update(name, self._card(name, state))
        self._events.write("machine", node=name, step=f"link-{state}")

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it, with its disks."""
        self.power_off(name)
        self._unmake(name)
        del self._specs[name]
        self._ends.pop(name, None)
        self._processes.set_external(f"node-{name}", None)
        shutil.rmtree(self._home(name))
        self._seed(name).unlink()
        self._hypervisor.refresh_volumes()

    def shell(self, name: str, power_lock: threading.Lock) -> NodeShell:
        """Return the node's shell: SSH from the control plane's side."""
        return SshShell(self, name, power_lock, self._home(name) / SSH_CONFIG)

    def owner(self, spec: NodeSpec) -> str:
        """Return the owner that libvirt must report for the node."""
        return owner(self._lab.lab, spec.machine_id)

    def runs_on_kvm(self) -> bool:
        return self._hypervisor.kvm

    def _expect_running(self, name: str) -> None:
        """From now on report the guest's end as unexpected, unless it is powered off."""
        self._expected_running.add(name)
        self._processes.set_external(f"node-{name}", self.get(name).pid)

    def _on_event(self, name: str, event: int, detail: int) -> None:
        # Whatever starts a guest: libvirt gives each its own session.
        if event == _STARTED and (pid := self._hypervisor.pid(name)) is not None:
            autogroup.set_nice(self._lab.harness_nice + autogroup.MACHINE, pid)
        # A guest that was destroyed or saved did not end by itself: the hypervisor did that.
        if how := _ENDS.get((event, detail)):
            self._ends[name] = how
            if name in self._expected_running:
                self._expected_running.discard(name)
                self._processes.record_external_end(f"node-{name}", name, how)

    def _check_running(self, name: str) -> None:
        """Raise Problem, with the console's last lines, if the guest has ended."""
        how = self._ends.get(name) or ("" if self._hypervisor.pid(name) is not None else "ended")
        if how:
            message = f"{name} {how} while it booted"
            raise self._problem(message, "its console follows", self._console(name))

    def _touch(self, name: str) -> None:
        """Connect to the guest's sshd. Raises OSError while it does not listen, Problem if it has ended."""
        self._check_running(name)
        address = self._specs[name].control_address
        socket.create_connection((address, SSH_PORT), timeout=1.0).close()

    def _console_log(self, name: str) -> Path:
        return logs_in(self._memory) / f"console-{name}.log"

    def _console(self, name: str) -> str:
        log = self._console_log(name)
        return last_console_lines(log.read_text(errors="replace"), _CONSOLE_LINES) if log.exists() else ""

    def _seed(self, name: str) -> Path:
        return self._hypervisor.disks / f"{name}-seed.img"

    def _seed_of(self, spec: NodeSpec) -> seed.Seed:
        """Return the inputs of the node's seed."""
        return seed.Seed(self._lab, spec, self._authority, self._settings, self._time.place)

    def _make_seed(self, home: Path, spec: NodeSpec) -> str:
        """Write the node's seed below `home` and create its disk; return the public host key.

        Raises Problem, CommandFailed, OSError.
        """
        return seed.make(home, self._seed(spec.name), self._seed_of(spec))

    def _write_ssh_config(self, home: Path, spec: NodeSpec, host_key: str) -> None:
        """Write the node's known_hosts and ssh_config to its folder. Raises OSError."""
        address, known_hosts = spec.control_address, home / "known_hosts"
        known_hosts.write_text(f"{address} {host_key}\n")
        key = self._lab.dir / "pki" / "ssh"
        config = _HOST_CONFIG.format(name=spec.name, address=address, key=key, known_hosts=known_hosts)
        (home / SSH_CONFIG).write_text(config)

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


def make_overlay(image: Path, disk: Path) -> None:
    """Create a disk that is an empty overlay of an image's. Raises CommandFailed."""
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image), "-F", "qcow2", str(disk)]
    proc.run(argv, timeout_s=_DISK_TIMEOUT_S)


class TimeServer:
    """Sends every client on `control` the host's current time."""

    def __init__(self) -> None:
        self._socket = socket.create_server((BRIDGES["control"], 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def place(self) -> str:
        """Address and port, in the format of a seed."""
        address, port = self._socket.getsockname()
        return f"{address} {port}"

    def set_clock(self, guest: Shell) -> None:
        """Let a thawed guest ask for the time and set its clock; the error is the start time of `date`.

        Raises MachineError.
        """
        address, port = self._socket.getsockname()
        script = f"exec 3<>/dev/tcp/{address}/{port} && read -r now <&3 && date --set=@$now"
        completed = guest.run(["bash", "-c", script], timeout_s=_COMMAND_TIMEOUT_S)
        checked(completed, f"{guest.name}: its clock cannot be set")

    def _serve(self) -> None:
        while True:
            peer, _address = self._socket.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(f"{time.time():.6f}\n".encode())


class SshShell(NodeShell):
    """The shell of a guest, by its ssh_config."""

    def __init__(self, nodes: Nodes, name: str, power_lock: threading.Lock, config: Path) -> None:
        super().__init__(nodes, name, power_lock)
        self._config = config

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        ssh = ["ssh", "-F", str(self._config), "-o", f"ConnectTimeout={max(1, int(timeout_s))}"]
        completed = run_command([*ssh, self.name, "--", shlex.join(argv)], timeout_s, stdin)
        if completed.status == _SSH_FAILED:
            raise MachineError(f"{self.name}: {completed.stderr.strip()}")
        return completed


SSH_CONFIG = "ssh_config"
"""The file in a node's folder by which ssh reaches the node: with its address, host key and client key."""
_HOST_CONFIG = """\
Host {name}
  HostName {address}
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  StrictHostKeyChecking yes
  BatchMode yes
"""
_PLUGIN = "/var/lib/kubelet/plugins_registry/csi.sock"
# A guest without power closes no connection; one that is only slow must not lose its driver.
_CONFIG = """\
Include {nodes}/*/{name}
Host *
  ConnectTimeout 10
  ServerAliveInterval 5
  ServerAliveCountMax 4
  ExitOnForwardFailure yes
  LogLevel ERROR
"""
_SERVE_NODES = """
for config in {nodes}/*/{name}; do
    node=${{config%/*}} node=${{node##*/}}
    served="$served --node=$node=unix://{home}/$node.sock"
    setpriv --pdeathsig=KILL -- sh -c 'while :; do setpriv --pdeathsig=KILL -- "$@"; sleep 1; done' \\
        tunnel {ssh} -N -R {plugin}:{home}/$node.sock "$node" &
done
"""


def driver_options(folders: DriverFolders) -> DriverOptions:
    """Serve the driver over SSH: both its commands on a node and the requests of the node's kubelet."""
    config = folders.settings / SSH_CONFIG
    config.write_text(_CONFIG.format(nodes=folders.nodes, name=SSH_CONFIG))
    ssh = shlex.join(["ssh", "-F", str(config)])
    options = [f"--hypervisor=libvirt:{URI}", f"--pool={folders.spec.dir.name}", f"--shell={ssh} {{node}}"]
    script = _SERVE_NODES.format(
        nodes=shlex.quote(str(folders.nodes)),
        name=SSH_CONFIG,
        home=shlex.quote(str(folders.home)),
        ssh=ssh,
        plugin=_PLUGIN,
    )
    return DriverOptions(options, script)
