"""Locks on a node's shutdown, as logind lists them."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of

INHIBITORS = "shutdown inhibitors"
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


def inhibitors(node: str) -> Probe:
    """Return a probe of the shutdown locks, a line each: `what who why mode`; needs the feature `systemd`."""

    def read(lab: Lab) -> str:
        output = output_of(lab, node, ["busctl", "--json=short", "call", *_LOGIN, "ListInhibitors"])
        return "\n".join(" ".join(entry[:4]) for entry in json.loads(output)["data"][0])

    return Probe(INHIBITORS, node, read)
