"""Output of pytest and Allure, and the files of a run: what is attached, and that none contains a secret."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sys
from pathlib import Path

from nodeproof import proc
from nodeproof.model.history import Entry, History
from nodeproof.report import allure, rundir
from nodeproof.session import scenario_report
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


# Logs attached to Allure's results.


LOG = "a line of a log\n" * 10_000
NAMES = (
    "etcd", "kube-apiserver", "kubelet-node-1", "node-node-1",
    "kubelet-node-2", "console-node-2", "node-node-11",
)  # fmt: skip


def test_logs_of_control_plane_and_affected_nodes_are_attached(tmp_path: Path) -> None:
    def tails(*folders: Path, short: bool) -> dict[str, str]:
        return {tail.name: tail.text for tail in scenario_report.log_tails(folders, {"node-1"}, short=short)}

    for name in NAMES:
        (tmp_path / f"{name}.log").write_text(f"{name}\n{LOG}")
    long, short = tails(tmp_path, tmp_path / "none", short=False), tails(tmp_path, short=True)
    assert long.keys() == {"etcd.log", "kube-apiserver.log", "kubelet-node-1.log", "node-node-1.log"}
    assert 0 < len(short["etcd.log"]) < len(long["etcd.log"]) < len(LOG)
    assert long["etcd.log"].endswith("log\n")


def test_node_is_affected_by_a_fault_or_a_machine_event() -> None:
    entries = (
        Entry(1.0, "fault", {"id": "1", "node": "node-1", "step": "injected"}),
        Entry(2.0, "machine", {"node": "joined", "step": "booted"}),
        Entry(3.0, "fault", {"id": "2", "step": "injected"}),
        Entry(4.0, "observed", {"node": "node-3"}),
    )
    assert scenario_report.concerned(History.of(entries)) == {"node-1", "joined"}
