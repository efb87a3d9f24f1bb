"""Patterns for objects, as data, so that a stored judgment contains its pattern.

A mapping matches an object that has at least its fields. A list matches a list in which each of its patterns
matches an element. Any other pattern matches an equal value of the same type: 1 is not true. A mapping whose
only key begins with `$` is an operator: `$not` (a pattern), `$in` (values; null stands for a missing field),
`$present` (true or false: whether the field exists, whatever its value), `$prefix` and `$contains` (text).

A missing field has none of the values that it could have. An existing value of another kind, such as a text
for a mapping pattern, matches neither the pattern nor its `$not`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Json = Any
"""A value of a JSON document."""
PRESENT = {"$present": True}
LISTED = "[]"
"""Suffix of a path's part: each element of that list."""


def matches(pattern: Json, value: Json) -> bool:
    """Return whether a value matches; a missing field is None.

    Raises:
        KeyError: The operator is unknown.
    """
    operator = _operator(pattern)
    if operator:
        return _OPERATORS[operator](pattern[operator], value)
    if value is not None and not is_about(pattern, value):
        return False
    if isinstance(pattern, Mapping):
        return all(matches(part, (value or {}).get(name)) for name, part in pattern.items())
    if isinstance(pattern, list):
        return all(any(matches(part, element) for element in value or ()) for part in pattern)
    return is_equal(pattern, value)


def is_about(pattern: Json, value: Json) -> bool:
    """Return whether a value exists and is of the kind that a pattern describes: mapping, list or text.

    A pattern of no kind applies to any value, and to a missing one.
    """
    operator = _operator(pattern)
    if operator == "$not":
        return is_about(pattern[operator], value)
    if operator in _OF_TEXT:
        return isinstance(value, str | int | float)
    if operator:
        return True
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, list | tuple) if isinstance(pattern, list) else True


def is_unfounded(pattern: Json, value: Json) -> bool:
    """Return whether a value matches only because the parent of a field is missing or of another kind.

    An answer without the object, such as a 404, does not show that the object lacks a field.
    """
    if not is_about(pattern, value):
        return matches(pattern, None)
    return matches(pattern, value) and _certainty(pattern, value) is None


def _certainty(pattern: Json, value: Json) -> bool | None:
    """Return whether a value matches, or None if that depends on the fields of a missing parent."""
    operator = _operator(pattern)
    if operator == "$not":
        certainty = _certainty(pattern[operator], value)
        return None if certainty is None else matches(pattern, value)
    if operator or not isinstance(pattern, Mapping | list):
        return matches(pattern, value)
    if isinstance(pattern, list):
        return _all(_any(_certainty(part, element) for element in value or ()) for part in pattern)
    if not isinstance(value, Mapping):
        return None
    return _all(_certainty(part, value.get(name)) for name, part in pattern.items())


def _all(certainties: Iterable[bool | None]) -> bool | None:
    results = set(certainties)
    return False if False in results else None if None in results else True


def _any(certainties: Iterable[bool | None]) -> bool | None:
    results = set(certainties)
    return True if True in results else None if None in results else False


def fault(pattern: Json) -> str:
    """Return why a pattern is invalid (unknown operator, or it matches everything), or an empty string."""
    if isinstance(pattern, Mapping):
        operators = sorted(str(name) for name in pattern if str(name).startswith("$"))
        if operators:
            return _operator_fault(pattern, operators)
    if isinstance(pattern, Mapping | list):
        if not pattern:
            return "an empty pattern matches everything"
        parts = pattern.values() if isinstance(pattern, Mapping) else pattern
        return next(filter(None, map(fault, parts)), "")
    return ""


def _operator_fault(pattern: Mapping[str, Json], operators: list[str]) -> str:
    if len(pattern) > 1:
        return f"{operators[0]} must be the only key"
    if operators[0] not in _OPERATORS:
        return f"unknown operator {operators[0]!r}; choose from {', '.join(sorted(_OPERATORS))}"
    return fault(pattern["$not"]) if operators == ["$not"] else ""


def paths(pattern: Json, above: str = "") -> frozenset[str]:
    """Return every field that a pattern names, such as `status.conditions[].type`."""
    operator = _operator(pattern)
    if operator:
        return paths(pattern[operator], above) if operator == "$not" else frozenset({above} - {""})
    if isinstance(pattern, Mapping):
        dotted = ((f"{above}.{name}" if above else name, part) for name, part in pattern.items())
        return frozenset().union(*(paths(part, path) or {path} for path, part in dotted))
    if isinstance(pattern, list):
        return frozenset().union(*(paths(part, f"{above}{LISTED}") for part in pattern))
    return frozenset({above} - {""})


def value_at(path: str, value: Json) -> Json:
    """Return the value at a path: a sorted list for the elements of a list, None for a missing field."""
    name, _dot, rest = path.partition(".")
    child = value.get(name.removesuffix(LISTED)) if isinstance(value, Mapping) else None
    if not name.endswith(LISTED):
        return value_at(rest, child) if rest else child
    elements = [value_at(rest, element) if rest else element for element in child or ()]
    return sorted(element for element in elements if element is not None)


def is_equal(one: Json, other: Json) -> bool:
    """Return whether two values are equal and of one type: 1 is not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_not(pattern: Json, value: Json) -> bool:
    return (value is None or is_about(pattern, value)) and not matches(pattern, value)


def _operator(pattern: Json) -> str:
    if not isinstance(pattern, Mapping) or len(pattern) != 1:
        return ""
    (name,) = pattern
    return str(name) if str(name).startswith("$") else ""


def _as_text(value: Json) -> str:
    return "" if value is None else str(value)


_OF_TEXT = ("$prefix", "$contains")
_OPERATORS: Mapping[str, Callable[[Json, Json], bool]] = {
    "$not": _is_not,
    "$in": lambda values, value: any(is_equal(choice, value) for choice in values),
    "$present": lambda is_present, value: (value is not None) is is_present,
    "$prefix": lambda text, value: _as_text(value).startswith(text),
    "$contains": lambda text, value: text in _as_text(value),
}


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
