"""`python -m infra.pictures RUN`: take the screenshot for the docs from the site of a run; needs Chromium.

`docs/report.png` is the first scenario with a timeline in Allure's report.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nodeproof.report import allure
from tests.chromium import Page, chromium

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "report.png"
WIDTH = 1100
_LINES_OF_TIMELINE = """[...document.querySelectorAll("*")].filter(line => line.innerText === "timeline")"""
_TIMELINE_IS_DRAWN = "[...document.images].some(image => image.complete && image.naturalHeight > 0)"


def main() -> int:
    """Write the picture of the run that the command line names."""
    run = Path(sys.argv[1]).resolve()
    with TemporaryDirectory(prefix="nodeproof-pictures-") as folder, chromium(Path(folder)) as browser:
        PICTURE.write_bytes(scenario(browser, run))
    print(f"pictures: {PICTURE}")
    return 0


def scenario(browser: Page, run: Path) -> bytes:
    """Return a picture of a scenario as PNG. Raises AssertionError if its timeline is not drawn."""
    browser.open(f"{(run / 'site' / 'index.html').as_uri()}#{_with_timeline(run)}", WIDTH)
    browser.until(f"{_LINES_OF_TIMELINE}.length")
    browser.run(f"{_LINES_OF_TIMELINE}.pop().click()")
    browser.until(_TIMELINE_IS_DRAWN)
    return base64.b64decode(browser.ask("Page.captureScreenshot", format="png")["data"])


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
