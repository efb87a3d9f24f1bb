"""HTML pages from templates: everything is escaped, nothing is loaded, and no script runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

SHORT = 400
"""Characters after which a text is folded."""


def render(template: str, **told: Any) -> str:
    """A page from one of `templates`."""
    return _environment().get_template(template).render(**told)


def write(path: Path, text: str) -> Path:
    """Write a page in one step; what no encoding has (half a surrogate pair) is a question mark."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(text.encode("utf-8", "replace"))
    return partial.replace(path)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["SHORT"] = SHORT
    return made
