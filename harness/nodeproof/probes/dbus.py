"""Properties of a node's services on D-Bus."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Json, Probe, output_of


def dbus_property(node: str, service: str, path: str, interface: str, name: str) -> Probe:
    """Return a probe of a property on the node's system bus; needs the feature `systemd`."""

    def read(lab: Lab) -> Json:
        output = output_of(
            lab, node, ["busctl", "--json=short", "get-property", service, path, interface, name]
        )
        return json.loads(output)["data"]

    return Probe(f"{interface}.{name}", node, read)
