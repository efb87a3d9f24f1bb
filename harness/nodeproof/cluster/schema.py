"""The fields of the recorded resources' objects, from the API's schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import RESOURCES
from nodeproof.model.problem import Problem
from nodeproof.model.schema import fields_of


def read_fields(api: Api, resources: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the field paths of each of these resources, from /openapi/v3. Raises ApiError, Problem."""
    wanted = {name: RESOURCES[name] for name in resources}
    documents = {
        group: api.get(f"/openapi/v3/{group}") for group in {resource.group for resource in wanted.values()}
    }
    try:
        return {
            name: fields_of(documents[resource.group]["components"]["schemas"], resource.type)
            for name, resource in wanted.items()
        }
    except KeyError as error:
        raise Problem(f"no schema of {error}", "/openapi/v3", "check the API server's version") from error
