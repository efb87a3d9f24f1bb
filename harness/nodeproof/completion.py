"""The parser that shtab makes a completion script of: `shtab --shell=bash nodeproof.completion.parser`.

The script is static, so that a completion starts no Python.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof import cli, plugin

_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
"""What completes files in shtab's scripts (its `shtab.FILE`)."""
_PYTEST_COMMANDS = ("run", "plan", "storm", "shrink", "bisect")
"""The commands that pass options to pytest."""


class _Options:
    """The part of pytest's parser that the plugin uses, which adds the options to one of argparse."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def getgroup(self, *_texts: str) -> _Options:
        """Return the only group."""
        return self

    def addoption(self, *names: str, **how: Any) -> None:
        """Add an option, unless the command has one of that name."""
        if not self._parser._option_string_actions.keys() & set(names):
            self._parser.add_argument(*names, **how)

    def addini(self, *_texts: str, **_how: Any) -> None:
        """Ignore a setting of a file."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of nodeproof, with the options that pytest parses, and what completes files."""
    complete = cli._parser()
    (commands,) = (action for action in complete._actions if isinstance(action, argparse._SubParsersAction))
    # shtab leaves out what the help does.
    commands.help = "command"
    for name, subparser in commands.choices.items():
        if name in _PYTEST_COMMANDS:
            plugin.pytest_addoption(cast("pytest.Parser", _Options(subparser)))
        for action in subparser._actions:
            if action.type is Path:
                action.complete = _FILES
    return complete
