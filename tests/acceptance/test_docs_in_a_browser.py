"""The documentation's site in Chromium, from disk: no request to another host, a search, and axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chromium import Page
from tests.documented import TOP
from tests.unit.test_package import build

pytestmark = pytest.mark.night("needs Chromium, which nothing else does; unit tests check links and sources")
PAGES = ("index", "docs/tutorial", "docs/how-to/audit-your-cluster", "docs/verdicts", "docs/findings")
SEARCH = """(() => {
  const query = document.querySelector("[data-md-component=search-query]");
  query.focus();
  query.value = "graceful";
  query.dispatchEvent(new Event("input", {bubbles: true}));
  query.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
})()"""
RESULT = "document.querySelector('.md-search-result__list a')"
VIOLATIONS = """axe.run(document, {resultTypes: ["violations"]}).then(outcome =>
  outcome.violations.map(violation => [violation.id, violation.nodes.map(node => node.html)]))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    folder = tmp_path_factory.mktemp("docs")
    assert build(TOP, folder).status == 0
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_page_of_the_docs_needs_no_other_host(site: Path, browser: Page, name: str) -> None:
    browser.open((site / f"{name}.html").as_uri())
    browser.run(SEARCH)
    browser.until(RESULT)
    assert browser.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [True, False], ids=["dark", "light"])
@pytest.mark.parametrize("name", PAGES)
def test_page_of_the_docs_is_accessible_and_fits(
    site: Path, axe: Path, browser: Page, name: str, width: int, dark: bool
) -> None:
    browser.open((site / f"{name}.html").as_uri(), width, dark=dark)
    browser.run(axe.read_text())
    assert browser.run(VIOLATIONS) == []
    assert browser.run("document.documentElement.scrollWidth") <= width
