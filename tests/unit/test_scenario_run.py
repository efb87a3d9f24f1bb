"""Retries of scenarios that stayed open because of the host's load, without a lab."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir

TIMEOUT_S = 300.0
SCENARIOS = """
import pathlib

import pytest

from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.plugin import Judge
from nodeproof.scenario import claims

TRIES = pathlib.Path(__file__).with_name("tries")


def count(name):
    with TRIES.open("a") as out:
        print(name, file=out)
    return TRIES.read_text().split().count(name)


@claims("cordon.taint")
def test_loaded(judge: Judge) -> None:
    count("loaded")
    raise HostTooLoaded("a stall", "host", "retry")


@claims("cordon.display")
def test_loaded_once(judge: Judge) -> None:
    if count("loaded_once") == 1:
        raise HostTooLoaded("a stall", "host", "retry")
    raise Problem("another reason", "host", "")


@claims("heartbeat.lease-interval")
def test_other(judge: Judge) -> None:
    count("other")
"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_loaded_scenarios_are_retried_at_the_end_of_the_run(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SCENARIOS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = tmp_path / "run"
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", workers, f"--run={run}", "test_it.py"]
    output = proc.run(argv, timeout_s=TIMEOUT_S, cwd=tmp_path, check=False).stdout
    tries = (tmp_path / "tries").read_text().split()
    assert sorted(tries[:3]) == ["loaded", "loaded_once", "other"]
    assert sorted(tries[3:5]) == ["loaded", "loaded_once"]
    assert tries[5:] == ["loaded"]
    assert "3 rerun" in output
    codes = {row["claim"]: row["code"] for row in json.loads((run / "verdicts.json").read_text())}
    assert codes == {
        "cordon.taint": "host-too-loaded",
        "cordon.display": "gap",
        "heartbeat.lease-interval": "gap",
    }
    assert len(list((run / rundir.TOO_LOADED).iterdir())) == 3
    assert (run / rundir.BUSIEST).exists()


STOPS_EARLY = """
import pytest

from nodeproof.model.problem import HostTooLoaded, Problem


def test_stops(claim):
    claim("cordon.taint")
    raise Problem("stop", "here", "")


@pytest.mark.parametrize("number", range(4))
def test_is_retried(claim, number):
    claim("cordon.display")
    raise HostTooLoaded("a stall", "host", "retry")
"""


def test_retries_do_not_wait_for_a_worker_that_stopped_early(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STOPS_EARLY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n2", "-x", "test_it.py"]
    ended = proc.run([*argv, f"--run={tmp_path / 'run'}"], timeout_s=TIMEOUT_S, cwd=tmp_path, check=False)
    assert ended.status == 2, ended.stdout
    assert "stopping after 1 failures" in ended.stdout
