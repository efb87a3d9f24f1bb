"""A bundle installs and runs a scenario where there is no network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir
from tests.acceptance.command import TIMEOUT_S, nodeproof

pytestmark = pytest.mark.night("downloads all packages; unit tests check what install.sh refuses")
BUNDLE_TIMEOUT_S = 1200.0
"""For the volume controllers, too, which may not be built yet."""
# A new namespace has a loopback that is down, and nothing else.
OFFLINE = """
set -e
ip link set lo up
tar xf bundle.tar.gz
nodeproof-bundle/install.sh venv
venv/bin/nodeproof doctor --lab process
venv/bin/nodeproof new scenario power-loss
venv/bin/nodeproof run -n 0 --run run .
"""


def test_bundle_runs_a_scenario_without_a_network(tmp_path: Path) -> None:
    assert nodeproof("bundle", "bundle.tar.gz", cwd=tmp_path, timeout_s=BUNDLE_TIMEOUT_S).status == 0
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PIP_NO_INDEX": "1",
    }
    environment.pop("PYTHONPATH", None)
    argv = ["unshare", "--net", "--", "bash", "-c", OFFLINE]
    process = proc.run(argv, timeout_s=TIMEOUT_S, cwd=tmp_path, env=environment, check=False)
    assert process.status == 0, process
    assert [(row["claim"], row["verdict"]) for row in rundir.read_verdicts(tmp_path / "run")] == [
        ("power-loss.noticed", "conforms")
    ]
    assert (tmp_path / "run" / "site" / "index.html").is_file()
