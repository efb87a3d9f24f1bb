"""Text for a terminal and for Markdown: foreign text as one short, harmless line; columns and counts."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodeproof.model.problem import printable

LONG, COMPLETE = 300, 4000
"""Characters of a text, and of one that is shown completely; what is longer is cut."""
COLUMNS = 110
"""Width of wrapped text."""
_WIDEST = 1_000_000
"""Columns of a line."""
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def on_terminal(text: str, most: int = LONG) -> str:
    """Return one line without control characters, of at most `most` characters."""
    return shortened(" ".join(printable(text).split()), most)


def wrapped(text: str, most: int = COMPLETE, first: int = 4, rest: int = 6) -> list[str]:
    """Return the same line as several lines, indented by `first` and `rest` blanks."""
    return textwrap.wrap(
        on_terminal(text, most),
        COLUMNS,
        initial_indent=" " * first,
        subsequent_indent=" " * rest,
        break_on_hyphens=False,
    )


def in_markdown(text: str, most: int = LONG) -> str:
    """Return the same line as a code span of Markdown: nothing in it is markup, a link or a mention."""
    flat = on_terminal(text, most)
    if not flat:
        return ""
    fence = "`" * (1 + max(map(len, re.findall(r"`+", flat)), default=0))
    # A span that begins or ends with one needs a blank between, which is no part of it.
    blank = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{blank}{flat}{blank}{fence}"


def in_markdown_cell(text: str, most: int = LONG) -> str:
    """Return the same code span for a table, with broken bars.

    A line is divided into cells before code spans are read, and no escape holds after every backslash.
    """
    return in_markdown(text, most).replace("|", "¦")


def prose_in_markdown(text: str, most: int = LONG) -> str:
    """Return a sentence of the catalogue with its markup escaped, for Markdown and the HTML in it."""
    flat = on_terminal(text, most).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\1", flat)


def encodable(text: str) -> str:
    """Replace what no encoding has (half a surrogate pair) by a question mark."""
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: `1 verdict`, `2 verdicts`."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def duration(seconds: float) -> str:
    """Return a time in words: `1 h 5 min`, `2 min 3 s`, `9 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with its cells below each other; no cell is wrapped or cut."""
    table = Table.grid(*(("",) * len(rows[0])), padding=(0, 2), pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    # Wide enough for any content, whatever terminal or pipe the text is for.
    console = Console(file=io.StringIO(), width=_WIDEST, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]
