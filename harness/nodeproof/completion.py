"""The parser that shtab makes a completion script of: `shtab --shell=bash nodeproof.completion.parser`.

The script is static, so that a completion starts no Python.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nodeproof import cli
from nodeproof.run_options import RUN_OPTIONS

_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
"""What completes files in shtab's scripts (its `shtab.FILE`)."""
_PYTEST_COMMANDS = ("run", "plan", "storm", "shrink", "bisect")
"""The commands that pass options to pytest."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of nodeproof, with the options that pytest parses, and what completes files."""
    complete = cli._parser()
    (commands,) = (action for action in complete._actions if isinstance(action, argparse._SubParsersAction))
    # shtab leaves out what the help does.
    commands.help = "command"
    for name, subparser in commands.choices.items():
        for option in RUN_OPTIONS if name in _PYTEST_COMMANDS else ():
            # The command may have an option of the same name.
            if option.names[0] not in subparser._option_string_actions:
                subparser.add_argument(*option.names, **option.how)
        for action in subparser._actions:
            if action.type is Path:
                action.complete = _FILES
    return complete
