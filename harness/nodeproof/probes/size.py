"""How large objects of the API are."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe


def times_as_large(path: str, than: str) -> Probe:
    """How many times as many bytes an object is as another, both by their paths, as JSON and without who
    wrote which of their fields; a whole number, rounded down.
    """

    def read(lab: Lab) -> str:
        return str(_bytes(lab, path) // _bytes(lab, than))

    return Probe(f"size in sizes of {than}", path, read)


def _bytes(lab: Lab, path: str) -> int:
    found = lab.cluster.api.get(path)
    found["metadata"].pop("managedFields", None)
    return len(json.dumps(found, separators=(",", ":")).encode())
