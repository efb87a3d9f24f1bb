"""Allure's site for everybody: axe-core finds nothing that is ours, and pictures are legible at any width."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.looks import AXE, OVERLAPS, PICTURE
from tests.acceptance.nights import BEATS, CORDONED, CUT, Nights, index, says, show_timeline
from tests.chromium import Page

Json = Any
pytestmark = pytest.mark.night("needs Chromium, which nothing else does; unit tests hold what Allure is told")
WIDTHS = (1280, 400)
OURS = '[data-nodeproof], [data-testid="image-attachment-content"]'
"""The bar above Allure's page, and what our CSS makes of a picture."""
ALLURES: Mapping[str, str] = {
    "button-name": "its icons, arrows and pages back and forth are buttons without a name",
    "label-content-name-mismatch": "a result's error is a button that is named Error, whatever it says",
    "page-has-heading-one": "its overview and its charts begin with a heading of the second rank",
    "region": "its tooltips are beside the element that all else of its page is in",
    "svg-img-alt": "its charts are pictures without a text",
}
"""What Allure 3.18 breaks by itself, and no setting of it nor style mends: each rule of axe-core, and how. It
works for who sees and has a mouse; the judged page, which breaks none, says the same to everybody.
"""
CUTS = """<style>
body [data-testid="image-attachment-content"] {overflow: hidden !important}
body [data-testid="image-attachment-content"] img {min-width: 900px !important}
</style>"""


def overview(browser: Page, nights: Nights, width: int) -> None:
    browser.open(index(nights.runs[2]), width)
    browser.until(says("deviates 2"))


def trends(browser: Page, nights: Nights, width: int) -> None:
    browser.open(index(nights.runs[2], "charts"), width)
    browser.until(says("Changes between runs") + " && " + says("Latest"))


def scenario_that(outcome: str, night: int, nodeid: str) -> Callable[[Page, Nights, int], None]:
    def opened(browser: Page, nights: Nights, width: int) -> None:
        browser.open(index(nights.runs[night], nights.pages[night][nodeid]), width)
        show_timeline(browser, nodeid)
        assert outcome in browser.run("document.body.innerText")

    return opened


SCENARIOS = {
    "conforming": scenario_that("Passed", 0, CUT),
    "deviating": scenario_that("Failed", 2, BEATS),
    "unproven": scenario_that("Broken", 2, CORDONED),
}
VIEWS = {"overview": overview, "trends": trends, **SCENARIOS}


@pytest.fixture(scope="module")
def looked(browser: Page, nights: Nights, axe: Path) -> Mapping[str, Json]:
    """What axe-core says of each view at each width."""
    said, script = {}, axe.read_text()
    for width in WIDTHS:
        for name, opened in VIEWS.items():
            opened(browser, nights, width)
            browser.run(f"{script}; 0")
            said[f"{name}, {width} px"] = browser.run(AXE % json.dumps(OURS))
    return said


@pytest.mark.xdist_group("looked")
def test_nothing_of_ours_breaks_a_rule(looked: Mapping[str, Json]) -> None:
    ours = [
        (name, rule, html)
        for name, said in looked.items()
        for rule, is_ours, html in said["violations"]
        if is_ours
    ]
    assert ours == []
    assert min(said["passes"] for said in looked.values()) > 15


@pytest.mark.xdist_group("looked")
def test_what_allure_breaks_is_known_and_still_broken(looked: Mapping[str, Json]) -> None:
    broken = {rule: (name, html) for name, said in looked.items() for rule, _ours, html in said["violations"]}
    assert {rule: broken[rule] for rule in broken.keys() - ALLURES.keys()} == {}
    assert ALLURES.keys() - broken.keys() == set()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenarios_picture_is_whole_and_legible(
    nights: Nights, browser: Page, picture: Path, name: str, width: int
) -> None:
    SCENARIOS[name](browser, nights, width)
    bar = browser.run("parseFloat(getComputedStyle(document.querySelector('[data-nodeproof] a')).fontSize)")
    seen = browser.run(PICTURE)
    assert (seen["cut"], seen["wide"], seen["scrolls"]) == ("", False, False)
    assert bar >= 12
    # It is not scaled: its text has the size that it has where the picture is opened by itself, as wide.
    assert seen["height"] == pytest.approx(seen["own"], abs=1)
    browser.open(picture.as_uri(), round(seen["width"]))
    alone = browser.run(OVERLAPS)
    assert alone["count"] > 60
    assert (alone["wide"], alone["small"], alone["meeting"]) == ([], [], [])


def test_a_picture_that_is_cut_is_found(nights: Nights, browser: Page) -> None:
    SCENARIOS["deviating"](browser, nights, 400)
    browser.run(f"document.head.insertAdjacentHTML('beforeend', `{CUTS}`)")
    assert browser.run(PICTURE)["cut"] != ""
