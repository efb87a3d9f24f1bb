"""Text that others wrote, for a terminal and for Markdown: one line, short, harmless."""

from __future__ import annotations

import re

from nodeproof.model.printable import printable

LONG = 300
"""Characters of a text; what is longer is cut."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def on_terminal(text: str, most: int = LONG) -> str:
    """One line without control characters, of at most so many characters."""
    return shortened(" ".join(printable(text).split()), most)


def in_markdown(text: str, most: int = LONG) -> str:
    """The same where Markdown is read, as a code span: nothing in it is markup, a link or a mention."""
    flat = on_terminal(text, most)
    if not flat:
        return ""
    fence = "`" * (1 + max(map(len, re.findall(r"`+", flat)), default=0))
    # A span that begins or ends with one needs a blank between, which is no part of it.
    blank = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{blank}{flat}{blank}{fence}"


def in_markdown_cell(text: str, most: int = LONG) -> str:
    """The same in a table. A line is divided into cells before code spans are read, and no escape holds after
    every backslash: a bar is a broken one.
    """
    return in_markdown(text, most).replace("|", "¦")


def prose_in_markdown(text: str, most: int = LONG) -> str:
    """A sentence of the catalogue's where Markdown and its HTML are read: what would be markup is shown."""
    flat = on_terminal(text, most).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", flat)


def shortened(text: str, most: int) -> str:
    """At most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, one: str, several: str = "") -> str:
    """So many of something: `1 verdict`, `2 verdicts`."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"
