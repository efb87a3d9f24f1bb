"""`python -m infra.pictures [RUN]`: take the pictures of the docs; needs Chromium.

`docs/report.png` is the first scenario with a timeline in Allure's report of RUN; without RUN it stays.
`docs/recovery.png` is the table of recoveries in the judged page of the kept recordings, and
`docs/terminal.svg` a terminal in which commands read them (`infra.recording`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from infra import recording
from infra.showpiece import judged_page, write_run
from nodeproof.model.pattern import Json
from nodeproof.report import allure
from tests.chromium import Page, chromium

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 1100
_LINES_OF_TIMELINE = """[...document.querySelectorAll("*")].filter(line => line.innerText === "timeline")"""
_TIMELINE_IS_DRAWN = "[...document.images].some(image => image.complete && image.naturalHeight > 0)"
_RECOVERIES = """(() => {
  const section = document.querySelector("#recovery").closest("section");
  const {x, y, width, height} = section.getBoundingClientRect();
  return {x: x - 8, y: y + scrollY - 8, width: width + 16, height: height + 16, scale: 1};
})()"""


def main() -> int:
    """Write the pictures."""
    with TemporaryDirectory(prefix="nodeproof-pictures-") as name, chromium(Path(name)) as browser:
        if len(sys.argv) > 1:
            _write("report.png", scenario(browser, Path(sys.argv[1]).resolve()))
        page = Path(name, "page.html")
        page.write_text(judged_page())
        _write("recovery.png", recoveries(browser, page))
        _write("terminal.svg", recording.picture(recording.record(write_run(Path(name)))).encode())
    return 0


def _write(name: str, content: bytes) -> None:
    (DOCS / name).write_bytes(content)
    print(f"pictures: {DOCS / name}")


def scenario(browser: Page, run: Path) -> bytes:
    """Return a picture of a scenario as PNG. Raises AssertionError if its timeline is not drawn."""
    browser.open(f"{(run / 'site' / 'index.html').as_uri()}#{_with_timeline(run)}", WIDTH)
    browser.until(f"{_LINES_OF_TIMELINE}.length")
    browser.run(f"{_LINES_OF_TIMELINE}.pop().click()")
    browser.until(_TIMELINE_IS_DRAWN)
    return _screenshot(browser)


def recoveries(browser: Page, page: Path) -> bytes:
    """Return a picture of the table of recoveries in a judged page as PNG."""
    browser.open(page.as_uri(), WIDTH)
    return _screenshot(browser, clip=browser.run(_RECOVERIES), captureBeyondViewport=True)


def _screenshot(browser: Page, **options: Json) -> bytes:
    return base64.b64decode(browser.ask("Page.captureScreenshot", format="png", **options)["data"])


def _with_timeline(run: Path) -> str:
    """Return the address in Allure's report of the first scenario with a timeline."""
    results = (json.loads(path.read_text()) for path in sorted((run / allure.RESULTS).glob("*-result.json")))
    uuid = next(
        result["uuid"]
        for result in results
        if any(part["name"] == "timeline" for part in result.get("attachments", ()))
    )
    return hashlib.md5(uuid.encode(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
