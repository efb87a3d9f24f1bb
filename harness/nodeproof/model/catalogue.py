"""The catalogue of claims as text: YAML with plain data only, validated against its schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.problem import Problem
from nodeproof.model.symbols import SLACK, SYMBOLS
from nodeproof.model.term import Term

Json = Any
Path = Sequence[str | int]
SIZE_LIMIT = 1 << 20
"""Largest size of a file (bytes)."""
DEPTH_LIMIT = 50
"""Largest number of nested collections."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_SCALARS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Json]]] = {
    "str": (re.compile(r"(?s).*"), str),
    "bool": (re.compile(r"true|false"), lambda text: text == "true"),
    "null": (re.compile(r"null|~|"), lambda _text: None),
    "int": (re.compile(r"-?[0-9]{1,15}"), int),
    "float": (re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}"), float),
}
"""Allowed forms of a scalar, and their values: no dates, no base 60, no `yes`, no infinities."""
_NOTHING = re.compile(r"(?!)")
_MINORS = range(100)


def parse(text: str, name: str, schema: Mapping[str, Json]) -> tuple[Claim, ...]:
    """Read the claims of one file.

    Args:
        text: Content of the file.
        name: Name of the file in messages.
        schema: Content of `scenarios/claims.schema.json`.

    Raises:
        Problem: The file is invalid; the message has `file:line:column`, the expected and the actual value.
    """
    document = _document(text, name)
    data = document.value(document.root)
    error = next(Draft202012Validator(schema).iter_errors(data), None)
    if error is not None:
        raise _violation(document, error)
    ids: set[str] = set()
    for number, entry in enumerate(data):
        if entry["id"] in ids:
            raise document.problem((number, "id"), "a unique id", f"{entry['id']} again")
        ids.add(entry["id"])
        _check_ranges(document, number, entry)
        _check_window(document, number, entry)
    return tuple(_claim(entry) for entry in data)


def plain(text: str, name: str) -> Json:
    """Read YAML with plain data: no aliases, no tags, no duplicate keys, no deeper than `DEPTH_LIMIT`.

    Args:
        text: Content of the file.
        name: Name of the file in messages.

    Raises:
        Problem: The file is invalid; the message has `file:line:column`, the expected and the actual value.
    """
    document = _document(text, name)
    return document.value(document.root)


def merge(files: Mapping[str, Iterable[Claim]]) -> Mapping[str, Claim]:
    """Return all claims of several files by id, in order.

    Raises:
        Problem: Two files have the same id.
    """
    merged: dict[str, Claim] = {}
    origin: dict[str, str] = {}
    for name, claims in files.items():
        for claim in claims:
            if claim.id in merged:
                what = f"expected a unique id, found {claim.id}, which is also in {origin[claim.id]}"
                raise Problem(what, name, "give the claim another id")
            merged[claim.id], origin[claim.id] = claim, name
    return merged


@dataclass(frozen=True)
class _Document:
    """A parsed file with the positions of its nodes."""

    name: str
    root: yaml.Node | None

    def value(self, node: yaml.Node | None) -> Json:
        """Return the plain data of a node.

        Raises:
            Problem: A key is duplicate, or a value is not in `_SCALARS`.
        """
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if node is None:
            return None
        form, make = _SCALARS.get(node.tag.removeprefix(_TAG), (_NOTHING, str))
        if not form.fullmatch(node.value):
            expected = "text in quotes, a plain decimal number, true, false or null"
            raise _problem(self.name, node.start_mark, expected, repr(node.value))
        return make(node.value)

    def _mapping(self, node: yaml.MappingNode) -> Mapping[str, Json]:
        data: dict[str, Json] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != _TAG + "str":
                raise _problem(self.name, key.start_mark, "a key that is text", _shown(key.value))
            if key.value in data:
                raise _problem(self.name, key.start_mark, "unique keys", f"{key.value!r} again")
            data[key.value] = self.value(value)
        return data

    def problem(self, path: Path, expected: str, actual: str, key: str = "") -> Problem:
        """Return a Problem at the position of a path, or of one of its keys."""
        node = self.root
        for step in path:
            node = _child(node, step)[1]
        if key:
            node = _child(node, key)[0]
        return _problem(self.name, node.start_mark if node else None, expected, actual)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node]:
    """Return the nodes of key and value; they are the same in a list."""
    if isinstance(node, yaml.MappingNode):
        nodes: tuple[yaml.Node, yaml.Node] = next(pair for pair in node.value if pair[0].value == step)
        return nodes
    assert isinstance(node, yaml.SequenceNode) and isinstance(step, int)  # noqa: S101
    return node.value[step], node.value[step]


