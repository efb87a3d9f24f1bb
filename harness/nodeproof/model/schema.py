"""The fields of API objects, from the OpenAPI schema, to detect unknown fields in patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodeproof.model.pattern import LISTED

Json = Any
ANY = ".*"
"""Suffix of a path: a mapping with arbitrary keys, such as labels."""
_DEEPEST = 12
_REFERENCE = "#/components/schemas/"


def fields_of(schemas: Mapping[str, Json], name: str) -> frozenset[str]:
    """Return every path of a type, such as `spec.taints[].key`.

    Raises:
        KeyError: The type does not exist.
    """
    return frozenset(_fields(schemas, schemas[name], "", 0))


def unknown(paths: Iterable[str], fields: frozenset[str]) -> list[str]:
    """Return the paths that a type does not have."""
    return sorted(path for path in paths if not _has_path(path, fields))


def _has_path(path: str, fields: frozenset[str]) -> bool:
    parts = path.split(".")
    above = (".".join(parts[:length]) for length in range(1, len(parts)))
    return path in fields or any(f"{part}{ANY}" in fields for part in above)


def _fields(schemas: Mapping[str, Json], schema: Json, above: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    schema = _resolved(schemas, schema)
    if "items" in schema:
        yield above + LISTED
        yield from _fields(schemas, schema["items"], above + LISTED, depth + 1)
    if above and isinstance(schema.get("additionalProperties"), Mapping):
        yield above + ANY
    for name, inner in schema.get("properties", {}).items():
        path = f"{above}.{name}" if above else name
        yield path
        yield from _fields(schemas, inner, path, depth + 1)


def _resolved(schemas: Mapping[str, Json], schema: Json) -> Json:
    """Resolve a reference; the API server puts one with a default into `allOf`."""
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            return schemas[part["$ref"].removeprefix(_REFERENCE)]
    return schema
