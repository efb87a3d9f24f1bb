"""Runs of three nights with timelines, and Allure's site of each, as a browser opens it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodeproof.model.verdict import Verdict, unproven
from nodeproof.report import allure, rundir, sections, site
from nodeproof.report.rundir import RunFacts
from tests.chromium import Page
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


@dataclass(frozen=True)
class Nights:
    """The runs of three nights, oldest first, and the address of each scenario's page in each site."""

    runs: Sequence[Path]
    pages: Sequence[Mapping[str, str]]


def result_of(run: Path, nodeid: str, verdicts: Mapping[str, Verdict]) -> str:
    """Write a scenario's result with its picture; return the address of its page."""
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
    return hashlib.md5(uuid.encode(), usedforsecurity=False).hexdigest()


def write_run(run: Path, rows: Rows, picture: Path, facts: RunFacts | None) -> dict[str, str]:
    """Write a run with a timeline per scenario; return the address of each scenario's page."""
    tell(run, rows, facts)
    pages = {}
    for nodeid in dict.fromkeys(nodeid for nodeid, _claim, _verdict in rows):
        shutil.copy(picture, run / "scenarios" / rundir.slug(nodeid) / "timeline.svg")
        verdicts = {claim: verdict for scenario, claim, verdict in rows if scenario == nodeid}
        pages[nodeid] = result_of(run, nodeid, verdicts)
    return pages


def three_runs(out: Path, picture: Path) -> Nights:
    """Write three runs in which two scenarios begin to deviate, one after the other."""
    runs, pages = [], []
    for night, (lease, detection) in enumerate([(CONFORMS,) * 2, (DEVIATES, CONFORMS), (DEVIATES,) * 2], 1):
        facts = replace(
            FACTS, began=f"2026-11-0{night}T02:00:00+00:00", ended=f"2026-11-0{night}T02:09:00+00:00"
        )
        rows = [
            (CUT, DETECTION, detection),
            (BEATS, LEASE, lease),
            (BEATS, CORDON, CONFORMS),
            (CORDONED, CORDON, LOADED),
            (SWAP, "swap.fail-on-default", LACKS),
        ]
        pages.append(write_run(out / f"night-{night}", rows, picture, facts))
        runs.append(out / f"night-{night}")
        site.generate(runs[-1], print, CLAIMS)
    return Nights(runs, pages)


def index(run: Path, where: str = "") -> str:
    return f"{(run / 'site' / 'index.html').as_uri()}#{where}"


def shows(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


def show_timeline(browser: Page, nodeid: str) -> None:
    browser.until(shows(sections.title(nodeid)[:80]))
    opens = "[...document.querySelectorAll('*')].find(e => !e.children.length && e.textContent == 'timeline')"
    browser.until(f"!!{opens}")
    browser.run(f"{opens}.click()")
    browser.until('document.querySelector("[data-testid=image-attachment-content] img")?.complete')
