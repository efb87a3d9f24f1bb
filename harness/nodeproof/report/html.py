"""HTML pages from templates: everything is escaped, nothing is loaded, and no script runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nodeproof.report import whole
from nodeproof.report.digest import SIGNS

SHORT = 400
"""Characters after which a text is folded."""


def render(template: str, **told: Any) -> str:
    """A page from one of `templates`."""
    return _environment().get_template(template).render(**told)


def printable(text: str) -> str:
    """A page as it can be encoded: what no encoding has (half a surrogate pair) is a question mark."""
    return text.encode("utf-8", "replace").decode()


def write(path: Path, text: str) -> Path:
    """Write a page in one step. Raises Problem where it cannot be written."""
    return whole.write(path, printable(text).encode(), "the page cannot be written")


def address(path: str) -> str:
    """A relative path as a link."""
    return quote(path, safe="/", errors="replace")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(SHORT=SHORT, SIGNS=SIGNS)
    return made
