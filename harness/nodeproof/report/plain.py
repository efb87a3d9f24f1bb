"""Text that others wrote, for a terminal and for Markdown: one line, short, harmless."""

from __future__ import annotations

import re

LONG = 300
"""Characters of a text; what is longer is cut."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def on_terminal(text: str, most: int = LONG) -> str:
    """One line without control characters, of at most so many characters."""
    return shortened(" ".join("".join(c if c.isprintable() else " " for c in text).split()), most)


def in_markdown(text: str, most: int = LONG) -> str:
    """The same where Markdown and its HTML are read: what would be markup is shown."""
    flat = on_terminal(text, most).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", flat)


def shortened(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, one: str, several: str = "") -> str:
    """So many of something: `1 verdict`, `2 verdicts`."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"
