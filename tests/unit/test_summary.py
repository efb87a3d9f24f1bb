"""What a run prints in the end besides its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeproof.report import rundir
from nodeproof.report.rundir import RunFacts
from nodeproof.session.closing import summary

SETTINGS = ("etcd unsafe-no-fsync=true", "kubelet healthzPort=0")
FACTS = RunFacts(
    "run", "2026-01-01T00:00:00", "", "process", "fast", "v1.36.3", "pytest", {}, SETTINGS, (), (), ""
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rundir.write_json(tmp_path / "verdicts.json", [])
    rundir.write_facts(tmp_path, FACTS)
    return tmp_path


def test_settings_that_are_not_upstreams_are_counted(run: Path) -> None:
    lines = list(summary(run, settings=False))
    assert any(line.startswith("2 settings of the lab are not upstream's") for line in lines)
    assert not any("healthzPort" in line for line in lines)


def test_settings_that_are_not_upstreams_are_listed_where_asked_for(run: Path) -> None:
    assert {f"  {setting}" for setting in SETTINGS} <= set(summary(run, settings=True))
