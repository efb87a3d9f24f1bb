"""What fields the objects of the recorded resources have, as the API itself says."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.cluster.api import Api
from nodeproof.cluster.resources import TYPES
from nodeproof.model.problem import Problem
from nodeproof.model.schema import fields_of


def read_fields(api: Api) -> Mapping[str, frozenset[str]]:
    """The paths that objects of each recorded resource have, by /openapi/v3. Raises ApiError, Problem."""
    documents = {group: api.get(f"/openapi/v3/{group}") for group, _name in TYPES.values()}
    try:
        return {
            resource: fields_of(documents[group]["components"]["schemas"], name)
            for resource, (group, name) in TYPES.items()
        }
    except KeyError as error:
        raise Problem(f"no schema of {error}", "/openapi/v3", "check the API server's version") from error
