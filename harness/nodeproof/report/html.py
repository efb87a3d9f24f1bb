"""Pages and Markdown from templates: text in pages is escaped; nothing is loaded, and no script runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from nodeproof.report import digest, files, plain, sections

SHORT = 400
"""Length from which a text is folded."""


def render_template(template: str, **context: Any) -> str:
    """Return a page from one of `templates`."""
    return _environment().get_template(template).render(**context)


def encodable(text: str) -> str:
    """Replace what no encoding has (half a surrogate pair) by a question mark."""
    return text.encode("utf-8", "replace").decode()


def write_html(path: Path, text: str) -> Path:
    """Write a page in one step.

    Raises:
        Problem: The file cannot be written.
    """
    return files.write_output(path, encodable(text).encode(), "the page cannot be written")


def url_of(path: str) -> str:
    """Return a relative path as a URL."""
    return quote(path, safe="/", errors="replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(disabled_extensions=("md",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        SHORT=SHORT,
        SIGNS=digest.SIGNS,
        measured_of=digest.measured_of,
        scenario_title=sections.title,
    )
    environment.filters.update(
        code=plain.in_markdown, cell=plain.in_markdown_cell, prose=plain.prose_in_markdown
    )
    return environment
