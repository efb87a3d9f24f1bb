"""docs/commands.md: every command with its options, the options of runs, and what `make` knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from infra.tables import GENERATED, table
from nodeproof import cli, plugin
from nodeproof.cli import Argument, Command

Json = Any
_MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
_TARGET = re.compile(r"^([a-z-]+):[^#\n]*## (.+)\n((?:\t.*\n)*)", re.MULTILINE)
_SET = re.compile(r"^([A-Z_]+) *([?:]?)= *(.*)$", re.MULTILINE)
_USED = re.compile(r"\$\(([A-Z_]+)[:)]")
_OF_MAKE = frozenset({"MAKE", "MAKEFILE_LIST"})


def commands_page() -> str:
    """What can be typed, as parsers know it."""
    parser = _Told()
    plugin.pytest_addoption(cast("pytest.Parser", parser))
    options = [(f"`{name}{_value(how)}`", str(how.get("help", ""))) for name, how in parser.options.items()]
    settings = [(f"`{name}`", said) for name, said in parser.settings.items()]
    return "\n".join(
        [
            f"# Commands\n\n{GENERATED}\n",
            "Exit codes are in [README.md](../README.md#exit-codes), what scenarios can say in "
            "[words.md](words.md).\n",
            f"## nodeproof\n\nBefore a command:\n\n{table(('option', 'what'), _rows(cli.OPTIONS))}\n",
            "".join(map(_command, cli.COMMANDS)),
            "## Options of runs\n\nFor `nodeproof run`, `nodeproof plan` and pytest, beside pytest's own.\n\n"
            f"{table(('option', 'what'), options)}\n",
            f"In pytest's configuration:\n\n{table(('setting', 'what'), settings)}\n",
            "## make\n\nVariables come behind the target, as in `make soak N=3`; here with their defaults.\n",
            f"{table(('target', 'takes', 'what'), _targets(_MAKEFILE.read_text()))}\n",
        ]
    )


def _command(told: Command) -> str:
    rows = _rows(told.arguments)
    about = f" {told.about}" if told.about else ""
    text = f"{told.text[:1].upper()}{told.text[1:]}.{about}"
    arguments = f"{table(('argument', 'what'), rows)}\n\n" if rows else ""
    return f"### nodeproof {told.name}\n\n{text}\n\n{arguments}"


def _rows(told: Iterable[Argument]) -> list[tuple[str, str]]:
    return [(_name(each), str(each.how.get("help", ""))) for each in told]


def _targets(makefile: str) -> list[tuple[str, str, str]]:
    """Each target with the variables that its recipe leaves to who calls it, and what it does."""
    known = {name: (how, value) for name, how, value in _SET.findall(makefile)}
    return [
        (f"`make {name}`", ", ".join(_variables(recipe, known)), said)
        for name, said, recipe in _TARGET.findall(makefile)
    ]


def _variables(recipe: str, known: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name in dict.fromkeys(_USED.findall(recipe)):
        how, default = known.get(name, ("?", ""))
        if how == "?" and name not in _OF_MAKE:
            yield f"`{name}={default}`" if default else f"`{name}`"


def _name(told: Argument) -> str:
    name = told.names[-1]
    if name.startswith("-"):
        return f"`{name}{_value(told.how)}`"
    shown = str(told.how.get("metavar", name))
    return f"`{_times(shown, told.how.get('nargs'))}`"


def _times(shown: str, nargs: Json) -> str:
    """As usage lines have it."""
    return {"?": f"[{shown}]", "*": f"[{shown}...]", "+": f"{shown}..."}.get(str(nargs), shown)


def _value(how: Mapping[str, Json]) -> str:
    """What an option takes."""
    if str(how.get("action", "")).startswith(("store_", "version")):
        return ""
    kind = {int: "N", Path: "PATH"}.get(how.get("type", str), "VALUE")
    return f" {how.get('metavar', kind)}"


class _Told:
    """Remembers what a plugin tells pytest's parser."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, Json]] = {}
        self.settings: dict[str, str] = {}

    def getgroup(self, _name: str, _description: str = "") -> _Told:
        """All options are of one group."""
        return self

    def addoption(self, *names: str, **how: Json) -> None:
        """An option."""
        self.options[names[-1]] = how

    def addini(self, name: str, help: str, **_how: Json) -> None:
        """A setting."""
        self.settings[name] = help
