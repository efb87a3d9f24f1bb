"""Patterns: what an object must hold, as data, so that a stored judgment says it itself.

A mapping matches an object that has at least its fields; a list matches a list in which each of its patterns
matches something; anything else matches what is equal to it and of its type: 1 is not true. A mapping whose
one key begins with `$` is an operator: `$not` (a pattern), `$in` (values; null is a field that is not there),
`$present` (true or false: whether the field is there, whatever it holds), `$prefix` and `$contains` (text).

A field that is not there lacks all that it could hold. What is there and of another kind, such as a text
where a pattern speaks of a mapping, neither matches that nor is `$not` that.
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
    if value is not None and not is_about(pattern, value):
        return False
    if isinstance(pattern, Mapping):
        return all(matches(wanted, (value or {}).get(name)) for name, wanted in pattern.items())
    if isinstance(pattern, list):
        return all(any(matches(wanted, each) for each in value or ()) for wanted in pattern)
    return is_equal(pattern, value)


def is_about(pattern: Json, value: Json) -> bool:
    """Whether a value is there and of the kind that a pattern speaks of: a mapping, a list, a text. One that
    speaks of no kind is about anything, and about nothing.
    """
    operator = _operator(pattern)
    if operator == "$not":
        return is_about(pattern[operator], value)
    if operator in _OF_TEXT:
        return value is not None
    if operator:
        return True
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping)
    return isinstance(value, list | tuple) if isinstance(pattern, list) else True


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


def is_equal(one: Json, other: Json) -> bool:
    """Whether two values are the same and of one type: 1 is not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_not(pattern: Json, value: Json) -> bool:
    return (value is None or is_about(pattern, value)) and not matches(pattern, value)


def _operator(pattern: Json) -> str:
    if not isinstance(pattern, Mapping) or len(pattern) != 1:
        return ""
    (name,) = pattern
    return str(name) if str(name).startswith("$") else ""


_OF_TEXT = ("$prefix", "$contains")
_OPERATORS: Mapping[str, Callable[[Json, Json], bool]] = {
    "$not": _is_not,
    "$in": lambda values, value: any(is_equal(each, value) for each in values),
    "$present": lambda wanted, value: (value is not None) is wanted,
    "$prefix": lambda text, value: str(value or "").startswith(text),
    "$contains": lambda text, value: text in str(value or ""),
}
