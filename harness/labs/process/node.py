"""A process node: nested namespaces with an sshd as first process and a hollow kubelet beside it."""

from __future__ import annotations

import json
import re
import shlex
import threading
import uuid
from pathlib import Path

import tenacity

from harness.labs.pki import Authority, pair_in, ssh_key
from harness.labs.process import etc, kubelet, network
from harness.labs.process.control_plane import kubeconfig
from harness.labs.process.node_shell import Inside, NodeShell
from harness.labs.process.nodes import RunningNode
from harness.labs.process.processes import EventLog, Processes, enter
from harness.labs.process.spec import (
    API_ADDRESS,
    SSH_PORT,
    LabSpec,
    NodeSpec,
    check_node_name,
)
from harness.labs.profiles import profile_named
from harness.model.problem import Problem

_SPAWN_LIMIT_S = 20.0
INSIDE = Path("/run/node")
"""Where a node finds its own files; the rest of the lab's folder is out of its sight."""


class ProcessNodes:
    """All nodes of one lab: join, power off, power on, leave."""

    def __init__(
        self, lab: LabSpec, memory: Path, authority: Authority, processes: Processes, events: EventLog
    ) -> None:
        self._lab = lab
        self._memory = memory
        self._authority = authority
        self._processes = processes
        self._events = events
        self._nodes: dict[str, RunningNode] = {}

    def get(self, name: str) -> RunningNode:
        """Look a node up. Raises Problem when the lab has none of that name."""
        if name not in self._nodes:
            raise Problem(f"no node {name!r}", f"lab {self._lab.lab}", f"it has: {', '.join(self._nodes)}")
        return self._nodes[name]

    def all(self) -> list[RunningNode]:
        """Every node, on or off."""
        return list(self._nodes.values())

    def join(self, spec: NodeSpec) -> None:
        """Write the node's seed and power it on, its kubelet not started yet. Raises Problem,
        CommandFailed.
        """
        check_node_name(spec.name)
        if spec.name in self._nodes:
            raise Problem(f"node {spec.name} is there already", f"lab {self._lab.lab}", "choose another name")
        self._write_seed(spec)
        self._nodes[spec.name] = RunningNode(spec, None)
        self.boot(spec.name)

    def boot(self, name: str) -> None:
        """New namespaces, a new boot id, links, sshd. Raises Problem when the node is on."""
        node = self.get(name)
        if node.pid is not None:
            raise Problem(f"node {name} is on already", f"lab {self._lab.lab}", "power it off first")
        (self._home(node.spec) / "boot_id").write_text(f"{uuid.uuid4()}\n")
        child = self._processes.start(f"node-{name}", self._first_process(node.spec), node=name)
        try:
            pid = _child_of(child.pid)
            network.connect_node(node.spec, pid)
        except BaseException:
            self._end(node.spec)
            raise
        (self._home(node.spec) / "network-up").touch()
        self._nodes[name] = RunningNode(node.spec, pid)
        self._events.write("machine", node=name, step="booted")

    def start_kubelet(self, name: str) -> None:
        """Start the node's kubelet inside its namespaces."""
        node = self.get(name)
        if node.pid is None:
            raise Problem(f"node {name} is off", f"lab {self._lab.lab}", "power it on first")
        profile = profile_named(self._lab.profile)
        env = {"GOMAXPROCS": "2", "TMPDIR": f"{INSIDE}/scratch", **profile.kubelet_env}
        self._processes.start(
            f"kubelet-{name}", [*enter(node.pid), *self._kubelet(node.spec)], node=name, env=env
        )

    def power_off(self, name: str) -> None:
        """Silence the links, then kill the node's PID namespace: no peer hears a FIN. Off already is fine."""
        node = self.get(name)
        if node.pid is None:
            return
        network.silence(node.spec)
        self._end(node.spec)
        self._nodes[name] = RunningNode(node.spec, None)
        (self._home(node.spec) / "network-up").unlink(missing_ok=True)
        self._events.write("machine", node=name, step="powered-off")

    def power_on(self, name: str) -> None:
        """Boot the node and start its kubelet, as its service manager would. On already is fine."""
        if self.get(name).pid is None:
            self.boot(name)
            self.start_kubelet(name)

    def remove(self, name: str) -> None:
        """Power the node off for good and forget it."""
        self.power_off(name)
        del self._nodes[name]

    def prepare(self) -> None:
        """Namespaces need nothing to run on."""

    def wait_up(self, name: str) -> None:
        """A node's sshd is its first process: it is up with its links."""
        self.get(name)

    def shell(self, name: str, power_lock: threading.Lock) -> NodeShell:
        """The node without its sshd."""
        return NodeShell(self, name, Inside(self, name), power_lock)

    def _end(self, spec: NodeSpec) -> None:
        """Kill the node's first process, and with it the others; its links go last."""
        self._processes.expect_end([f"node-{spec.name}", f"kubelet-{spec.name}"])
        self._processes.kill(f"node-{spec.name}")
        network.disconnect_node(spec)

    def _home(self, spec: NodeSpec) -> Path:
        return self._memory / "nodes" / spec.name

    def _write_seed(self, spec: NodeSpec) -> None:
        """Everything a node must know before it boots: identity, credentials, configuration."""
        home = self._home(spec)
        inside = home / "run" / "node"
        for folder in (inside / "kubelet", inside / "scratch", home / "run" / "sshd", home / "run" / "lock"):
            folder.mkdir(parents=True)
        (home / "kmsg").touch()
        hosts = f"127.0.0.1 localhost\n{spec.data_address} {spec.name}\n{API_ADDRESS} kubernetes\n"
        own = {
            "machine-id": f"{spec.machine_id}\n",
            "hostname": f"{spec.name}\n",
            "hosts": hosts,
            "passwd": _passwd((etc.HOST / "passwd").read_text()),
            "resolv.conf": "",
            # Without it nss-systemd makes up a locked root, whom sshd refuses.
            "shadow": "root:*:19000:0:99999:7:::\n",
        }
        etc.make(home / "etc", own)
        client_key = self._lab.dir / "pki" / "ssh.pub"
        (inside / "authorized_keys").write_text(client_key.read_text())
        host_key = ssh_key(inside / "ssh_host_key")
        (self._lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
        (inside / "sshd_config").write_text(_sshd_config(spec))
        self._write_kubelet(spec, inside)

    def _write_kubelet(self, spec: NodeSpec, inside: Path) -> None:
        self._authority.write_bundle(inside)
        self._authority.issue(
            "kubelet", f"system:node:{spec.name}", "system:nodes", [spec.name, spec.data_address], inside
        )
        pair, bundle = pair_in(INSIDE, "kubelet"), INSIDE / "ca.crt"
        (inside / "kubeconfig").write_text(kubeconfig(pair, bundle, spec.name))
        configuration = {
            **kubelet.configuration(self._lab, spec, INSIDE),
            "volumePluginDir": f"{INSIDE}/kubelet/volume-plugins",
            "podLogsDir": f"{INSIDE}/kubelet/pod-logs",
        }
        (inside / "kubelet.json").write_text(json.dumps(configuration))

    def _first_process(self, spec: NodeSpec) -> list[str]:
        """Own namespaces, the seed's files in place, then sshd as the node's first process."""
        home = shlex.quote(str(self._home(spec)))
        script = "\n".join(
            [
                "set -e",
                f"hostname {spec.name}",
                # Else an OOM kill of the host would become an event of every node.
                f"mount --bind {home}/kmsg /dev/kmsg",
                f"mount --bind {home}/boot_id /proc/sys/kernel/random/boot_id",
                f"mount --bind {home}/etc /etc",
                f"until [ -e {home}/network-up ]; do sleep 0.02; done",
                f"mount --rbind {home}/run /run",
                f"exec {shlex.quote(self._lab.sshd)} -D -e -f {INSIDE}/sshd_config",
            ]
        )
        namespaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["unshare", *namespaces, "--", "bash", "-c", script]

    def _kubelet(self, spec: NodeSpec) -> list[str]:
        return [
            self._lab.binary("hollow-kubelet"),
            f"--config={INSIDE}/kubelet.json",
            f"--kubeconfig={INSIDE}/kubeconfig",
            f"--root-dir={INSIDE}/kubelet",
            f"--cert-dir={INSIDE}/kubelet",
            *kubelet.flags(self._lab, spec),
        ]


def _passwd(host: str) -> str:
    """The host's users, but root at home in the node: bash under sshd reads ~/.bashrc, and that of whoever
    owns the host is no part of a node (nor free: one with pyenv in it made each command 100 ms slower).
    """
    passwd = re.sub(r"^root:.*$", f"root:x:0:0:root:{INSIDE}:/bin/bash", host, count=1, flags=re.MULTILINE)
    if "\nsshd:" not in passwd:
        passwd += "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    return passwd


def _sshd_config(spec: NodeSpec) -> str:
    return "\n".join(
        [
            f"ListenAddress {spec.control_address}:{SSH_PORT}",
            f"HostKey {INSIDE}/ssh_host_key",
            f"AuthorizedKeysFile {INSIDE}/authorized_keys",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "PidFile none",
            "MaxSessions 64",
            f"SetEnv TMPDIR={INSIDE}/scratch",
            "",
        ]
    )


def _child_of(parent: int) -> int:
    """The process that `unshare --fork` made. Raises Problem when it does not come up."""
    retry = tenacity.Retrying(
        stop=tenacity.stop_after_delay(_SPAWN_LIMIT_S),
        wait=tenacity.wait_fixed(0.01),
        retry=tenacity.retry_if_result(lambda pid: pid is None),
        retry_error_callback=lambda _state: None,
    )
    pid = retry(_find_child, parent)
    if pid is None:
        raise Problem(f"no first process within {_SPAWN_LIMIT_S:g} s", "process node", "see the node's log")
    return int(pid)


def _find_child(parent: int) -> int | None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            return int(stat.parent.name)
    return None
