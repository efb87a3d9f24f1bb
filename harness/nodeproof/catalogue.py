"""The catalogue of claims: validated YAML, the project's own and in folders that a team adds."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import yaml
from jsonschema import Draft202012Validator
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from nodeproof.hints import shipped
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant, ReportedBug
from nodeproof.model.formula import SLACK, SYMBOLS, Term
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

Place = Sequence[str | int]
SIZE_LIMIT = 1 << 20
"""Largest size of a file (bytes)."""
DEPTH_LIMIT = 50
"""Largest number of nested collections: the loader and the validator are recursive."""
_MESSAGE_LIMIT = 300
"""Longest reason (characters): a message of jsonschema contains the invalid value."""
_MINORS = range(100)
_TEXT = "tag:yaml.org,2002:str"


def parse(text: str, name: str, schema: Mapping[str, Json]) -> tuple[Claim, ...]:
    """Read the claims of one file.

    Args:
        text: Content of the file.
        name: Name of the file in messages.
        schema: Content of `scenarios/claims.schema.json`.

    Raises:
        Problem: The file is invalid; the message has `file:line:column`.
    """
    document = Document.of(text, name)
    error = next(Draft202012Validator(schema).iter_errors(document.value), None)
    if error is not None:
        raise document.problem(tuple(error.absolute_path), error.message)
    ids: set[str] = set()
    for number, entry in enumerate(document.value):
        if entry["id"] in ids:
            raise document.problem((number, "id"), f"{entry['id']} occurs twice")
        ids.add(entry["id"])
        _check_ranges(document, number, entry)
        _check_window(document, (number, "window"), entry.get("window"))
        if "reported" in entry:
            _minors(document, (number, "reported", "versions"), entry["reported"]["versions"])
            _check_window(document, (number, "reported", "window"), entry["reported"]["window"])
    return tuple(_claim(entry) for entry in document.value)


def plain(text: str, name: str) -> Json:
    """Read YAML without aliases and duplicate keys, no deeper than `DEPTH_LIMIT`.

    Args:
        text: Content of the file.
        name: Name of the file in messages.

    Raises:
        Problem: The file is invalid; the message has `file:line:column`.
    """
    return Document.of(text, name).value


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
                what = f"{claim.id} is also in {origin[claim.id]}"
                raise Problem(what, name, "give the claim another id")
            merged[claim.id], origin[claim.id] = claim, name
    return merged


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader that refuses duplicate keys and reads scalars as in JSON: `no` and `1:30` are text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Json]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Json, Json]:
        keys: set[str] = set()
        for key, _value in node.value:
            if key.tag != _TEXT:
                raise yaml.MarkedYAMLError(None, None, "a key that is not text", key.start_mark)
            if key.value in keys:
                raise yaml.MarkedYAMLError(None, None, f"{key.value!r} occurs twice", key.start_mark)
            keys.add(key.value)
        mapping: dict[Json, Json] = super().construct_mapping(node, deep)
        return mapping


for _type, _form, _first in (
    ("bool", "true|false", "tf"),
    ("null", "null|~|", ("n", "~", "")),
    ("int", "-?(0|[1-9][0-9]{0,14})", "-0123456789"),
    ("float", r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}", "-0123456789"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_type}", re.compile(f"^(?:{_form})$"), list(_first))


@dataclass(frozen=True)
class Document:
    """A parsed file with the positions of its nodes."""

    name: str
    root: yaml.Node | None
    value: Json

    @classmethod
    def of(cls, text: str, name: str) -> Document:
        """Parse a file. Raises Problem."""
        if len(text.encode(errors="surrogatepass")) > SIZE_LIMIT:
            raise _problem(name, None, f"more than {SIZE_LIMIT} bytes")
        try:
            _check_events(text, name)
            loader = _Loader(text)
            root = loader.get_single_node()
            return cls(name, root, None if root is None else loader.construct_document(root))
        except yaml.MarkedYAMLError as error:
            raise _problem(name, error.problem_mark, str(error.problem)) from error
        except (yaml.YAMLError, ValueError) as error:
            raise _problem(name, None, str(error).splitlines()[0]) from error

    def problem(self, path: Place, what: str) -> Problem:
        """Return a Problem at the position of a path."""
        node = self.root
        for step in path:
            if isinstance(node, yaml.MappingNode):
                node = next(value for key, value in node.value if key.value == step)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
        return _problem(self.name, node.start_mark if node else None, what)


def _check_events(text: str, name: str) -> None:
    """Reject aliases, which can make a small file huge, deep nesting, and tags."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_LIMIT:
            raise _problem(name, event.start_mark, f"more than {DEPTH_LIMIT} levels")
        if isinstance(event, yaml.AliasEvent):
            raise _problem(name, event.start_mark, f"the alias *{event.anchor}: write the value itself")
        if getattr(event, "tag", None):
            raise _problem(name, event.start_mark, f"the tag {getattr(event, 'tag', '')}: leave it out")


def _problem(name: str, mark: Json, what: str) -> Problem:
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    reason = what if len(what) <= _MESSAGE_LIMIT else f"{what[:_MESSAGE_LIMIT]} ..."
    next_step = "correct the file; see scenarios/claims for examples"
    return Problem(" ".join(reason.split()), f"{name}:{line}:{column}", next_step)


def _check_ranges(document: Document, number: int, entry: Mapping[str, Json]) -> None:
    """Check that each version range is valid, and that each constant has one value per minor version."""
    holds = _minors(document, (number, "versions"), entry["versions"])
    for at, constant in enumerate(entry["constants"]):
        path = (number, "constants", at, "values")
        remaining = set(holds)
        for place, value in enumerate(constant["values"]):
            place_path = (*path, place, "versions")
            minors = _minors(document, place_path, value["versions"]) & holds
            if not minors <= remaining:
                raise document.problem(place_path, f"two values for 1.{min(minors - remaining)}")
            remaining -= minors
        if remaining:
            raise document.problem(
                path, f"no value for 1.{min(remaining)}, which {entry['versions']} includes"
            )


