"""A process node's seed: the files that make it this node."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodeproof.labs.ground import etc, kubelet
from nodeproof.labs.ground.control_plane import kubeconfig
from nodeproof.labs.ground.pki import Authority, pair_in, ssh_key
from nodeproof.labs.ground.profiles import FIXED_KUBELET
from nodeproof.labs.ground.spec import API_ADDRESS, SSH_PORT, LabSpec, NodeSpec

Json = Any
INSIDE = Path("/run/node")
"""The node's path to its own files; it cannot see the rest of the lab's folder."""
CGROUP_V2 = Path("/sys/fs/cgroup/cgroup.controllers")


def kubelet_settings() -> Mapping[str, Json]:
    """Return the settings of every kubelet; nodes share the host's cgroups, which may be cgroup v1."""
    return FIXED_KUBELET if CGROUP_V2.exists() else {**FIXED_KUBELET, "failCgroupV1": False}


def write(
    home: Path, lab: LabSpec, spec: NodeSpec, authority: Authority, settings: Mapping[str, Json]
) -> None:
    """Write everything that a node needs before it boots: identity, credentials, kubelet configuration."""
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
        # Without it nss-systemd synthesizes a locked root user, which sshd rejects.
        "shadow": "root:*:19000:0:99999:7:::\n",
    }
    etc.make(home / "etc", own)
    client_key = lab.dir / "pki" / "ssh.pub"
    (inside / "authorized_keys").write_text(client_key.read_text())
    host_key = ssh_key(inside / "ssh_host_key")
    (lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
    (inside / "sshd_config").write_text(_sshd_config(spec, Path(lab.sshd)))
    _write_kubelet(inside, lab, spec, authority, settings)


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
    (inside / "kubelet.flags").write_text(" ".join(kubelet.flags(lab, spec)))
    configuration = {
        **kubelet.configuration(lab, spec, INSIDE, settings),
        "volumePluginDir": f"{INSIDE}/kubelet/volume-plugins",
        "podLogsDir": f"{INSIDE}/kubelet/pod-logs",
    }
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


_PARTS_OF_SSHD = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""The helper programs of sshd since 9.8 and 10.0 (sshd_config(5)), in the folder of their package."""


def _sshd_config(spec: NodeSpec, sshd: Path) -> str:
    beside = sshd.parents[1] / "lib" / "openssh"
    parts = [f"{name} {beside / file}" for name, file in _PARTS_OF_SSHD.items() if (beside / file).exists()]
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
            f"SetEnv TMPDIR={INSIDE}/scratch",
            "",
        ]
    )
