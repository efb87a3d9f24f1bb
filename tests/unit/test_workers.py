"""Tests with labs: the number of workers, parallel and exclusive tests, and retries on a loaded host."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import proc
from nodeproof.labs.kinds import LIBVIRT, VAGRANT
from tests import conftest
from tests.conftest import GIB, pytest_xdist_auto_num_workers
from tests.shared_lock import alone, beside_others
from tests.waiting import eventually


def config_for(kind: str) -> pytest.Config:
    """Return pytest's configuration of contract tests on this kind."""
    options: dict[str, Any] = {"shipped": False, "contract_lab": kind}
    config = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default), args=["tests/contract"]
    )
    return cast(pytest.Config, config)


@pytest.mark.parametrize("kind", [LIBVIRT.name, VAGRANT.name])
@pytest.mark.parametrize(
    ("has_kvm", "cores", "gib", "workers"),
    [(True, 2, 24, 2), (True, 8, 24, 4), (True, 8, 4, 1), (False, 2, 24, 1), (False, 8, 24, 4)],
)
def test_lab_workers_follow_cores_and_kvm(
    kind: str, has_kvm: bool, cores: int, gib: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "runs_on_kvm", lambda *_arguments: has_kvm)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gib * GIB, "SC_PAGE_SIZE": 1}.__getitem__)

    assert pytest_xdist_auto_num_workers(config_for(kind)) == workers


SOON_S, NOT_YET_S = 5.0, 0.2


def test_tests_run_in_parallel(tmp_path: Path) -> None:
    with beside_others(tmp_path / "turns"), beside_others(tmp_path / "turns"):
        pass


def test_exclusive_test_waits_for_running_tests_and_precedes_later_ones(tmp_path: Path) -> None:
    turns, came = tmp_path / "turns", list[str]()

    def by_itself() -> None:
        with alone(turns):
            came.append("alone")

    def later() -> None:
        with beside_others(turns):
            came.append("later")

    with ThreadPoolExecutor(2) as pool:
        with beside_others(turns):
            first = pool.submit(by_itself)
            assert not eventually(first.done, NOT_YET_S)
            second = pool.submit(later)
            assert not eventually(second.done, NOT_YET_S)
        first.result(SOON_S)
        second.result(SOON_S)
    assert came == ["alone", "later"]


TOP = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0
TESTS = '''
import pathlib
import pytest

LOG = pathlib.Path(__file__).with_name("log")


def tell(what):
    with LOG.open("a") as out:
        print(what, file=out)
    return LOG.read_text().split().count(what)


@pytest.fixture(scope="session")
def lab():
    tell("up")
    yield
    tell("down")


def test_before(lab):
    pass


def test_said(lab):
    if tell("said") == 1:
        print("claim  unproven: host-too-loaded  x1")
        pytest.fail("another label")


def test_compared(lab):
    assert ("host-too-loaded" if tell("compared") == 1 else "conforms") == "conforms"


def test_never(lab):
    tell("never")
    assert "host-too-loaded" == "conforms"


def test_other(lab):
    """It fails for another reason, though its source mentions host-too-loaded."""
    tell("other")
    assert "deviates" == "conforms"


def test_last(lab):
    print("claim  unproven: host-too-loaded  x1")
'''


@pytest.fixture(scope="module", params=[(), ("-n1",)], ids=["one process", "a worker"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """Return the tests in the order in which they ran, and pytest's output."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "test_loaded.py").write_text(TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    argv = [sys.executable, "-m", "pytest", *options, *request.param, str(folder)]
    output = proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP, check=False).stdout
    return (folder / "log").read_text().split(), output


def test_failed_test_is_retried_once_on_a_new_lab(ended: tuple[list[str], str]) -> None:
    calls, output = ended
    again = [["down", "up", what] for what in ("said", "compared", "never")]
    assert calls == ["up", *(word for what in again for word in (what[-1], *what)), "other", "down"]
    assert "2 failed, 4 passed" in output


def test_only_retried_tests_are_listed(ended: tuple[list[str], str]) -> None:
    lines = [line for line in ended[1].splitlines() if "tried once more on new labs" in line]
    assert [line.rpartition("::")[2] for line in lines] == ["test_compared", "test_never", "test_said"]
