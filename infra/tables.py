"""Markdown tables, and the marker of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `make docs`; `make lint` fails where it is stale. -->"
_CELL = str.maketrans({"|": r"\|", "\n": " "})


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the text of a cell is put on one line."""
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join([*lines, *(_line([text.translate(_CELL) for text in row]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
