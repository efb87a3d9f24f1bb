"""A process node's files: its seed, which makes it this node, and the credentials of its kube-proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof.artifacts.components import PROXY
from nodeproof.labs.base import kubelet
from nodeproof.labs.base.control_plane import flags, kubeconfig
from nodeproof.labs.base.mounts import ETC, make_etc
from nodeproof.labs.base.pki import Authority, pair_in, ssh_key
from nodeproof.labs.base.profiles import FIXED_KUBELET
from nodeproof.labs.base.spec import API_ADDRESS, SSH_PORT, LabSpec, NodeSpec
from nodeproof.labs.kinds.process import service_manager

Json = Any
INSIDE = Path("/run/node")
"""The node's path to its own files; it cannot see the rest of the lab's folder."""
PROGRAMS = INSIDE / "bin"
"""The folder of the node's own programs: its `systemctl`."""
_PATH = f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUP_V2 = Path("/sys/fs/cgroup/cgroup.controllers")
_PARTS_OF_SSHD = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""The helper programs of sshd since 9.8 and 10.0 (sshd_config(5)), in the folder of their package."""
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
    service_manager.install(inside)
    client_key = lab.dir / "pki" / "ssh.pub"
    (inside / "authorized_keys").write_text(client_key.read_text())
    host_key = ssh_key(inside / "ssh_host_key")
    (lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
    (inside / "sshd_config").write_text(_sshd_config(spec, Path(lab.sshd)))
    _write_kubelet(inside, lab, spec, authority, settings)
    (home / "etc" / "default").mkdir()
    (home / "etc" / "default" / "kubelet").write_text(f"KUBELET_FLAGS={' '.join(kubelet.flags(lab, spec))}\n")


def _write_kubelet(
    inside: Path, lab: LabSpec, spec: NodeSpec, authority: Authority, settings: Mapping[str, Json]
) -> None:
    authority.write_bundle(inside)
    authority.issue(
        "kubelet",
        f"system:node:{spec.node_name}",
        "system:nodes",
        [spec.node_name, spec.data_address],
        inside,
    )
    pair, bundle = pair_in(INSIDE, "kubelet"), INSIDE / "ca.crt"
    (inside / "kubeconfig").write_text(kubeconfig(pair, bundle, spec.node_name))
    folders = {
        "volumePluginDir": f"{INSIDE}/kubelet/volume-plugins",
        "podLogsDir": f"{INSIDE}/kubelet/pod-logs",
    }
    configuration = kubelet.configuration(lab, spec, INSIDE, {**settings, **folders})
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
    parts = [f"{name} {helpers / file}" for name, file in _PARTS_OF_SSHD.items() if (helpers / file).exists()]
    return "\n".join(
        [
            *parts,
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
            f"SetEnv TMPDIR={INSIDE}/scratch PATH={_PATH}",
            "",
        ]
    )


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
