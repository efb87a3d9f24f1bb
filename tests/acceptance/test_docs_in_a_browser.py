"""The documentation's site in Chromium, from disk: no request to another host, a search, and axe-core."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from nodeproof.model.pattern import Json
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
WITHOUT_TRANSITIONS = """document.head.append(Object.assign(document.createElement("style"),
  {textContent: "*, ::before, ::after {transition: none !important}"}))"""
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => true)"
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


def test_pages_of_the_docs_are_accessible_and_fit(site: Path, axe: Path, browser: Page) -> None:
    pages = sorted(site.rglob("*.html"))
    assert site / "docs" / "results" / "page.html" in pages
    script = axe.read_text()
    outcomes = {str(page.relative_to(site)): violations(browser, page, script) for page in pages}
    assert {page: outcome for page, outcome in outcomes.items() if outcome} == {}


def violations(browser: Page, page: Path, axe: str) -> list[Json]:
    """Return what axe-core finds in a page, or its width where it does not fit, at each width and scheme."""
    browser.open(page.as_uri())
    browser.run(axe)
    browser.run(WITHOUT_TRANSITIONS)
    outcome: list[Json] = []
    for width, dark in product((1280, 400), (False, True)):
        browser.show(width, dark=dark)
        browser.run(DRAWN)
        outcome += [(width, dark, *violation) for violation in browser.run(VIOLATIONS)]
        if (needed := browser.run("document.documentElement.scrollWidth")) > width:
            outcome.append((width, dark, f"needs {needed} px"))
    return outcome
