"""A test of the harness on a host that was too loaded is tried once more, on new labs, and that is said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nodeproof import proc

TOP = Path(__file__).resolve().parents[2]
LIMIT_S = 240.0
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
    """It fails for a reason of its own, though its source speaks of host-too-loaded."""
    tell("other")
    assert "deviates" == "conforms"


def test_last(lab):
    print("claim  unproven: host-too-loaded  x1")
'''


@pytest.fixture(scope="module", params=[(), ("-n1",)], ids=["one process", "a worker"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """What the tests did, in order, and what pytest said."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "test_loaded.py").write_text(TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    argv = [sys.executable, "-m", "pytest", *options, *request.param, str(folder)]
    said = proc.run(argv, timeout_s=LIMIT_S, cwd=TOP, check=False).stdout
    return (folder / "log").read_text().split(), said


def test_it_is_tried_once_more_on_a_new_lab(ended: tuple[list[str], str]) -> None:
    told, said = ended
    again = [["down", "up", what] for what in ("said", "compared", "never")]
    assert told == ["up", *(word for what in again for word in (what[-1], *what)), "other", "down"]
    assert "2 failed, 4 passed" in said


def test_what_was_tried_again_is_said_and_nothing_else(ended: tuple[list[str], str]) -> None:
    said = [line for line in ended[1].splitlines() if "tried once more on new labs" in line]
    assert [line.rpartition("::")[2] for line in said] == ["test_compared", "test_never", "test_said"]
