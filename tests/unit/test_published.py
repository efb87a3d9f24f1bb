"""What pytest and Allure write, and what goes into a run's files, is without what is secret."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
from pathlib import Path

from nodeproof import proc
from nodeproof.report import broken, rundir
from tests.unit.secrets_told import KEYS, TOKEN, found

SECRETS = {**KEYS, "token": TOKEN}
CONFTEST = """
import pytest

from nodeproof.session import published


def pytest_sessionstart(session):
    published.clean_allure(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    published.clean(report)
    return report
"""
TELLS = """
import logging
from pathlib import Path

import allure
import pytest

FILE = Path(__file__).with_name("told")
TOLD = FILE.read_text()


@pytest.fixture
def known():
    yield
    allure.attach(TOLD, "afterwards")


def test_it(known):
    allure.attach.file(str(FILE), "a file")
    allure.dynamic.description(TOLD)
    print(TOLD)
    logging.warning(TOLD)
    with allure.step(TOLD), allure.step("inner"):
        allure.attach(TOLD.encode(), TOLD)
        raise RuntimeError(TOLD)
"""


def test_what_a_test_tells_is_clean_wherever_it_is_written(tmp_path: Path) -> None:
    child, out = tmp_path / "child", tmp_path / "out"
    child.mkdir()
    (child / "conftest.py").write_text(CONFTEST)
    (child / "test_it.py").write_text(TELLS)
    (child / "told").write_text("\n".join(SECRETS.values()))
    options = (f"--alluredir={out / 'results'}", f"--junitxml={out / 'junit.xml'}", "-o", "junit_logging=all")
    done = proc.run(
        (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(child), *options),
        timeout_s=240.0,
        check=False,
    )
    (out / "terminal").write_text(done.stdout)

    assert "1 failed" in done.stdout
    assert found(out, SECRETS) == []
    written = [path for path in out.rglob("*") if path.is_file()]
    dirty = [path for path in written if "[redacted private key " in path.read_text()]
    # The result, its fixtures' container has nothing; four attachments and what was captured.
    assert len(dirty) >= 2 + 1 + 3
    (result,) = out.glob("results/*-result.json")
    assert json.loads(result.read_text())["status"] == "broken"


def test_a_search_finds_what_is_there_packed_or_not(tmp_path: Path) -> None:
    token = TOKEN.encode()
    (tmp_path / "a").write_bytes(token)
    (tmp_path / "b").write_bytes(b'{"a": "' + base64.b64encode(token) + b'"}')
    (tmp_path / "c").write_bytes(b"x('" + base64.b64encode(gzip.compress(token)) + b"')")
    assert found(tmp_path, SECRETS) == ["a: token", "b: token", "c: token"]


def test_files_of_a_run_are_clean(tmp_path: Path) -> None:
    told = "\n".join(SECRETS.values())
    rundir.write_json(tmp_path / "run.json", {"command": f"pytest --token={TOKEN}", "reason": told})
    broken.report(tmp_path, "a.py::test_a", ["cordon.taint"], told, {})
    assert found(tmp_path, SECRETS) == []
    command = json.loads((tmp_path / "run.json").read_text())["command"]
    assert re.fullmatch(r"pytest --token=\[redacted token [0-9a-f]{8}\]", command)
