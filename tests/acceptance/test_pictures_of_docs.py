"""The pictures of docs can be taken of a run's site and of the judged page."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.pictures import recoveries, scenario
from infra.showpiece import judged_page
from nodeproof.cli import main
from tests.chromium import Page
from tests.golden_runs import thawed_run

pytestmark = pytest.mark.night("needs Chromium, which nothing else does, and proves nothing about verdicts")
PNG = b"\x89PNG"


def test_scenario_is_taken_with_its_timeline(tmp_path: Path, browser: Page) -> None:
    run = thawed_run("format-1", tmp_path / "run")
    # A claim of this run deviates.
    assert main(["recheck", str(run)]) == 1
    assert scenario(browser, run / "recheck").startswith(PNG)
    assert browser.wrong == []


def test_table_of_recoveries_is_taken(tmp_path: Path, browser: Page) -> None:
    page = tmp_path / "page.html"
    page.write_text(judged_page())
    assert recoveries(browser, page).startswith(PNG)
    assert browser.wrong == []
