"""A process node: nested namespaces with an sshd as first process and a hollow kubelet beside it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from nodeproof.artifacts.components import HOLLOW
from nodeproof.labs.base import network
from nodeproof.labs.base.nodes import LinkState, NodeEnvironment, Nodes, NodeShell
from nodeproof.labs.base.processes import (
    children_of,
    enter,
    inherited_environment,
    kill_and_wait,
    run_command,
)
from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.base.spec import DEFAULT_SHAPE, SSH_PORT, NodeSpec
from nodeproof.labs.kinds.process import seed
from nodeproof.labs.kinds.process.seed import INSIDE, PROGRAMS, ServiceManager, Unit
from nodeproof.machines.machine import CommandResult, MachineError
from nodeproof.waiting import retry_on, wait_until, wait_until_empty

_SPAWN_TIMEOUT_S = 20.0
_WAIT_FOR_SEED = f"""
until [ -e {INSIDE}/kubelet.json ]; do sleep 0.02; done
exec "$0" "$@" $(sed -n 's/^KUBELET_FLAGS=//p' /etc/default/kubelet)
"""
"""A booting node sees its own files some milliseconds after its start."""
# Without its own kmsg, an OOM kill on the host would become an event of every node.
_FIRST_PROCESS = """
set -e
hostname {name}
mount --bind {home}/kmsg /dev/kmsg
mount --bind {home}/boot_id /proc/sys/kernel/random/boot_id
mount --bind {home}/etc /etc
until [ -e {home}/network-up ]; do sleep 0.02; done
mount --rbind {home}/run /run
exec {sshd}
"""
_SSHD_TIMEOUT_S = 20.0
_REMOVE_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 10.0
_DROP_INS = "etc/systemd/system/kubelet.service.d"
_CONFIG = re.compile(r"^ExecStart=.* --config=(\S+)", re.MULTILINE)
_STILL = frozenset("TtZX")
"""States of processes that do not run: stopped, traced, zombie, dead (proc_pid_stat(5))."""


class ProcessNodes(Nodes):
    """All nodes of one lab: join, power, links, leave."""

    def __init__(self, environment: NodeEnvironment) -> None:
        super().__init__(environment)
        self._power_lock = environment.power_lock
        self._managers: dict[str, ServiceManager] = {}
        self._pids: dict[str, int] = {}
        self._without_kubelet: set[str] = set()
        self._unplugged: set[str] = set()

    def _find_pid(self, name: str) -> int | None:
        return self._pids.get(name)

    def _create(self, spec: NodeSpec) -> None:
        if spec.shape != DEFAULT_SHAPE:
            raise self._problem(f"no {spec.shape} for {spec.name}", "use a lab of virtual machines")
        seed.write(self._home(spec.name), self._lab, spec, self._authority, self._settings)
        self._specs[spec.name] = spec
        self._managers[spec.name] = self._service_manager(spec.name)
        self.boot(spec.name)

    def boot(self, name: str) -> None:
        """Create new namespaces, boot id and links, and start sshd. Raises Problem if the node is on."""
        node = self.get(name)
        if node.pid is not None:
            raise self._problem(f"node {name} is on already", "power it off first")
        # The same length as before: a node must boot even if the lab's memory is full.
        with os.fdopen(os.open(self._home(name) / "boot_id", os.O_WRONLY | os.O_CREAT, 0o644), "w") as out:
            out.write(f"{uuid.uuid4()}\n")
        child = self._processes.start(f"node-{name}", self._first_process(node.spec), node=name)
        try:
            # `unshare --fork` creates the node's first process.
            pids = wait_until(lambda: children_of(child.pid), _SPAWN_TIMEOUT_S, 0.01)
            if not pids:
                message = f"node {name} has no first process after {_SPAWN_TIMEOUT_S:g} s"
                raise self._problem(message, f"see node-{name}.log")
            network.connect_node(node.spec, pids[0])
            network.set_links(node.spec, self._unplugged_networks(name), "down")
        except BaseException:
            self._end(node.spec)
            raise
        (self._home(name) / "network-up").touch()
        self._pids[name] = pids[0]
        self._events.write("machine", node=name, step="booted")

    def start_kubelet(self, name: str) -> None:
        """Start the node's kubelet inside its namespaces."""
        pid, node = self._pid(name), self.get(name)
        profile = profile_named(self._lab.profile)
        # Measured, five of each side by side: idle 3.3/1000 of a core, with two threads of Go 4.6. GOGC=400
        # saves nothing idle, and 14 % of 0.13 s at the start, for 7 MiB more of memory.
        env = {"GOMAXPROCS": "1", "TMPDIR": f"{INSIDE}/scratch", **profile.kubelet_env}
        argv = [*enter(pid), "sh", "-c", _WAIT_FOR_SEED, *self._kubelet(node.spec)]
        self._processes.start(f"kubelet-{name}", argv, node=name, env=env)

    def power_off(self, name: str) -> None:
        """Set the links down, so that no peer gets a FIN, then kill the PID namespace, if it runs."""
        node = self.get(name)
        if node.pid is None:
            return
        network.set_links(node.spec, network.BRIDGES, "down")
        self._end(node.spec)
        self._without_kubelet.discard(name)
        self._pids.pop(name, None)
        (self._home(name) / "network-up").unlink(missing_ok=True)
        self._events.write("machine", node=name, step="powered-off")

    def power_on(self, name: str) -> None:
        """Boot the node and start its kubelet, as a service manager would; do nothing if it is on."""
        if self.get(name).pid is None:
            try:
                self.boot(name)
                self.start_kubelet(name)
            except BaseException:
                self.power_off(name)
                raise
            self._without_kubelet.discard(name)

    def freeze(self, name: str) -> None:
        """Set the links down, as the kernel would still answer, and stop all processes. Raises Problem."""
        pid = self._pid(name)
        network.set_links(self.get(name).spec, network.BRIDGES, "down")
        # The outer processes first: nsenter stops itself once its child has stopped, and would miss a SIGCONT
        # that arrives before that.
        _signal(self._outer_processes(name), signal.SIGSTOP)
        if wait_until_empty(lambda: _stop_running(pid), timeout_s=_STOP_TIMEOUT_S, period_s=0.01):
            message = f"processes of {name} still run {_STOP_TIMEOUT_S:g} s after SIGSTOP"
            raise self._problem(message, "power the node off and on")
        self._events.write("machine", node=name, step="frozen")

    def reset(self, name: str) -> None:
        """Power the node off, and boot it only to a frozen first process. Raises Problem."""
        self._pid(name)
        self.power_off(name)
        self._without_kubelet.add(name)
        self.boot(name)
        self.freeze(name)
        self._events.write("machine", node=name, step="reset")

    def thaw(self, name: str) -> None:
        """Continue all processes; after a reset, start the kubelet. Do nothing if it runs or is off."""
        node = self.get(name)
        if node.pid is None:
            return
        _signal(_namespace_pids(node.pid), signal.SIGCONT)
        _signal(self._outer_processes(name), signal.SIGCONT)
        network.set_links(node.spec, set(network.BRIDGES) - self._unplugged_networks(name), "up")
        self._events.write("machine", node=name, step="thawed")
        if name in self._without_kubelet:
            self.start_kubelet(name)
            self._without_kubelet.discard(name)

    def set_link(self, name: str, state: LinkState) -> None:
        """Set the lab's end of `data` up or down, now and at each boot."""
        node = self.get(name)
        (self._unplugged.add if state == "down" else self._unplugged.discard)(name)
        if node.pid is not None:
            network.set_links(node.spec, ["data"], state)
        self._events.write("machine", node=name, step=f"link-{state}")

    def _start_stopped_kubelet(self, name: str) -> None:
        """Start the node's kubelet; do nothing if the node is off."""
        if self.get(name).pid is not None:
            self.start_kubelet(name)

    def _start_proxy(self, name: str) -> None:
        """Start the node's kube-proxy. Raises Problem."""
        pid, spec = self._pid(name), self.get(name).spec
        inside = self._home(spec.name) / "run" / "node"
        argv = [*enter(pid), *seed.kube_proxy_command(self._lab, spec, inside, self._authority)]
        self._processes.start(f"kube-proxy-{name}", argv, node=name, env={"GOMAXPROCS": "1"})

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it, with its files: another may get its name."""
        home = self._home(self.get(name).spec.name)
        self.power_off(name)
        self._unplugged.discard(name)
        del self._specs[name]
        self._managers.pop(name).close()
        # Dying processes may still write files.
        retry_on(lambda: shutil.rmtree(home), OSError, timeout_s=_REMOVE_TIMEOUT_S)

    def wait_up(self, name: str) -> None:
        """Wait until the node's sshd listens; do nothing if it is off. Raises Problem."""
        node = self.get(name)
        if node.pid is None:
            return
        connect = partial(socket.create_connection, (node.spec.control_address, SSH_PORT), timeout=1.0)
        try:
            retry_on(connect, OSError, timeout_s=_SSHD_TIMEOUT_S, period_s=0.02).close()
        except OSError as error:
            message = f"no sshd on {name} after {_SSHD_TIMEOUT_S:g} s: {error}"
            raise self._problem(message, f"see node-{name}.log") from error

    def shell(self, name: str, power_lock: threading.Lock) -> NodeShell:
        """Return a shell of the node that does not use its sshd."""
        return NamespaceShell(self, name, power_lock)

    def _service_manager(self, name: str) -> ServiceManager:
        units = {
            "kubelet.service": self._unit("kubelet", name, self._start_stopped_kubelet),
            "kube-proxy.service": self._unit("kube-proxy", name, self._start_proxy),
        }
        return ServiceManager(self._home(name) / "run" / "node", units, self._power_lock(name))

    def _unit(self, role: str, name: str, start: Callable[[str], None]) -> Unit:
        """Return a component of a node as a service, whose starts and stops are events of the node."""
        component, step = f"{role}-{name}", role.removeprefix("kube-")

        def is_active() -> bool:
            return component in self._processes.pids()

        def start_it() -> None:
            if not is_active():
                start(name)
                if is_active():
                    self._events.write("machine", node=name, step=f"{step}-started")

        def stop_it() -> None:
            if self._kill(component):
                self._events.write("machine", node=name, step=f"{step}-stopped")

        return Unit(start_it, stop_it, is_active)

    def _pid(self, name: str) -> int:
        pid = self.get(name).pid
        if pid is None:
            raise self._problem(f"node {name} is off", "power it on first")
        return pid

    def _outer_processes(self, name: str) -> list[int]:
        """Return the processes that run the node's from outside of its namespaces."""
        components = _components_of(name)
        return [pid for component, pid in self._processes.pids().items() if component in components]

    def _kill(self, component: str) -> bool:
        """Kill a component in a node and its runner outside; return whether it ran."""
        runner = self._processes.pids().get(component)
        if runner is None:
            return False
        self._processes.expect_end([component])
        for pid in children_of(runner):
            kill_and_wait(pid)
        self._processes.kill(component)
        return True

    def _unplugged_networks(self, name: str) -> set[str]:
        """Return the node's unplugged networks."""
        return {"data"} if name in self._unplugged else set()

    def _end(self, spec: NodeSpec) -> None:
        """Kill the node's first process, and with it all others; remove its links last."""
        self._processes.expect_end(_components_of(spec.name))
        self._processes.kill(f"node-{spec.name}")
        network.disconnect_node(spec)

    def _first_process(self, spec: NodeSpec) -> list[str]:
        """Return the command that mounts the seed in new namespaces and runs sshd as first process."""
        home = shlex.quote(str(self._home(spec.name)))
        sshd = f"{shlex.quote(self._lab.sshd)} -D -e -f {INSIDE}/sshd_config"
        script = _FIRST_PROCESS.format(name=spec.name, home=home, sshd=sshd)
        namespaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["unshare", *namespaces, "--", "bash", "-c", script]

    def _kubelet(self, spec: NodeSpec) -> list[str]:
        drop_ins = sorted((self._home(spec.name) / _DROP_INS).glob("*.conf"))
        configs = [config for drop_in in drop_ins for config in _CONFIG.findall(drop_in.read_text())]
        return [
            self._lab.kubelet(spec, HOLLOW),
            f"--config={[INSIDE / 'kubelet.json', *configs][-1]}",
            f"--kubeconfig={INSIDE}/kubeconfig",
            f"--root-dir={INSIDE}/kubelet",
            f"--cert-dir={INSIDE}/kubelet",
        ]


