"""A process node's seed: the files that make it this node."""

from __future__ import annotations

import json
import re
from pathlib import Path

from harness.labs.pki import Authority, pair_in, ssh_key
from harness.labs.process import etc, kubelet
from harness.labs.process.control_plane import kubeconfig
from harness.labs.process.spec import API_ADDRESS, SSH_PORT, LabSpec, NodeSpec

INSIDE = Path("/run/node")
"""Where a node finds its own files; the rest of the lab's folder is out of its sight."""


def write(home: Path, lab: LabSpec, spec: NodeSpec, authority: Authority) -> None:
    """Everything a node must know before it boots: identity, credentials, configuration."""
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
    client_key = lab.dir / "pki" / "ssh.pub"
    (inside / "authorized_keys").write_text(client_key.read_text())
    host_key = ssh_key(inside / "ssh_host_key")
    (lab.dir / "pki" / f"{spec.name}.hostkey").write_text(f"{host_key}\n")
    (inside / "sshd_config").write_text(_sshd_config(spec, Path(lab.sshd)))
    _write_kubelet(inside, lab, spec, authority)


def _write_kubelet(inside: Path, lab: LabSpec, spec: NodeSpec, authority: Authority) -> None:
    authority.write_bundle(inside)
    authority.issue(
        "kubelet", f"system:node:{spec.name}", "system:nodes", [spec.name, spec.data_address], inside
    )
    pair, bundle = pair_in(INSIDE, "kubelet"), INSIDE / "ca.crt"
    (inside / "kubeconfig").write_text(kubeconfig(pair, bundle, spec.name))
    configuration = {
        **kubelet.configuration(lab, spec, INSIDE),
        "volumePluginDir": f"{INSIDE}/kubelet/volume-plugins",
        "podLogsDir": f"{INSIDE}/kubelet/pod-logs",
    }
    (inside / "kubelet.json").write_text(json.dumps(configuration))


def _passwd(host: str) -> str:
    """The host's users, but root at home in the node: bash under sshd reads ~/.bashrc, and that of whoever
    owns the host is no part of a node (nor free: one with pyenv in it made each command 100 ms slower).
    """
    passwd = re.sub(r"^root:.*$", f"root:x:0:0:root:{INSIDE}:/bin/bash", host, count=1, flags=re.MULTILINE)
    if "\nsshd:" not in passwd:
        passwd += "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    return passwd


_PARTS_OF_SSHD = {"SshdSessionPath": "sshd-session", "SshdAuthPath": "sshd-auth"}
"""The programs that sshd is made of since 9.8 and 10.0 (sshd_config(5)); each is where its package has it."""


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
