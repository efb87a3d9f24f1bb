"""The bugs of `infra/bugs`, and their insertion into source files (infra/bugs/README.md)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nodeproof.model.pattern import Json

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "bugs"
BUG_VARIABLE = "NODEPROOF_BUG"
"""The environment variable that selects the bug of a process by its name."""
_KINDS_OF_EDIT = ("before", "after", "instead", "as")
_CONDITION = "CHOSEN"


class BadBug(Exception):
    """A bug does not fit the source, or the format."""


@dataclass(frozen=True)
class Edit:
    """One change of one line: `how` is `before`, `after`, `instead` or `as`."""

    bug: str
    file: str
    at: str
    how: str
    text: str
    within: str = ""


@dataclass(frozen=True)
class Bug:
    """A bug, the component that has it, the scenario that must catch it, and the claims that must deviate.

    `may` are claims that may deviate with them. A `machine` bug shows only on virtual machines. A `slow` one
    runs at night. A `large` one has a lab of dozens of nodes, beside which few other labs are in time. If
    `upgrades_from` is a version, the lab starts with it, without the bug, and the scenario upgrades it to the
    executables that have the bug.
    """

    name: str
    of: str
    scenario: str
    falls: tuple[str, ...]
    may: tuple[str, ...] = ()
    select: str = ""
    profile: str = "fast"
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    slow: bool = False
    machine: bool = field(default=False, repr=False)
    # The time of a try does not change a bug, so stored results stay valid.
    large: bool = field(default=False, repr=False)
    upgrades_from: str = field(default="", repr=False)


def load(folder: Path = FOLDER) -> list[Bug]:
    """Return all bugs, in the order of files and entries. Raises BadBug."""
    bugs = [_bug(entry) for path in sorted(folder.glob("*.yaml")) for entry in _entries(path)]
    duplicates = [name for name, times in Counter(bug.name for bug in bugs).items() if times > 1]
    if duplicates:
        raise BadBug(f"named twice: {', '.join(duplicates)}")
    return bugs


def _entries(path: Path) -> list[Mapping[str, Json]]:
    try:
        entries: list[Mapping[str, Json]] = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise BadBug(f"no YAML: {error} ({path})") from error
    return entries


def _bug(entry: Mapping[str, Json]) -> Bug:
    name, rest = entry["name"], {**entry}
    file = rest.pop("file", "")
    edits = tuple(_edit(name, file, edit) for edit in rest.pop("edits", ()))
    if not edits and not rest.get("flags"):
        raise BadBug(f"{name}: neither edits nor flags")
    rest |= {key: tuple(rest[key]) for key in ("falls", "may", "flags", "options") if key in rest}
    try:
        return Bug(edits=edits, **rest)
    except TypeError as error:
        raise BadBug(f"{name}: {error}") from error


def _edit(bug: str, below: str, edit: Mapping[str, str]) -> Edit:
    kinds = [how for how in _KINDS_OF_EDIT if how in edit]
    if len(kinds) != 1 or edit.keys() - {"file", "within", "at", *_KINDS_OF_EDIT}:
        raise BadBug(f"{bug}: an edit has `at` and one of {', '.join(_KINDS_OF_EDIT)}")
    (how,) = kinds
    file, at, within = edit.get("file", below), edit["at"].strip(), edit.get("within", "")
    return Edit(bug, file, at, how, edit[how].strip(), within)


def by_file(bugs: Iterable[Bug]) -> dict[str, list[Edit]]:
    """Return the edits of each source file."""
    edits: dict[str, list[Edit]] = {}
    for bug in bugs:
        for edit in bug.edits:
            edits.setdefault(edit.file, []).append(edit)
    return edits


def insert_bugs(source: str, edits: Sequence[Edit]) -> str:
    """Return a source file with all of its edits, each active if its bug is selected. Raises BadBug."""
    lines = source.splitlines()
    edits_of_line: dict[int, list[Edit]] = {}
    for edit in edits:
        edits_of_line.setdefault(_line_of(lines, edit), []).append(edit)
    return "\n".join(_insert(line, edits_of_line.get(at, ())) for at, line in enumerate(lines)) + "\n"


def _line_of(lines: Sequence[str], edit: Edit) -> int:
    begin = 0
    if edit.within:
        begin = _only(edit, edit.within, [at for at, line in enumerate(lines) if edit.within in line])
    positions = [at for at, line in enumerate(lines[begin:], begin) if line.strip() == edit.at]
    return _only(edit, edit.at, positions[:1] if edit.within else positions)


def _only(edit: Edit, text: str, positions: Sequence[int]) -> int:
    if len(positions) != 1:
        raise BadBug(f"{edit.bug}: {len(positions)} lines of {edit.file} are {text!r}")
    return positions[0]


def _insert(line: str, edits: Sequence[Edit]) -> str:
    rewrites = [edit for edit in edits if edit.how == "as"]
    if len(rewrites) > 1 or (rewrites and any(edit.how == "instead" for edit in edits)):
        raise BadBug(f"{', '.join(edit.bug for edit in edits)} rewrite one line: {line.strip()!r}")
    text = _with_condition(rewrites[0]) if rewrites else line
    for edit in edits:
        if edit.how == "instead":
            text = f"if {_condition(edit)} {{\n{edit.text}\n}} else {{\n{text}\n}}"
    befores = [f"if {_condition(edit)} {{\n{edit.text}\n}}" for edit in edits if edit.how == "before"]
    afters = [f"if {_condition(edit)} {{\n{edit.text}\n}}" for edit in edits if edit.how == "after"]
    return "\n".join((*befores, text, *afters))


def _condition(edit: Edit) -> str:
    return f'nodeproofBug == "{edit.bug}"'


def _with_condition(edit: Edit) -> str:
    return edit.text.replace(_CONDITION, f"({_condition(edit)})")


def selector_file(source: str) -> str:
    """Return the Go file by which a source file's package reads the selected bug."""
    package = next(line for line in source.splitlines() if line.startswith("package "))
    return (
        f'{package.split("//")[0].strip()}\n\nimport "os"\n\nvar nodeproofBug = os.Getenv("{BUG_VARIABLE}")\n'
    )


def sample(bugs: Sequence[Bug], count: int, seed: str) -> list[Bug]:
    """Return `count` of the bugs that are not slow, chosen by the seed."""
    quick = [bug for bug in bugs if not bug.slow]
    return sorted(quick, key=lambda bug: hashlib.sha256(f"{seed} {bug.name}".encode()).digest())[:count]
