"""The address from which a machine would send."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of

_ANYWHERE = "198.51.100.1"
"""An address that nobody has (RFC 5737): only routes are asked, nothing is sent."""


def source_address(machine: str) -> Probe:
    """A machine's own IPv4 address on its default route, as its kernel chooses it."""

    def read(lab: Lab) -> str:
        (route,) = json.loads(output_of(lab, machine, ["ip", "-j", "route", "get", _ANYWHERE]))
        return str(route["prefsrc"])

    return Probe("address on the default route", machine, read)