def _check_events(text: str, name: str) -> None:
    """Reject input before it is composed: size, depth, anchors, aliases, tags, a second document."""
    size = len(text.encode(errors="surrogatepass"))
    if size > SIZE_LIMIT:
        raise _problem(name, None, f"at most {SIZE_LIMIT} bytes", f"{size}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            violation = _violation_of(event, depth)
            if violation:
                raise _problem(name, event.start_mark, *violation)
    except (yaml.YAMLError, UnicodeError) as error:
        raise _malformed(name, error) from error


def _violation_of(event: yaml.Event, depth: int) -> tuple[str, str] | None:
    if depth > DEPTH_LIMIT:
        return f"at most {DEPTH_LIMIT} levels", "one more"
    if isinstance(event, yaml.AliasEvent):
        return "the value itself", f"the alias *{event.anchor}"
    if getattr(event, "anchor", None):
        return "no anchors", f"&{getattr(event, 'anchor', '')}"
    if getattr(event, "tag", None):
        return "no tags", f"{getattr(event, 'tag', '')}"
    return None


def _document(text: str, name: str) -> _Document:
    _check_events(text, name)
    return _Document(name, _compose(text, name))


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise _malformed(name, error) from error
    return node


def _malformed(name: str, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).splitlines()[0]
    return _problem(name, mark, "YAML", f"a syntax error: {reason}")


def _problem(name: str, mark: Json, expected: str, actual: str) -> Problem:
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = f"expected {expected}, found {actual}"
    return Problem(what, f"{name}:{line}:{column}", "correct the file; see scenarios/claims for examples")


def _violation(document: _Document, error: ValidationError) -> Problem:
    path = tuple(error.absolute_path)
    instance = cast(Json, error.instance)
    limit, schema = cast(Json, error.validator_value), cast(Json, error.schema)
    if error.validator == "required":
        missing = next(key for key in limit if key not in instance)
        return document.problem(path, f"the key {missing!r}", f"only {', '.join(instance) or 'none'}")
    if error.validator == "additionalProperties":
        valid_keys = schema.get("properties") or schema["patternProperties"]
        extra = next(key for key in instance if not _has_key(key, schema))
        return document.problem(path, f"a key of {', '.join(valid_keys)}", repr(extra), extra)
    return document.problem(path, _expected(str(error.validator), limit), _shown(instance))


def _expected(keyword: str, limit: Json) -> str:
    if keyword == "type":
        return " or ".join(_TYPES[name] for name in ([limit] if isinstance(limit, str) else limit))
    if keyword == "enum":
        return f"one of {', '.join(limit)}"
    return f"text like {limit}" if keyword == "pattern" else f"{keyword} {limit}"


_TYPES = {
    "array": "a list",
    "object": "a mapping",
    "string": "text",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _has_key(key: str, schema: Mapping[str, Json]) -> bool:
    patterns = schema.get("patternProperties", {})
    return key in schema.get("properties", {}) or any(re.search(pattern, key) for pattern in patterns)


def _shown(value: Json) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return "nothing" if value is None else repr(value)[:80]


def _check_ranges(document: _Document, number: int, entry: Mapping[str, Json]) -> None:
    """Check that each version range is valid, and that each constant has one value per minor version."""
    holds = _minors(document, (number, "versions"), entry["versions"])
    for at, constant in enumerate(entry["constants"]):
        path = (number, "constants", at, "values")
        remaining = set(holds)
        for place, value in enumerate(constant["values"]):
            place_path = (*path, place, "versions")
            minors = _minors(document, place_path, value["versions"]) & holds
            if not minors <= remaining:
                raise document.problem(place_path, "each version once", f"1.{min(minors - remaining)} again")
            remaining -= minors
        if remaining:
            raise document.problem(path, f"a value for {entry['versions']}", f"none for 1.{min(remaining)}")


_NO_WINDOW = {"shape": "negative", "nominal": "0", "low": "0", "high": "0"}


def _check_window(document: _Document, number: int, entry: Mapping[str, Json]) -> None:
    """Check that each formula is valid and uses existing symbols."""
    for part, text in (entry.get("window") or {}).items():
        if part == "shape":
            continue
        try:
            unknown = Term.of(text).symbols - SYMBOLS.keys() - {SLACK}
        except ValueError as error:
            raise document.problem((number, "window", part), "a formula", str(error)) from None
        if unknown:
            valid_symbols = ", ".join([*SYMBOLS, SLACK])
            raise document.problem((number, "window", part), f"symbols of {valid_symbols}", min(unknown))
    try:
        windows.formula(**entry.get("window", _NO_WINDOW))
    except ValueError as error:
        raise document.problem((number, "window"), "a window", str(error)) from None


def _minors(document: _Document, path: Path, versions: str) -> frozenset[int]:
    try:
        minors = _minors_in(versions)
    except InvalidSpecifier:
        raise document.problem(path, "a range like '>=1.18,<1.32'", repr(versions)) from None
    if not minors:
        raise document.problem(path, "a range that holds a version 1.x", repr(versions))
    return minors


@cache
def _minors_in(versions: str) -> frozenset[int]:
    """Return the minor versions in a range; cached, as hundreds of claims have the same few ranges.

    Raises:
        InvalidSpecifier: The range is invalid.
    """
    range_ = SpecifierSet(versions)
    return frozenset(minor for minor in _MINORS if range_.contains(f"1.{minor}.0"))


def _claim(entry: Mapping[str, Json]) -> Claim:
    constants = tuple(_constant(constant) for constant in entry["constants"])
    window = windows.formula(**entry["window"]) if "window" in entry else None
    lists = {name: tuple(entry[name]) for name in ("sources", "needs", "upstream_tests") if name in entry}
    return Claim(**{**entry, **lists, "constants": constants, "window": window})


def _constant(entry: Mapping[str, Json]) -> Constant:
    values = tuple((value["versions"], float(value["value"])) for value in entry["values"])
    return Constant(**{**entry, "values": values})
