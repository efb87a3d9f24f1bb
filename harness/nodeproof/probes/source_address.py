"""The source address of a machine's packets."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of

_ANYWHERE = "198.51.100.1"
"""A documentation address (RFC 5737): only the route is looked up, nothing is sent."""


def source_address(machine: str) -> Probe:
    """Return a probe of the IPv4 address that a machine's kernel chooses for its default route."""

    def read(lab: Lab) -> str:
        (route,) = json.loads(output_of(lab, machine, ["ip", "-j", "route", "get", _ANYWHERE]))
        return str(route["prefsrc"])

    return Probe("address on the default route", machine, read)
