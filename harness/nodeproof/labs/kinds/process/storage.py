"""Volumes of a process lab: a table in place of a hypervisor."""

from __future__ import annotations

import shlex

from nodeproof.labs.ground.storage import Place, Served

_SERVE_NODES = """
names=
for home in {nodes}/*; do
    registry=$home/run/node/kubelet/plugins_registry
    [ -d "$registry" ] || continue
    names=$names,${{home##*/}} served="$served --node=${{home##*/}}=unix://$registry/csi.sock"
done
served="--nodes=$names $served"
"""


def served(place: Place) -> Served:
    """Serve the driver where kubelets look for plugins, in folders that nodes see as their own."""
    options = [f"--hypervisor=table:{place.home}/table", f"--root={place.nodes}/{{node}}"]
    return Served(options, _SERVE_NODES.format(nodes=shlex.quote(str(place.nodes))))
