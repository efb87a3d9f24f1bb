"""Pages of runs in Chromium: axe-core finds nothing, and nothing is wider than the window."""

from __future__ import annotations

import json
import re
import shutil
from html import escape, unescape
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.model.pattern import Json
from nodeproof.model.verdict import Measured, deviates, unproven
from nodeproof.report import comparison, digest, page, publish
from nodeproof.report.rundir import write_report
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, LACKS, WINDOW, tell

TIMEOUT_S = 300.0
OTHERS = pytest.mark.night("needs Chromium, which nothing else does; unit tests hold what is in the pages")
SCHEMES = {"dark": 0, "light": 1}
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# A window has at least 500 px, a frame can be narrower. Only axe-core may run scripts in a page.
FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><pre id="said"></pre>
<script>
const look = async (frame) => {{
  const inside = frame.contentWindow, script = inside.document.createElement("script");
  script.src = "axe.min.js";
  inside.document.head.append(script);
  await new Promise(loaded => script.onload = loaded);
  const found = await inside.axe.run(inside.document, {{resultTypes: ["violations"]}});
  const told = found.violations.map(each => [each.id, each.nodes[0].html]);
  const root = inside.document.documentElement;
  const dark = inside.matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("said").textContent =
    JSON.stringify({{violations: told, passes: found.passes.length, width: root.scrollWidth, dark}});
}};
</script>
<iframe style="border:0;width:{width}px;height:900px" onload="look(this)" srcdoc="{page}"></iframe>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write pages of a run with every verdict, with hostile text, empty, without facts, and of all runs."""
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
    files = {name: page.write(run, CLAIMS) for name, run in runs.items()}
    across = comparison.compare([digest.read(run, CLAIMS) for run in runs.values()])
    matrix = write_report(folder / "matrix.html", comparison.matrix_html(across, folder))
    assert across.runs[0].lab == FACTS.lab
    listed = publish.publish(folder / "site", list(runs.values()), CLAIMS).index
    return {**files, "matrix": matrix, "published": listed}


@OTHERS
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["judged", "hostile", "empty", "without-facts", "matrix", "published"])
def test_page_is_accessible_and_fits(
    axe: Path, pages: dict[str, Path], tmp_path: Path, name: str, scheme: str, width: int
) -> None:
    observed = inspect(pages[name].read_text(), axe, tmp_path, width, scheme)
    assert observed["violations"] == []
    assert observed["passes"] > 20
    assert observed["width"] <= width
    assert observed["dark"] == (scheme == "dark")


@OTHERS
def test_page_check_detects_violations(axe: Path, pages: dict[str, Path], tmp_path: Path) -> None:
    text = (
        pages["empty"]
        .read_text()
        .replace(
            "<main", '<p style="color:#777;background:#666">hardly to be read</p><div style="width:500px">'
        )
    )
    observed = inspect(text, axe, tmp_path, 400, "light")
    assert "color-contrast" in [name for name, _html in observed["violations"]]
    assert observed["width"] > 400


def inspect(text: str, axe: Path, folder: Path, width: int, scheme: str) -> Json:
    """Return what axe-core and the layout report of a page in Chromium."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    shutil.copy(axe, folder / "axe.min.js")
    frame, page = folder / "frame.html", POLICY.sub("", text, count=1)
    frame.write_text(FRAME.format(width=width, page=escape(page)))
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000")
    colours = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    own = (f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom")
    output = proc.run((chromium, *options, colours, *own, frame.as_uri()), timeout_s=TIMEOUT_S).stdout
    match = re.search(r'<pre id="said">(.*?)</pre>', output)
    assert match is not None
    return json.loads(unescape(match[1]))
