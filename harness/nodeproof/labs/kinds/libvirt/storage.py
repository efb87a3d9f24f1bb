"""Volumes of a libvirt lab: disks of its libvirtd, which are plugged into guests that run.

The driver is beside libvirtd. A guest's kubelet finds it by a socket in the guest that sshd listens at, for
as long as a connection to the guest lasts; each is made again when it is over.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from nodeproof.labs.ground.spec import NodeSpec
from nodeproof.labs.ground.storage import Place, Served
from nodeproof.labs.kinds.libvirt.hypervisor import URI

SSH_CONFIG = "ssh_config"
"""In a node's own folder: how the node is reached by its name."""
_PLUGIN = "/var/lib/kubelet/plugins_registry/csi.sock"
# A guest whose power is cut says no goodbye. One that is only slow must not lose its driver.
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
_EACH = """
for known in {nodes}/*/{name}; do
    node=${{known%/*}} node=${{node##*/}}
    served="$served --node=$node=unix://{home}/$node.sock"
    setpriv --pdeathsig=KILL -- sh -c 'while :; do setpriv --pdeathsig=KILL -- "$@"; sleep 1; done' \\
        tunnel {ssh} -N -R {plugin}:{home}/$node.sock "$node" &
done
"""


def write_host(home: Path, node: NodeSpec, host_key: str) -> None:
    """Put what ssh is to know of a node into the node's folder. Raises OSError."""
    known = home / "known_hosts"
    known.write_text(f"{node.control_address} {host_key}\n")
    reached = f"Host {node.name}\n  HostName {node.control_address}\n  UserKnownHostsFile {known}\n"
    (home / SSH_CONFIG).write_text(reached)


def served(place: Place) -> Served:
    """Commands of a node run over SSH; so does what its kubelet asks, the other way."""
    config = place.settings / SSH_CONFIG
    key = place.spec.dir / "pki" / "ssh"
    config.write_text(_CONFIG.format(nodes=place.nodes, name=SSH_CONFIG, key=key))
    ssh = shlex.join(["ssh", "-F", str(config)])
    options = [f"--hypervisor=libvirt:{URI}", f"--pool={place.spec.dir.name}", f"--shell={ssh} {{node}}"]
    each = _EACH.format(
        nodes=shlex.quote(str(place.nodes)),
        name=SSH_CONFIG,
        home=shlex.quote(str(place.home)),
        ssh=ssh,
        plugin=_PLUGIN,
    )
    return Served(options, each)
