"""Volumes of a libvirt lab: disks of its libvirtd, plugged into running guests.

The driver runs beside libvirtd. A guest's kubelet reaches it through a socket that the guest's sshd forwards
for as long as an SSH connection lasts; each connection is restarted when it ends.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.ground.storage import Place, Served
from nodeproof.labs.kinds.libvirt.hypervisor import URI

SSH_CONFIG = "ssh_config"
"""The file in a node's folder that maps its name to its address and host key."""
_PLUGIN = "/var/lib/kubelet/plugins_registry/csi.sock"
# A guest without power closes no connection; one that is only slow must not lose its driver.
_CONFIG = """\
Include {nodes}/*/{name}
Host *
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking yes
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


def write_host(home: Path, node: NodeSpec, host_key: str) -> None:
    """Write a node's known_hosts and ssh_config to its folder. Raises OSError."""
    known_hosts = home / "known_hosts"
    known_hosts.write_text(f"{node.control_address} {host_key}\n")
    ssh_config = f"Host {node.name}\n  HostName {node.control_address}\n  UserKnownHostsFile {known_hosts}\n"
    (home / SSH_CONFIG).write_text(ssh_config)


def served(place: Place) -> Served:
    """Serve the driver over SSH: both its commands on a node and the requests of the node's kubelet."""
    config = place.settings / SSH_CONFIG
    key = place.spec.dir / "pki" / "ssh"
    config.write_text(_CONFIG.format(nodes=place.nodes, name=SSH_CONFIG, key=key))
    ssh = shlex.join(["ssh", "-F", str(config)])
    options = [f"--hypervisor=libvirt:{URI}", f"--pool={place.spec.dir.name}", f"--shell={ssh} {{node}}"]
    script = _SERVE_NODES.format(
        nodes=shlex.quote(str(place.nodes)),
        name=SSH_CONFIG,
        home=shlex.quote(str(place.home)),
        ssh=ssh,
        plugin=_PLUGIN,
    )
    return Served(options, script)
