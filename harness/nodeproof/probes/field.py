"""A field of an object of the API, as it is now."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.pattern import value_at
from nodeproof.model.problem import Problem
from nodeproof.probes.probe import Json, Probe


def field_of(path: str, field: str) -> Probe:
    """What stands at a field such as `metadata.uid` of an object, by its path (`/api/v1/nodes/node-1`)."""

    def read(lab: Lab) -> Json:
        found = lab.cluster.api.get(path)
        if found.get("kind") in ("Secret", "SecretList"):
            raise Problem(f"{path} is a Secret", "scenario", "look at what may be in a report")
        return value_at(field, found)

    return Probe(field, path, read)
