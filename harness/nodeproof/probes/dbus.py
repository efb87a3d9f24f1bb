"""A property that a service of a node has on D-Bus."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Json, Probe, output_of


def dbus_property(node: str, service: str, path: str, interface: str, name: str) -> Probe:
    """What a property on the node's system bus is; needs the feature `systemd`."""

    def read(lab: Lab) -> Json:
        said = output_of(
            lab, node, ["busctl", "--json=short", "get-property", service, path, interface, name]
        )
        return json.loads(said)["data"]

    return Probe(f"{interface}.{name}", node, read)
