"""The only place that prints: no text of others steers the terminal, or shows a secret there."""

from __future__ import annotations

import sys

from nodeproof.model import redact
from nodeproof.model.printable import printable


def put(text: str) -> None:
    """Print lines on standard output."""
    print(_clean(text), flush=True)


def say(line: str, before: str = "") -> None:
    """Print a message on standard error; `before` is what is written as it is."""
    print(f"{before}nodeproof: {_clean(line)}", file=sys.stderr, flush=True)


def draw(text: str) -> None:
    """Write on standard error as it is, without a line's end: what moves the cursor."""
    print(text, end="", file=sys.stderr, flush=True)


def document(text: str) -> None:
    """Write a whole document on standard output as it is: its own format says how it holds others' text."""
    print(text, end="", flush=True)


def _clean(text: str) -> str:
    return printable(redact.text(text))
