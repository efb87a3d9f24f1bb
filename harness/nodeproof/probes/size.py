"""Sizes of API objects."""

from __future__ import annotations

import json

from nodeproof.labs.client.lab import Lab
from nodeproof.probes.probe import Probe


def times_as_large(path: str, than: str) -> Probe:
    """Return a probe of the size ratio of two API objects, given by their paths, without managedFields.

    The sizes are those as JSON; the ratio is rounded down to a whole number.
    """

    def read(lab: Lab) -> str:
        return str(_bytes(lab, path) // _bytes(lab, than))

    return Probe(f"size in sizes of {than}", path, read)


def _bytes(lab: Lab, path: str) -> int:
    document = lab.cluster.api.get(path)
    document["metadata"].pop("managedFields", None)
    return len(json.dumps(document, separators=(",", ":")).encode())
