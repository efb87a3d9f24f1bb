"""The only module that prints. Text from elsewhere can neither control the terminal nor show a secret."""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console
from rich.text import Text

from nodeproof.model import redact
from nodeproof.model.problem import printable

_COLOURS = {
    "conforms": "green",
    "judged": "green",
    "ok": "green",
    "deviates": "red",
    "missing": "red",
    "unproven": "yellow",
}
"""Colours of state words."""
_STATE = re.compile(rf"(?:^ *|  |: |-> )({'|'.join(_COLOURS)})(?=$|:| [ \d-])", re.MULTILINE)
"""A state word at the beginning of a line, in a column, or in a change."""


def put(text: str) -> None:
    """Print lines on standard output."""
    text = _clean(text)
    print(coloured(text) if _has_colours() else text, flush=True)


def styled(text: str) -> Text:
    """Return the text with colours of its state words."""
    styled = Text(text)
    for state in _STATE.finditer(text):
        styled.stylize(_COLOURS[state[1]], *state.span(1))
    return styled


def coloured(text: str) -> str:
    """Return the text with the codes of these colours, for a terminal that shows them."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", no_color=False)
    console.print(styled(text), soft_wrap=True, end="")
    return out.getvalue()


def _has_colours() -> bool:
    # FORCE_COLOR, which rich knows, does not turn a file into a terminal.
    console = Console(file=sys.stdout)
    return sys.stdout.isatty() and console.color_system is not None and not console.no_color


def say(line: str, before: str = "") -> None:
    """Print a message on standard error, after `before`, which is written unchanged."""
    print(f"{before}nodeproof: {_clean(line)}", file=sys.stderr, flush=True)


def draw(text: str) -> None:
    """Write cursor control text to standard error, unchanged and without a newline."""
    print(text, end="", file=sys.stderr, flush=True)


def document(text: str) -> None:
    """Write a document to standard output unchanged: its own format escapes text from elsewhere."""
    print(text, end="", flush=True)


def _clean(text: str) -> str:
    return printable(redact.text(text))
