"""The commands that prose names in `code`: each is one that there is, with options that it knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path

from nodeproof import cli
from tests.documented import PAGES, TOP

WRITTEN = tuple(page for page in PAGES if page.name not in {"claims.md", "words.md"})
"""Pages that somebody writes: the others are made from the code."""
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_MAKEFILE = (TOP / "Makefile").read_text()
_TARGETS = frozenset(re.findall(r"^([a-z-]+):", _MAKEFILE, re.MULTILINE))
_VARIABLES = frozenset(re.findall(r"\$\(([A-Z]+)\)", _MAKEFILE))
_COMMANDS = {command.name: command for command in cli.COMMANDS}
_OF_ALL = frozenset({"--help", "-h", "--debug", "--version"})
_OTHERS = frozenset(command.name for command in cli.COMMANDS if not command.has_help)
"""They pass all options on to a program of somebody else."""
_CLAIMS = frozenset(re.findall(r"`([a-z.-]+)`", (TOP / "docs" / "claims.md").read_text()))
_BUGS = frozenset(
    bug
    for file in (TOP / "infra" / "bugs").glob("*.yaml")
    for bug in re.findall(r"- name: (\S+)", file.read_text())
)
_PROGRAMS = frozenset({"nodeproof", "make", "pytest", "python"})


def mentions(text: str) -> Iterator[str]:
    """Each command of this project in a page's prose, without `.venv/bin/`. What other programs know
    (kubectl, virsh, git, ...) is not in this checkout, so theirs are left out; so are bare names of programs.
    """
    for paragraph in re.split(r"\n\s*\n", _FENCED.sub("", text)):
        if paragraph.startswith("    "):
            continue
        for span in _SPAN.findall(paragraph):
            said = " ".join(span.split()).removeprefix(".venv/bin/")
            first, *rest = said.split(" ")
            if (rest and first in _PROGRAMS) or first.endswith(".sh") or _is_short(first, rest):
                yield said


def _is_short(first: str, rest: list[str]) -> bool:
    """Whether it is a command without its program, as in a list: `up --lab libvirt`, `soak N=10`."""
    is_ours = first in _COMMANDS and first not in _OTHERS and any(word.startswith("--") for word in rest)
    return is_ours or (first in _TARGETS and any(re.match(r"[A-Z]+=", word) for word in rest))


def wrong(said: str, page: Path, of_pytest: frozenset[str]) -> str:
    """What of a command there is not; nothing where all is well. `of_pytest` is what `options` gives."""
    program, *words = shlex.split(said)
    if program == "make":
        return _make(words, of_pytest)
    if program == "nodeproof":
        return _nodeproof(words, of_pytest)
    if program == "pytest":
        return _missing(words, of_pytest) or _selects(words)
    if program == "python":
        return _module(words)
    if program.endswith(".sh"):
        return _script(program, words, page)
    return (
        _nodeproof([program, *words], of_pytest)
        if program in _COMMANDS
        else _make([program, *words], of_pytest)
    )


def options(told: str) -> frozenset[str]:
    """The options in what `pytest --help` says."""
    heads = re.findall(r"^  (-.*?)(?:  |$)", told, re.MULTILINE)
    return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", " ".join(heads)))


def _missing(words: Iterable[str], known: frozenset[str]) -> str:
    for word in words:
        if word == "--":
            break
        if word.startswith("-") and word.partition("=")[0] not in known:
            return f"no option {word}"
    return ""


def _nodeproof(words: list[str], of_pytest: frozenset[str]) -> str:
    named = [word for word in words if not word.startswith("-")]
    if not named:
        return _missing(words, _OF_ALL)
    command = _COMMANDS.get(named[0])
    if command is None:
        return f"no command {named[0]}"
    if command.name in _OTHERS:
        return ""
    own = {name for argument in command.arguments for name in argument.names}
    known = _OF_ALL | own | (of_pytest if command.passes_on else frozenset())
    return _missing(words, known) or _unknown_claim(words)


def _unknown_claim(words: list[str]) -> str:
    for before, word in pairwise(words):
        # A word in capitals stands for another.
        if before == "--claim" and not word.isupper() and word not in _CLAIMS:
            return f"no claim {word}"
    return ""


def _make(words: list[str], of_pytest: frozenset[str]) -> str:
    for word in words:
        name, is_set, value = word.partition("=")
        if name not in (_VARIABLES if is_set else _TARGETS):
            return f"no {'variable' if is_set else 'target'} {name}"
        if name == "ARGS" and words[0] in {"run", "documented"}:
            return _nodeproof(["run", *shlex.split(value)], of_pytest)
    return ""


def _selects(words: list[str]) -> str:
    files = [TOP / word.partition("::")[0] for word in words if "/" in word]
    gone = [str(file.relative_to(TOP)) for file in files if not file.exists()]
    if gone:
        return f"no {gone[0]}"
    chosen = words[words.index("-k") + 1] if "-k" in words else ""
    texts = [file.read_text() for file in files if file.is_file()]
    is_there = not texts or all(part in "".join(texts) for part in re.findall(r"[a-z]\w+", chosen))
    return "" if is_there else f"nothing for -k {chosen}"


def _module(words: list[str]) -> str:
    if words[0] != "-m" or len(words) == 1:
        return ""
    path = words[1].replace(".", "/")
    names = takewhile(lambda word: not word.startswith("-"), words[2:])
    if path == "tests/sensitivity" and (unknown := [name for name in names if name not in _BUGS]):
        return f"no bug {unknown[0]}"
    for top in (TOP, TOP / "harness"):
        for file in (top / f"{path}.py", top / path / "__main__.py"):
            if file.exists():
                # Which hypervisor is meant, several programs are told alike.
                told = (each for each in (file, file.parent / "opened.py") if each.exists())
                text = "".join(each.read_text() for each in told)
                return _missing(words[2:], frozenset(re.findall(r'"(--?[\w-]+)"', text)))
    return f"no module {words[1]}"


def _script(program: str, words: list[str], page: Path) -> str:
    file = next((top / program for top in (page.parent, TOP) if (top / program).exists()), None)
    if file is None:
        return f"no script {program}"
    # A word in capitals stands for another.
    unknown = [
        word for word in words if not word.isupper() and not re.search(rf"\b{word}\b", file.read_text())
    ]
    return f"{program} knows no {unknown[0]}" if unknown else ""
