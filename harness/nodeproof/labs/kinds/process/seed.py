"""A process node's files: its seed, which makes it this node, and the credentials of its kube-proxy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeproof.artifacts.components import PROXY
from nodeproof.labs.base.control_plane import flags, kubeconfig
from nodeproof.labs.base.mounts import ETC, make_etc
from nodeproof.labs.base.nodes import kubelet_configuration, kubelet_flags
from nodeproof.labs.base.pki import Authority, pair_in, ssh_key
from nodeproof.labs.base.profiles import FIXED_KUBELET
from nodeproof.labs.base.spec import API_ADDRESS, SSH_PORT, LabSpec, NodeSpec
from nodeproof.machines.machine import CommandResult
from nodeproof.model.pattern import Json

_PROGRAM = Path(__file__).with_name("systemctl")
_FOLDER = "systemctl"
_REQUESTS = "requests"
_INACTIVE, _UNKNOWN_STATE, _NOT_LOADED = 3, 4, 5
"""Exit statuses of systemctl(1)."""


def install_systemctl(inside: Path) -> None:
    """Write `systemctl` and its pipe into the folder that the node sees as /run/node. Raises OSError."""
    (inside / "bin").mkdir()
    shutil.copy(_PROGRAM, inside / "bin" / _PROGRAM.name)
    (inside / "bin" / _PROGRAM.name).chmod(0o755)
    (inside / _FOLDER).mkdir()
    os.mkfifo(inside / _FOLDER / _REQUESTS, 0o600)


@dataclass(frozen=True)
class Unit:
    """A service of a node. `start` and `stop` do nothing if it runs, or does not."""

    start: Callable[[], None]
    stop: Callable[[], None]
    is_active: Callable[[], bool]


class ServiceManager:
    """Carries out the requests of one node's `systemctl` in their order, from its construction to `close`.

    `power_lock` is held meanwhile. A request whose caller exited, was killed, or lost its node's power has no
    effect: it would act on whatever came after it.
    """

    def __init__(self, inside: Path, units: Mapping[str, Unit], power_lock: threading.Lock) -> None:
        self._folder = inside / _FOLDER
        self._units = units
        self._power_lock = power_lock
        self._is_closed = False
        # Open for both directions: the pipe has no end then, however many callers come and go.
        self._requests = os.open(self._folder / _REQUESTS, os.O_RDWR)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Carry out no further requests."""
        self._is_closed = True
        os.write(self._requests, b"\n")

    def _serve(self) -> None:
        with os.fdopen(self._requests, errors="replace") as requests:
            for request in requests:
                if self._is_closed:
                    return
                caller, *argv = request.split() or [""]
                with self._power_lock, contextlib.suppress(OSError):
                    self._answer(caller, argv)

    def _answer(self, caller: str, argv: list[str]) -> None:
        """Carry out one request. Raises OSError, before it has an effect if the caller has exited."""
        descriptor = os.open(self._folder / caller, os.O_WRONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "w", errors="replace") as answer:
            try:
                result = self._run(argv)
            except Exception as error:  # the caller needs an answer to any error
                result = CommandResult(1, "", " ".join(str(error).split()) or repr(error))
            answer.write(f"{result.status}\n{result.stdout}\n{result.stderr}\n")

    def _run(self, argv: list[str]) -> CommandResult:
        match [word for word in argv if not word.startswith("-")]:
            case ["daemon-reload"] | ["reset-failed" | "list-units", *_]:
                return CommandResult(0, "", "")
            case ["is-active", name]:
                return self._state(name, is_quiet="--quiet" in argv)
            case ["cat" | "start" | "stop" | "restart" as verb, name]:
                return self._act(verb, name)
        return CommandResult(1, "", f"no systemd: {' '.join(['systemctl', *argv])} is not supported")

    def _state(self, name: str, *, is_quiet: bool) -> CommandResult:
        unit = self._unit(name)
        is_active = unit is not None and unit.is_active()
        status = 0 if is_active else _UNKNOWN_STATE if unit is None else _INACTIVE
        return CommandResult(status, "" if is_quiet else "active" if is_active else "inactive", "")

    def _act(self, verb: str, name: str) -> CommandResult:
        unit = self._unit(name)
        if unit is None:
            return CommandResult(_NOT_LOADED, "", f"no systemd, and so no {name}")
        if verb in ("stop", "restart"):
            unit.stop()
        if verb in ("start", "restart"):
            unit.start()
        return CommandResult(0, "", "")

    def _unit(self, name: str) -> Unit | None:
        return self._units.get(name if "." in name else f"{name}.service")


INSIDE = Path("/run/node")
"""The node's path to its own files; it cannot see the rest of the lab's folder."""
PROGRAMS = INSIDE / "bin"
"""The folder of the node's own programs: its `systemctl`."""
_PATH = f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUP_V2 = Path("/sys/fs/cgroup/cgroup.controllers")
_PARTS_OF_SSHD = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""The helper programs of sshd since 9.8 and 10.0 (sshd_config(5)), in the folder of their package."""
_SSHD_CONFIG = f"""\
HostKey {INSIDE}/ssh_host_key
AuthorizedKeysFile {INSIDE}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PidFile none
MaxSessions 64
SetEnv TMPDIR={INSIDE}/scratch PATH={_PATH}
"""
_PROXY_USER = "system:kube-proxy"
"""The user whom the API server's default roles let read what kube-proxy needs (system:node-proxier)."""
_PROXY_FILE = "kube-proxy"
_PROXY_SETTINGS_UNSET: Mapping[str, str] = {
    "conntrack-max-per-core": "0",
    "conntrack-min": "0",
    "conntrack-tcp-timeout-established": "0s",
    "conntrack-tcp-timeout-close-wait": "0s",
    "oom-score-adj": "0",
}
"""Disables settings that would also change the host, whose kernel nodes share."""


