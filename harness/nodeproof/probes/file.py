"""A file on a node."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of


def file_of(node: str, path: str) -> Probe:
    """What a file on a node holds, without white space at its ends; nothing where there is none."""

    def read(lab: Lab) -> str:
        return output_of(lab, node, ["sh", "-c", '[ ! -e "$0" ] || cat "$0"', path]).strip()

    return Probe(path, node, read)
