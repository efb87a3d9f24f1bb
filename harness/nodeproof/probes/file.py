"""Files on a node."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe, output_of


def file_of(node: str, path: str) -> Probe:
    """Return a probe of a file's content, without surrounding white space; empty if there is no file."""

    def read(lab: Lab) -> str:
        return output_of(lab, node, ["sh", "-c", '[ ! -e "$0" ] || cat "$0"', path]).strip()

    return Probe(path, node, read)
