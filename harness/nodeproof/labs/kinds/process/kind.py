"""Labs of process nodes: a node needs no virtual machine, takes 30 MiB and starts in a second.

A table takes the place of a hypervisor for its volumes.
"""

from __future__ import annotations

import shlex

from nodeproof.labs.base.control_plane import DriverFolders, DriverOptions
from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.process.node import ProcessNodes
from nodeproof.labs.kinds.process.seed import kubelet_settings

_SERVE_NODES = """
names=
for home in {nodes}/*; do
    registry=$home/run/node/kubelet/plugins_registry
    [ -d "$registry" ] || continue
    names=$names,${{home##*/}} served="$served --node=${{home##*/}}=unix://$registry/csi.sock"
done
served="--nodes=$names $served"
"""


def driver_options(folders: DriverFolders) -> DriverOptions:
    """Serve the driver where kubelets look for plugins, in folders that nodes see as their own."""
    options = [f"--hypervisor=table:{folders.home}/table", f"--root={folders.nodes}/{{node}}"]
    return DriverOptions(options, _SERVE_NODES.format(nodes=shlex.quote(str(folders.nodes))))


PROCESS = Kind(
    "process",
    ProcessNodes,
    features=frozenset({"freeze", "link", "power", "proxy", "reset", "volumes"}),
    kubelet=kubelet_settings,
    storage=driver_options,
    is_hollow=True,
    has_node_versions=True,
    has_control_planes=True,
    has_host_clock=True,
    deviations=("kubelet on a fake container runtime (hollow), GOMAXPROCS=1",),
)
