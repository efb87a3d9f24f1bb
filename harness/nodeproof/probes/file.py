"""A file on a node."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of


def file_of(node: str, path: str) -> Probe:
    """What a file on a node holds, without white space at its ends."""

    def read(lab: Lab) -> str:
        return output_of(lab, node, ["cat", path]).strip()

    return Probe(path, node, read)
