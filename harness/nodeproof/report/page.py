"""The page of a run: its verdicts under the headings of the Kubernetes page, in one HTML file.

All pages, pictures and Markdown are rendered here: text in pages and pictures is escaped; nothing is loaded,
and no script runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from nodeproof.model.claim import Claim
from nodeproof.report import allure, digest, plain, recovery, rundir
from nodeproof.report.digest import Digest

FILE = "page.html"
SHORT = 400
"""Length from which a text is folded."""


def write(run: Path, claims: Mapping[str, Claim]) -> Path:
    """Write `<run>/site/page.html`, also for an incomplete run.

    Raises:
        Problem: The folder is no run, or the page cannot be written.
    """
    shown = digest.read(run, claims)
    site = shown.run / "site"
    with rundir.explained("the page cannot be written", site, "make the run's folder writable"):
        rundir.make_folder(site)
    return rundir.write_report(site / FILE, render(shown))


def render(run: Digest) -> str:
    """Return the page; its links are relative to the run's site."""
    return render_template("page.html", run=run, addresses=allure.addresses(run.run))


def render_template(template: str, **context: Any) -> str:
    """Return a page from one of `templates`."""
    return _environment().get_template(template).render(**context)


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
        url_of=url_of,
        SIGNS=digest.SIGNS,
        details_of=digest.details_of,
        measured_beside=digest.measured_beside,
        measured_of=digest.measured_of,
        state_of=digest.state_of,
        verdict_of=digest.verdict_of,
        MEASURES=recovery.MEASURES,
        promises=recovery.promises,
        scenario_title=plain.title,
        documents=tuple(plain.DOCUMENTS.values()),
    )
    environment.filters.update(
        code=plain.in_markdown,
        cell=plain.in_markdown_cell,
        line=plain.on_terminal,
        prose=plain.prose_in_markdown,
    )
    return environment