def kubelet_settings() -> Mapping[str, Json]:
    """Return the settings of every kubelet; nodes share the host's cgroups, which may be cgroup v1."""
    return FIXED_KUBELET if CGROUP_V2.exists() else {**FIXED_KUBELET, "failCgroupV1": False}


def write(
    home: Path, lab: LabSpec, spec: NodeSpec, authority: Authority, settings: Mapping[str, Json]
) -> None:
    """Write everything that a node needs before it boots: identity, credentials, kubelet configuration."""
    # A setting that the lab refuses must end the start of the lab, not a fault that starts kube-proxy.
    _proxy_flags(lab, spec)
    inside = home / "run" / "node"
    for folder in (inside / "kubelet", inside / "scratch", home / "run" / "sshd", home / "run" / "lock"):
        folder.mkdir(parents=True)
    (home / "kmsg").touch()
    hosts = f"127.0.0.1 localhost\n{spec.data_address} {spec.name}\n{API_ADDRESS} kubernetes\n"
    own = {
        "machine-id": f"{spec.machine_id}\n",
        "hostname": f"{spec.name}\n",
        "hosts": hosts,
        "passwd": _passwd((ETC / "passwd").read_text()),
        "resolv.conf": "",
        # Without it nss-systemd synthesizes a locked root user, which sshd rejects.
        "shadow": "root:*:19000:0:99999:7:::\n",
    }
    make_etc(home / "etc", own)
    # Where faults and actions look for a kubelet's files on every kind of node.
    (home / "etc" / "kubernetes").symlink_to(INSIDE)
    install_systemctl(inside)
    client_key = lab.dir / "pki" / "ssh.pub"
    (inside / "authorized_keys").write_text(client_key.read_text())
    host_key = ssh_key(inside / "ssh_host_key")
    (lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
    (inside / "sshd_config").write_text(_sshd_config(spec, Path(lab.sshd)))
    _write_kubelet(inside, lab, spec, authority, settings)
    (home / "etc" / "default").mkdir()
    (home / "etc" / "default" / "kubelet").write_text(f"KUBELET_FLAGS={' '.join(kubelet_flags(lab, spec))}\n")


def _write_kubelet(
    inside: Path, lab: LabSpec, spec: NodeSpec, authority: Authority, settings: Mapping[str, Json]
) -> None:
    authority.write_bundle(inside)
    hosts = [spec.node_name, spec.data_address]
    authority.issue("kubelet", f"system:node:{spec.node_name}", "system:nodes", hosts, inside)
    pair, bundle = pair_in(INSIDE, "kubelet"), INSIDE / "ca.crt"
    (inside / "kubeconfig").write_text(kubeconfig(pair, bundle, spec.node_name))
    folders = {
        "volumePluginDir": f"{INSIDE}/kubelet/volume-plugins",
        "podLogsDir": f"{INSIDE}/kubelet/pod-logs",
    }
    configuration = kubelet_configuration(lab, spec, INSIDE, {**settings, **folders})
    (inside / "kubelet.json").write_text(json.dumps(configuration))


def _passwd(host: str) -> str:
    """Return the host's passwd, with root's home inside the node and `/bin/sh` as its shell.

    bash under sshd would read the ~/.bashrc of the host's user, which is no part of a node and costs time:
    with pyenv in it each command took 100 ms longer; without any, bash is 1 ms slower than dash.
    """
    passwd = re.sub(r"^root:.*$", f"root:x:0:0:root:{INSIDE}:/bin/sh", host, count=1, flags=re.MULTILINE)
    if "\nsshd:" not in passwd:
        passwd += "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    return passwd


def _sshd_config(spec: NodeSpec, sshd: Path) -> str:
    helpers = sshd.parents[1] / "lib" / "openssh"
    parts = [
        f"{name} {helpers / file}\n" for name, file in _PARTS_OF_SSHD.items() if (helpers / file).exists()
    ]
    return f"{''.join(parts)}ListenAddress {spec.control_address}:{SSH_PORT}\n{_SSHD_CONFIG}"


def kube_proxy_command(lab: LabSpec, spec: NodeSpec, inside: Path, authority: Authority) -> list[str]:
    """Return kube-proxy's command line, and create its credentials on its first start.

    It is configured by flags: with a file, kube-proxy watches that file and ends if the machine has no
    inotify instance left (cmd/kube-proxy/app/options.go), as happens beside several labs.

    Args:
        lab: the lab of the node.
        spec: the node.
        inside: the folder that the node sees as `INSIDE`.
        authority: issues the credentials.

    Raises:
        Problem: The user sets one of the lab's own flags.
    """
    config = inside / f"{_PROXY_FILE}.kubeconfig"
    if not config.exists():
        authority.issue(_PROXY_FILE, _PROXY_USER, folder=inside)
        config.write_text(kubeconfig(pair_in(INSIDE, _PROXY_FILE), INSIDE / "ca.crt", _PROXY_USER))
    return [lab.binary(PROXY), *flags(_proxy_flags(lab, spec))]


def _proxy_flags(lab: LabSpec, spec: NodeSpec) -> Mapping[str, str]:
    """Return kube-proxy's flags, with those of the user. Raises Problem if these are the lab's own."""
    own = {
        "kubeconfig": str(INSIDE / f"{_PROXY_FILE}.kubeconfig"),
        "hostname-override": spec.node_name,
        "proxy-mode": "nftables",
        "healthz-bind-address": "127.0.0.1:10256",
        **_PROXY_SETTINGS_UNSET,
    }
    lab.overrides.refuse_own(PROXY, own)
    return {**own, **lab.overrides.of(PROXY)}
