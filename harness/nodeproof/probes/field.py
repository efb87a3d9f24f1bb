"""The current value of a field of an API object."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.pattern import value_at
from nodeproof.model.problem import Problem
from nodeproof.probes.probe import Json, Probe


def field_of(path: str, field: str) -> Probe:
    """Return a probe of a field such as `metadata.uid` of an object at a path (`/api/v1/nodes/node-1`)."""

    def read(lab: Lab) -> Json:
        document = lab.cluster.api.get(path)
        if document.get("kind") in ("Secret", "SecretList"):
            raise Problem(f"{path} is a Secret", "scenario", "read an object that may be in a report")
        return value_at(field, document)

    return Probe(field, path, read)
