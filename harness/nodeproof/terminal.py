"""The only module that prints. Text from elsewhere can neither control the terminal nor show a secret."""

from __future__ import annotations

import sys

from nodeproof.model import redact
from nodeproof.model.problem import printable


def put(text: str) -> None:
    """Print lines on standard output."""
    print(_clean(text), flush=True)


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
