"""The documentation as a site: complete, without a broken link, and without a request to another host."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from infra.tables import GENERATED
from nodeproof import proc
from tests.documented import PAGES, TOP

TIMEOUT_S = 300.0
MOST_LINES, MOST_LINES_OF_README = 250, 150
CONFIG = "mkdocs.yml"
# The resources of a page, not its links.
ELSEWHERE = re.compile(
    r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)"
)
STYLE_ELSEWHERE = re.compile(r"(?:url\(|@import\s*)[\"']?((?:https?:)?//[^\"')\s]+)")


def build(top: Path, site: Path) -> proc.Result:
    """Build the site of a folder as `make site` does."""
    argv = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return proc.run(argv, timeout_s=TIMEOUT_S, cwd=top, env=environment, check=False)


def test_pages_are_short() -> None:
    """A generated page is divided by its generator."""
    lines = {page: len(text.splitlines()) for page in PAGES if GENERATED not in (text := page.read_text())}
    assert lines[TOP / "README.md"] <= MOST_LINES_OF_README
    assert [page for page, count in lines.items() if count > MOST_LINES] == []


def test_site_has_no_broken_link_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    process = build(TOP, tmp_path)
    assert process.status == 0, process.stderr
    pages, styles = list(tmp_path.rglob("*.html")), list(tmp_path.rglob("*.css"))
    assert len(pages) > 30
    assert {host for page in pages for host in ELSEWHERE.findall(page.read_text())} == set()
    assert {host for style in styles for host in STYLE_ELSEWHERE.findall(style.read_text())} == set()


@pytest.mark.parametrize(
    ("text", "navigation", "message"),
    [
        ("[no page](docs/other.md)", ["README.md", "docs/page.md"], "'docs/other.md'"),
        (
            "[no anchor](docs/page.md#other)",
            ["README.md", "docs/page.md"],
            "does not contain an anchor '#other'",
        ),
        ("# Home", ["README.md"], 'not included in the "nav"'),
    ],
    ids=["page", "anchor", "navigation"],
)
def test_broken_link_and_page_outside_the_navigation_are_errors(
    tmp_path: Path, text: str, navigation: list[str], message: str
) -> None:
    shutil.copytree(TOP / "infra" / "site", tmp_path / "infra" / "site")
    settings = (TOP / CONFIG).read_text().partition("\nnav:")[0]
    (tmp_path / CONFIG).write_text(f"{settings}\nnav: {navigation}\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# Page\n")
    (tmp_path / "README.md").write_text(text)
    process = build(tmp_path, tmp_path / "site")
    assert process.status == 1
    assert message in process.stderr
