"""Output of pytest and Allure, and the files of a run, contain no secret."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
from pathlib import Path

from nodeproof import proc
from nodeproof.report import allure, rundir
from tests.unit.planted_secrets import KEYS, TOKEN, find_secrets

SECRETS = {**KEYS, "token": TOKEN}
CONFTEST = """
import pytest

from nodeproof.session import scenario_report


def pytest_sessionstart(session):
    scenario_report.redact_allure(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    scenario_report.redact_report(report)
    return report
"""
CHILD_TEST = """
import logging
from pathlib import Path

import allure
import pytest

FILE = Path(__file__).with_name("secrets")
SECRETS = FILE.read_text()


@pytest.fixture
def attaching():
    yield
    allure.attach(SECRETS, "afterwards")


def test_it(attaching):
    allure.attach.file(str(FILE), "a file")
    allure.dynamic.description(SECRETS)
    print(SECRETS)
    logging.warning(SECRETS)
    with allure.step(SECRETS), allure.step("inner"):
        allure.attach(SECRETS.encode(), SECRETS)
        raise RuntimeError(SECRETS)
"""


def test_reported_secret_is_redacted_in_every_output(tmp_path: Path) -> None:
    child, out = tmp_path / "child", tmp_path / "out"
    child.mkdir()
    (child / "conftest.py").write_text(CONFTEST)
    (child / "test_it.py").write_text(CHILD_TEST)
    (child / "secrets").write_text("\n".join(SECRETS.values()))
    options = (f"--alluredir={out / 'results'}", f"--junitxml={out / 'junit.xml'}", "-o", "junit_logging=all")
    process = proc.run(
        (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(child), *options),
        timeout_s=240.0,
        check=False,
    )
    (out / "terminal").write_text(process.stdout)

    assert "1 failed" in process.stdout
    assert find_secrets(out, SECRETS) == []
    written = [path for path in out.rglob("*") if path.is_file()]
    dirty = [path for path in written if "[redacted private key " in path.read_text()]
    # The result, not its fixtures' container; four attachments and the captured output.
    assert len(dirty) >= 2 + 1 + 3
    (result,) = out.glob("results/*-result.json")
    assert json.loads(result.read_text())["status"] == "broken"


def test_search_finds_secrets_in_plain_and_packed_text(tmp_path: Path) -> None:
    token = TOKEN.encode()
    (tmp_path / "a").write_bytes(token)
    (tmp_path / "b").write_bytes(b'{"a": "' + base64.b64encode(token) + b'"}')
    (tmp_path / "c").write_bytes(b"x('" + base64.b64encode(gzip.compress(token)) + b"')")
    assert find_secrets(tmp_path, SECRETS) == ["a: token", "b: token", "c: token"]


def test_files_of_a_run_contain_no_secret(tmp_path: Path) -> None:
    text = "\n".join(SECRETS.values())
    rundir.write_json(tmp_path / "run.json", {"command": f"pytest --token={TOKEN}", "reason": text})
    allure.write_broken(tmp_path, "a.py::test_a", ["cordon.taint"], text, {})
    assert find_secrets(tmp_path, SECRETS) == []
    command = json.loads((tmp_path / "run.json").read_text())["command"]
    assert re.fullmatch(r"pytest --token=\[redacted token [0-9a-f]{8}\]", command)
