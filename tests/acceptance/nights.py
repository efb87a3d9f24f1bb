"""Runs of three nights with a timeline each, and Allure's site of them: what a browser opens."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodeproof.model.verdict import Verdict, unproven
from nodeproof.report import behaviours, rundir, site
from nodeproof.report.rundir import RunFacts
from tests.chromium import Page
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, LACKS, tell

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
Told = Sequence[tuple[str, str, Verdict]]
"""Scenarios, claims and verdicts."""


@dataclass(frozen=True)
class Nights:
    """The runs of three nights, the first one first, and where each scenario's page is in each site."""

    runs: Sequence[Path]
    pages: Sequence[Mapping[str, str]]


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


def three_nights(out: Path, picture: Path) -> Nights:
    """Two scenarios begin to deviate, one after the other."""
    runs, pages = [], []
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
        pages.append(made(out / f"night-{night}", told, picture, facts))
        runs.append(out / f"night-{night}")
        site.generate(runs[-1], print, CLAIMS)
    return Nights(runs, pages)


def index(run: Path, where: str = "") -> str:
    return f"{(run / 'site' / 'index.html').as_uri()}#{where}"


def says(text: str) -> str:
    return f"document.body.innerText.includes({json.dumps(text)})"


def show_timeline(browser: Page, nodeid: str) -> None:
    browser.until(says(behaviours.title(nodeid)[:80]))
    opens = "[...document.querySelectorAll('*')].find(e => !e.children.length && e.textContent == 'timeline')"
    browser.until(f"!!{opens}")
    browser.run(f"{opens}.click()")
    browser.until('document.querySelector("[data-testid=image-attachment-content] img")?.complete')
