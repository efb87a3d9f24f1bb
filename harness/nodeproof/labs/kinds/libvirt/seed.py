"""A node's seed disk: the files that turn a golden image into this node (`infra/image/README.md`)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.control_plane import kubeconfig
from nodeproof.labs.base.nodes import kubelet_configuration, kubelet_flags
from nodeproof.labs.base.pki import Authority, pair_in, ssh_key
from nodeproof.labs.base.profiles import FIXED_KUBELET, profile_named
from nodeproof.labs.base.spec import API_ADDRESS, SSH_PORT, LabSpec, NodeSpec
from nodeproof.model.pattern import Json

INSIDE = Path("/etc/kubernetes")
"""The guest's folder of its kubelet's configuration and credentials."""
KUBELET: Mapping[str, Json] = {
    **FIXED_KUBELET,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "systemd",
}
_LABEL = "NPSEED"
_SIZE = "1M"
_TIMEOUT_S = 30.0
_RANDOM_BYTES = 512
NO_PENALTIES = "PerSourcePenalties no\n"
"""For sshd: all clients share one address; a connection that one gave up must not lock out the others."""
_NETWORK = """\
[Match]
Name={name}

[Network]
{settings}
LinkLocalAddressing=no
IPv6AcceptRA=no
ConfigureWithoutCarrier=yes
IgnoreCarrierLoss=yes
"""
_REPLACE_SOCKETS = "StreamLocalBindUnlink yes\n"
"""For sshd: a forwarded socket replaces one that an earlier connection left."""


@dataclass(frozen=True)
class Seed:
    """The inputs of a node's seed.

    `kubelet` contains its kubelet's settings, `time_server` an address and a port, and `control` the network
    settings of its card on that network; empty for a static address.
    """

    lab: LabSpec
    node: NodeSpec
    authority: Authority
    kubelet: Mapping[str, Json]
    time_server: str
    control: Sequence[str] = ()


def make(folder: Path, disk: Path, seed: Seed) -> str:
    """Write a node's seed below `folder` and create `disk` from it; return the node's public host key.

    Raises CommandFailed, OSError.
    """
    root = folder / "seed" / "root"
    write_files(root, _kubelet_files(seed))
    _write_credentials(root / INSIDE.relative_to("/"), seed.node, seed.authority)
    return make_identity(folder, disk, seed)


def make_identity(folder: Path, disk: Path, seed: Seed) -> str:
    """Write a machine's identity to its seed, and create `disk` from it; return its public host key.

    Raises CommandFailed, OSError.
    """
    root = folder / "seed" / "root"
    write_files(root, _identity_files(seed))
    host_key = ssh_key(root / "etc/ssh/ssh_host_ed25519_key")
    (folder / "seed" / "time-server").write_text(f"{seed.time_server}\n")
    make_disk(folder, disk)
    return host_key


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Write files by their paths below `root`."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def make_disk(folder: Path, disk: Path) -> None:
    """Create `disk` from the files in `folder/seed`. Raises CommandFailed, OSError."""
    (folder / "seed" / "random-seed").write_bytes(secrets.token_bytes(_RANDOM_BYTES))
    # Vagrant plugs it in as a CD-ROM, so its blocks must not be smaller than a CD-ROM's.
    options = ["-q", "-t", "ext4", "-b", "4096", "-L", _LABEL, "-O", "^has_journal", "-N", "64", "-m", "0"]
    proc.run(["mke2fs", *options, "-d", str(folder / "seed"), str(disk), _SIZE], timeout_s=_TIMEOUT_S)


def _kubelet_files(seed: Seed) -> dict[str, str]:
    """Return the files that configure the kubelet, by their path below the guest's /."""
    lab, node = seed.lab, seed.node
    environment = {
        "KUBELET_FLAGS": " ".join(kubelet_flags(lab, node)),
        **profile_named(lab.profile).kubelet_env,
    }
    return {
        "etc/kubernetes/kubelet.json": json.dumps(kubelet_configuration(lab, node, INSIDE, seed.kubelet)),
        "etc/default/kubelet": "".join(f"{name}={value}\n" for name, value in environment.items()),
    }


def _identity_files(seed: Seed) -> dict[str, str]:
    """Return the files that make a guest this machine, by their path below the guest's /."""
    lab, node = seed.lab, seed.node
    return {
        "etc/hostname": f"{node.name}\n",
        "etc/machine-id": f"{node.machine_id}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{node.data_address} {node.name}\n{API_ADDRESS} kubernetes\n",
        "etc/systemd/network/10-control.network": network(
            "control", *(seed.control or (f"Address={node.control_address}/16",))
        ),
        "etc/systemd/network/10-data.network": network(
            "data", f"Address={node.data_address}/16", f"Gateway={API_ADDRESS}"
        ),
        "etc/ssh/sshd_config.d/nodeproof.conf": (
            f"ListenAddress {node.control_address}:{SSH_PORT}\n{NO_PENALTIES}{_REPLACE_SOCKETS}"
        ),
        "root/.ssh/authorized_keys": (lab.dir / "pki" / "ssh.pub").read_text(),
    }


def _write_credentials(folder: Path, node: NodeSpec, authority: Authority) -> None:
    authority.write_bundle(folder)
    hosts = [node.node_name, node.data_address]
    authority.issue("kubelet", f"system:node:{node.node_name}", "system:nodes", hosts, folder)
    pair = pair_in(INSIDE, "kubelet")
    (folder / "kubeconfig").write_text(kubeconfig(pair, INSIDE / "ca.crt", node.node_name))


def network(name: str, *settings: str) -> str:
    """Return systemd-networkd settings of an interface that stays configured without a carrier."""
    return _NETWORK.format(name=name, settings="\n".join(settings))