class NamespaceShell(NodeShell):
    """The shell of a process node, in its namespaces and without its sshd."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CommandResult:
        pid = self._nodes.get(self.name).pid
        if pid is None:
            raise MachineError(f"{self.name} is off")
        if not _sees_its_files(pid):
            raise MachineError(f"{self.name} is booting: it does not see its own files yet")
        env = inherited_environment()
        env["PATH"] = f"{PROGRAMS}:{env.get('PATH', os.defpath)}"
        return run_command([*enter(pid), *argv], timeout_s, stdin, env)


def _sees_its_files(pid: int) -> bool:
    """Return whether a node's /run is mounted: before, it sees its host's files, with its systemctl."""
    return Path(f"/proc/{pid}/root{PROGRAMS}/systemctl").exists()


def _components_of(name: str) -> tuple[str, ...]:
    """Return the components that run a node or run in it."""
    return (f"node-{name}", f"kubelet-{name}", f"kube-proxy-{name}")


def _stop_running(first: int) -> list[int]:
    """Signal the processes that are not stopped yet and return them: they may have new children."""
    running = [pid for pid in _namespace_pids(first) if _state(pid) not in _STILL]
    _signal(running, signal.SIGSTOP)
    return running


def _namespace_pids(first: int) -> list[int]:
    own = _namespace(first)
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if own and _namespace(pid) == own]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
