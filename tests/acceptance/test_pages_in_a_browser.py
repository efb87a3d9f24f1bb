"""Pages of runs in Chromium: axe-core finds nothing, and nothing is wider than the window."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from nodeproof.model.verdict import Measured, deviates, unproven
from nodeproof.report import comparison, digest, page, publish, recovery, rundir
from nodeproof.report.recovery import Recovery
from nodeproof.report.rundir import write_report
from tests.chromium import Page, violations
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, LACKS, WINDOW, tell

pytestmark = pytest.mark.night(
    "needs Chromium, which nothing else does; unit tests hold what is in the pages"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write pages: every verdict, hostile text, an empty run, a run without facts, a matrix, an index."""
    folder = tmp_path_factory.mktemp("runs")
    judged = [claim.id for claim in CLAIMS.values() if claim.status == "judged"]
    kinds = (CONFORMS, CONFORMS, DEVIATES, GAP, LACKS)
    rows = [(f"a.py::test_{n}", claim, kinds[n % len(kinds)]) for n, claim in enumerate(judged)]
    long = "<script>alert(1)</script>\u202e\u05e9\u05dc\u05d5\u05dd" + "x" * 10_000
    worst = [
        (f"b.py::test_{long}", judged[0], deviates(long, WINDOW, Measured(long), long)),
        (f"b.py::test_{long}", judged[1], unproven("gap", long)),
        (f"b.py::test_{long}", judged[2], unproven("scaled", long)),
    ]
    runs = {
        "judged": tell(folder / "judged", rows),
        "hostile": tell(folder / "hostile", worst),
        "empty": tell(folder / "empty", [], None, claims={}),
        "without-facts": tell(folder / "without-facts", rows, None),
    }
    for name, fault in (("judged", "partition"), ("hostile", long)):
        recovered = Recovery(fault, "node-1", 30.0, 40.0, 45.0, 370.0, 3.0, {"detected_s": (20.0, 50.0)})
        scenario_folder = rundir.scenario_dir(runs[name], "a.py::test_0")
        rundir.write_json(scenario_folder / recovery.FILE, [asdict(recovered)])
    files = {name: page.write(run, CLAIMS) for name, run in runs.items()}
    compared = comparison.compare([digest.read(run, CLAIMS) for run in runs.values()])
    matrix = write_report(folder / "matrix.html", comparison.matrix_html(compared, folder))
    assert compared.runs[0].lab == FACTS.lab
    assert 'id="recovery"' in files["judged"].read_text()
    assert 'id="recovery"' in files["hostile"].read_text()
    listed = publish.publish(folder / "site", list(runs.values()), CLAIMS).index
    return {**files, "matrix": matrix, "published": listed}


@pytest.mark.parametrize("name", ["judged", "hostile", "empty", "without-facts", "matrix", "published"])
def test_page_is_accessible_and_fits(axe: Path, pages: dict[str, Path], browser: Page, name: str) -> None:
    assert violations(browser, pages[name], axe.read_text(), min_passes=21) == []
