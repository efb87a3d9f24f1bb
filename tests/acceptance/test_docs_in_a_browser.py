"""The documentation's site in Chromium, from disk: no request to another host, a search, and axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chromium import Page, violations
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


def test_pages_of_the_docs_are_accessible_and_fit(site: Path, axe: Path, browser: Page) -> None:
    pages = sorted(site.rglob("*.html"))
    assert site / "docs" / "results" / "page.html" in pages
    script = axe.read_text()
    outcomes = {
        str(page.relative_to(site)): violations(browser, page, script, min_passes=11) for page in pages
    }
    assert {page: outcome for page, outcome in outcomes.items() if outcome} == {}
