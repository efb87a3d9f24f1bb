"""Patterns: what an object must hold, as data, so that a stored judgment says it itself.

A mapping matches an object that has at least its fields; a list matches a list in which each of its patterns
matches something; anything else matches what is equal to it. A mapping whose one key begins with `$` is an
operator: `$not` (a pattern), `$in` (values; null is a field that is not there), `$present` (true or false),
`$prefix` and `$contains` (text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Json = Any
PRESENT = {"$present": True}
LISTED = "[]"
"""After a path's part: of each element of that list."""


def matches(pattern: Json, value: Json) -> bool:
    """Whether a value matches; a field that is not there is None. Raises KeyError on an unknown operator."""
    operator = _operator(pattern)
    if operator:
        return _OPERATORS[operator](pattern[operator], value)
    if isinstance(pattern, Mapping):
        fields = value if isinstance(value, Mapping) else {}
        return all(matches(wanted, fields.get(name)) for name, wanted in pattern.items())
    if isinstance(pattern, list):
        return all(any(matches(wanted, each) for each in value or ()) for wanted in pattern)
    return bool(pattern == value)


def fault(pattern: Json) -> str:
    """Why something is no pattern, or nothing: an operator that there is none of, what matches everything."""
    if isinstance(pattern, Mapping):
        operators = sorted(str(name) for name in pattern if str(name).startswith("$"))
        if operators:
            return _fault_of_operator(pattern, operators)
    if isinstance(pattern, Mapping | list):
        if not pattern:
            return "an empty pattern matches everything"
        parts = pattern.values() if isinstance(pattern, Mapping) else pattern
        return next(filter(None, map(fault, parts)), "")
    return ""


def _fault_of_operator(pattern: Mapping[str, Json], operators: list[str]) -> str:
    if len(pattern) > 1:
        return f"{operators[0]} stands beside other keys"
    if operators[0] not in _OPERATORS:
        return f"no operator {operators[0]!r}, there are: {', '.join(sorted(_OPERATORS))}"
    return fault(pattern["$not"]) if operators == ["$not"] else ""


def paths(pattern: Json, above: str = "") -> frozenset[str]:
    """Every field that a pattern names, such as `status.conditions[].type`."""
    operator = _operator(pattern)
    if operator:
        return paths(pattern[operator], above) if operator == "$not" else frozenset({above} - {""})
    if isinstance(pattern, Mapping):
        dotted = ((f"{above}.{name}" if above else name, wanted) for name, wanted in pattern.items())
        return frozenset().union(*(paths(wanted, path) or {path} for path, wanted in dotted))
    if isinstance(pattern, list):
        return frozenset().union(*(paths(wanted, f"{above}{LISTED}") for wanted in pattern))
    return frozenset({above} - {""})


def value_at(path: str, value: Json) -> Json:
    """What stands at a path; of a list's elements a sorted list, None where a field is not there."""
    name, _dot, rest = path.partition(".")
    found = value.get(name.removesuffix(LISTED)) if isinstance(value, Mapping) else None
    if not name.endswith(LISTED):
        return value_at(rest, found) if rest else found
    told = [value_at(rest, each) if rest else each for each in found or ()]
    return sorted(each for each in told if each is not None)


def _operator(pattern: Json) -> str:
    if not isinstance(pattern, Mapping) or len(pattern) != 1:
        return ""
    (name,) = pattern
    return str(name) if str(name).startswith("$") else ""


_OPERATORS: Mapping[str, Callable[[Json, Json], bool]] = {
    "$not": lambda pattern, value: not matches(pattern, value),
    "$in": lambda values, value: value in values,
    "$present": lambda wanted, value: bool(value) is wanted,
    "$prefix": lambda text, value: str(value or "").startswith(text),
    "$contains": lambda text, value: text in str(value or ""),
}
