"""The pages of all commands and their options, of the options of runs, and of make's targets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeproof import cli, plugin
from nodeproof.cli import Command, Group
from nodeproof.run_options import RUN_OPTIONS, Argument

Json = Any
GENERATED = "<!-- Written by `make docs`; `make lint` fails where it is stale. -->"
_CELL = str.maketrans({"|": r"\|", "\n": " "})
_MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
_TARGET = re.compile(r"^([a-z-]+):[^#\n]*## (.+)\n((?:\t.*\n)*)", re.MULTILINE)
_SET = re.compile(r"^([A-Z_]+) *([?:]?)= *(.*)$", re.MULTILINE)
_USED = re.compile(r"\$\(([A-Z_]+)[:)]")
_MAKE_VARIABLES = frozenset({"MAKE", "MAKEFILE_LIST"})


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the text of a cell is put on one line."""
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join([*lines, *(_line([text.translate(_CELL) for text in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def command_pages() -> Mapping[str, str]:
    """Return the pages, generated from the parsers and the Makefile."""
    settings = [(f"`{name}`", how["help"]) for name, how in plugin.SETTINGS.items()]
    links = [(f"[{group.title}]({_path(group)})", _links(group)) for group in cli.GROUPS]
    commands = (
        "Exit codes are in [verdicts.md](verdicts.md#exit-codes), the words of scenarios in "
        "[words.md](words.md), the [options of runs](commands/options.md) and [make](commands/make.md) on "
        f"pages of their own.\n\n{table(('about', 'commands'), links)}\n\n"
        f"Before a command:\n\n{table(('option', 'what'), _rows(cli.OPTIONS))}"
    )
    runs = (
        "For `nodeproof run`, `nodeproof plan` and pytest, beside pytest's own.\n\n"
        f"{table(('option', 'what'), _rows(RUN_OPTIONS))}\n\n"
        f"In pytest's configuration:\n\n{table(('setting', 'what'), settings)}"
    )
    make = (
        "Variables follow the target, as in `make soak N=3`; defaults are given below.\n\n"
        f"{table(('target', 'takes', 'what'), _targets(_MAKEFILE.read_text()))}"
    )
    return {
        "commands.md": _page("Commands", commands),
        **{
            _path(group): _page(f"Commands: {group.title}", "".join(map(_command, group.commands)).rstrip())
            for group in cli.GROUPS
        },
        "commands/options.md": _page("Options of runs", runs),
        "commands/make.md": _page("Targets of make", make),
    }


def _page(title: str, body: str) -> str:
    return f"# {title}\n\n{GENERATED}\n\n{body}\n"


def _path(group: Group) -> str:
    return f"commands/{group.title.replace(' ', '-')}.md"


def _links(group: Group) -> str:
    return ", ".join(
        f"[{command.name}]({_path(group)}#nodeproof-{command.name})" for command in group.commands
    )


def _command(command: Command) -> str:
    rows = _rows(command.arguments)
    arguments = f"{table(('argument', 'what'), rows)}\n\n" if rows else ""
    return f"## nodeproof {command.name}\n\n{command.description}\n\n{arguments}"


def _rows(arguments: Iterable[Argument]) -> list[tuple[str, str]]:
    return [(_name(argument), str(argument.how.get("help", ""))) for argument in arguments]


def _targets(makefile: str) -> list[tuple[str, str, str]]:
    """Return each target with the variables that the caller may set, and its description."""
    variables = {name: (operator, value) for name, operator, value in _SET.findall(makefile)}
    return [
        (f"`make {name}`", ", ".join(_settable(recipe, variables)), description)
        for name, description, recipe in _TARGET.findall(makefile)
    ]


def _settable(recipe: str, variables: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name in dict.fromkeys(_USED.findall(recipe)):
        operator, default = variables.get(name, ("?", ""))
        if operator == "?" and name not in _MAKE_VARIABLES:
            yield f"`{name}={default}`" if default else f"`{name}`"


def _name(argument: Argument) -> str:
    name = argument.names[-1]
    if name.startswith("-"):
        return f"`{name}{_value(argument.how)}`"
    metavar = str(argument.how.get("metavar", name))
    return f"`{_repeated(metavar, argument.how.get('nargs'))}`"


def _repeated(metavar: str, nargs: Json) -> str:
    """Return a positional argument like in a usage line."""
    return {"?": f"[{metavar}]", "*": f"[{metavar}...]", "+": f"{metavar}..."}.get(str(nargs), metavar)


def _value(how: Mapping[str, Json]) -> str:
    """Return the placeholder of an option's value; empty if it takes none."""
    if str(how.get("action", "")).startswith(("store_", "version")):
        return ""
    kind = {int: "N", Path: "PATH"}.get(how.get("type", str), "VALUE")
    return f" {how.get('metavar', kind)}"