def _check_window(document: Document, place: Place, window: Mapping[str, Json] | None) -> None:
    """Check that each formula is valid and uses existing symbols."""
    if window is None:
        return
    for part, text in window.items():
        if part == "shape":
            continue
        try:
            unknown = Term.of(text).symbols - SYMBOLS.keys() - {SLACK}
        except ValueError as error:
            raise document.problem((*place, part), f"not a formula: {error}") from None
        if unknown:
            valid_symbols = ", ".join([*SYMBOLS, SLACK])
            what = f"unknown symbol {min(unknown)}; the symbols are {valid_symbols}"
            raise document.problem((*place, part), what)
    try:
        windows.formula(**window)
    except ValueError as error:
        raise document.problem(place, f"not a window: {error}") from None


def _minors(document: Document, path: Place, versions: str) -> frozenset[int]:
    try:
        minors = _minors_in(versions)
    except InvalidSpecifier:
        raise document.problem(path, f"{versions!r} is not a range like '>=1.18,<1.32'") from None
    if not minors:
        raise document.problem(path, f"{versions!r} includes no version 1.x")
    return minors


@cache
def _minors_in(versions: str) -> frozenset[int]:
    """Return the minor versions in a range; cached, as hundreds of claims have the same few ranges.

    Raises:
        InvalidSpecifier: The range is invalid.
    """
    range_ = SpecifierSet(versions)
    return frozenset(minor for minor in _MINORS if range_.contains(f"1.{minor}.0"))


_LISTS = ("sources", "needs", "upstream_tests", "defaults")


def _claim(entry: Mapping[str, Json]) -> Claim:
    constants = tuple(_constant(constant) for constant in entry["constants"])
    window = windows.formula(**entry["window"]) if "window" in entry else None
    lists = {name: tuple(entry[name]) for name in _LISTS if name in entry}
    reported = _reported_bug(entry["reported"]) if "reported" in entry else None
    return Claim(
        **{**entry, **lists, "constants": constants, "window": window, "reported": reported},
    )


def _reported_bug(entry: Mapping[str, Json]) -> ReportedBug:
    return ReportedBug(entry["issue"], entry["versions"], windows.formula(**entry["window"]))


def _constant(entry: Mapping[str, Json]) -> Constant:
    values = tuple((value["versions"], float(value["value"])) for value in entry["values"])
    return Constant(**{**entry, "values": values})


_SCHEMA = "claims.schema.json"


def scenarios_dir() -> Path:
    """Return the folder `scenarios` of the checkout, else of the wheel. Raises Problem."""
    return shipped(f"scenarios/{_SCHEMA}").parent


def load(extra: Sequence[Path] = ()) -> Mapping[str, Claim]:
    """Load all claims by id: first `scenarios/claims`, then the `extra` folders.

    Raises:
        Problem: A folder has no claims, a file is a link out of its folder, a claim is malformed, or two
            files contain the same id.
    """
    own = scenarios_dir()
    schema = json.loads((own / _SCHEMA).read_text(encoding="utf-8"))
    files = [path for folder in (own / "claims", *extra) for path in _files(folder)]
    return merge({str(path): parse(read(path), str(path), schema) for path in files})


def judged(claims: Mapping[str, Claim]) -> Mapping[str, Claim]:
    """Select the claims that have a scenario."""
    return {claim.id: claim for claim in claims.values() if claim.status == "judged"}


def find_judged(claim_id: str, claims: Mapping[str, Claim]) -> Claim:
    """Return the claim with this id.

    Raises:
        Problem: There is no such claim, or no scenario judges it.
    """
    claim = find(claim_id, claims)
    if claim.status != "judged":
        why = f": {claim.reason}" if claim.reason else ""
        raise Problem(
            f"{claim_id} is {claim.status}{why}", "catalogue", "`nodeproof claims` lists the judged claims"
        )
    return claim


def find(claim_id: str, claims: Mapping[str, Claim]) -> Claim:
    """Return the claim with this id, whatever its status.

    Raises:
        Problem: There is no such claim; the message suggests similar ids.
    """
    if claim_id in claims:
        return claims[claim_id]
    near = difflib.get_close_matches(claim_id, claims, n=3)
    hint = f"use one of: {', '.join(near)}" if near else "`nodeproof claims` lists them"
    raise Problem("no such claim", claim_id, hint)


def _files(folder: Path) -> list[Path]:
    if ".." in folder.parts:
        raise Problem("the path of a claims folder contains ..", str(folder), "use a path without ..")
    if not folder.is_dir():
        raise Problem("no such claims folder", str(folder), "use a folder with *.yaml files")
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise Problem("the folder has no claims", str(folder), "use a folder with *.yaml files")
    inside = folder.resolve()
    for path in files:
        if not path.is_file() or not path.resolve().is_relative_to(inside):
            raise Problem("not a file inside its folder", str(path), "copy the file itself into the folder")
    return files


def read(path: Path) -> str:
    """Return the text of a YAML file.

    Raises:
        Problem: The file is larger than `SIZE_LIMIT`, or not UTF-8.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise Problem(f"expected at most {SIZE_LIMIT} bytes, found more", f"{path}:1:1", "split the file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        what = f"expected UTF-8, found byte {content[error.start]:#04x}"
        raise Problem(what, f"{path}:{line}:{column}", "save the file as UTF-8") from error
