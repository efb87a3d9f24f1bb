"""The bugs of `infra/bugs` as data, and what they make of a source file (infra/bugs/README.md)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nodeproof.model.pattern import Json

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "bugs"
CHOOSES = "NODEPROOF_BUG"
"""The environment variable whose value is the name of the bug that a process has."""
_HOW = ("before", "after", "instead", "as")
_CHOSEN = "CHOSEN"


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
    """A bug, the component that has it, the scenario that must catch it, and the claims that must fall.

    `may` are claims that fall with them. A `machine` one only shows on virtual machines. A `slow` one is for
    the night, and beside the lab of dozens of nodes that a `large` one has, few others are in time. If
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
    """All bugs, in the order of files and entries. Raises BadBug."""
    bugs = [_bug(entry) for path in sorted(folder.glob("*.yaml")) for entry in _entries(path)]
    twice = [name for name, times in Counter(bug.name for bug in bugs).items() if times > 1]
    if twice:
        raise BadBug(f"named twice: {', '.join(twice)}")
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
    hows = [how for how in _HOW if how in edit]
    if len(hows) != 1 or edit.keys() - {"file", "within", "at", *_HOW}:
        raise BadBug(f"{bug}: an edit has `at` and one of {', '.join(_HOW)}")
    (how,) = hows
    file, at, within = edit.get("file", below), edit["at"].strip(), edit.get("within", "")
    return Edit(bug, file, at, how, edit[how].strip(), within)


def by_file(bugs: Iterable[Bug]) -> dict[str, list[Edit]]:
    """Return the edits of each source file."""
    edits: dict[str, list[Edit]] = {}
    for bug in bugs:
        for edit in bug.edits:
            edits.setdefault(edit.file, []).append(edit)
    return edits


def altered(source: str, edits: Sequence[Edit]) -> str:
    """Return a source file with all of its edits, each of which waits to be chosen. Raises BadBug."""
    lines = source.splitlines()
    here: dict[int, list[Edit]] = {}
    for edit in edits:
        here.setdefault(_line_of(lines, edit), []).append(edit)
    return "\n".join(_altered_line(line, here.get(at, ())) for at, line in enumerate(lines)) + "\n"


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


def _altered_line(line: str, edits: Sequence[Edit]) -> str:
    rewritten = [edit for edit in edits if edit.how == "as"]
    if len(rewritten) > 1 or (rewritten and any(edit.how == "instead" for edit in edits)):
        raise BadBug(f"{', '.join(edit.bug for edit in edits)} rewrite one line: {line.strip()!r}")
    text = _chosen(rewritten[0]) if rewritten else line
    for edit in edits:
        if edit.how == "instead":
            text = f"if {_asks(edit)} {{\n{edit.text}\n}} else {{\n{text}\n}}"
    befores = [f"if {_asks(edit)} {{\n{edit.text}\n}}" for edit in edits if edit.how == "before"]
    afters = [f"if {_asks(edit)} {{\n{edit.text}\n}}" for edit in edits if edit.how == "after"]
    return "\n".join((*befores, text, *afters))


def _asks(edit: Edit) -> str:
    return f'nodeproofBug == "{edit.bug}"'


def _chosen(edit: Edit) -> str:
    return edit.text.replace(_CHOSEN, f"({_asks(edit)})")


def chooser(source: str) -> str:
    """Return the file that lets the package of a source file ask which bug was chosen."""
    package = next(line for line in source.splitlines() if line.startswith("package "))
    return f'{package.split("//")[0].strip()}\n\nimport "os"\n\nvar nodeproofBug = os.Getenv("{CHOOSES}")\n'


def some(bugs: Sequence[Bug], count: int, seed: str) -> list[Bug]:
    """As many of the bugs that are not slow; which, the seed decides."""
    quick = [bug for bug in bugs if not bug.slow]
    return sorted(quick, key=lambda bug: hashlib.sha256(f"{seed} {bug.name}".encode()).digest())[:count]
