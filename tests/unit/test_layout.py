"""What a plain pytest run loads of the harness, and what the plugin does there: nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nodeproof import proc

FOREIGN = """
import signal, sys

def test_it():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not {"nodeproof.session.run", "nodeproof.session.hooks"} & set(sys.modules)
"""
SCENARIO = """
import signal
from nodeproof.scenario import claims

@claims("cordon.taint")
def test_it(judge):
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
"""


def test_pytest_without_scenarios_loads_no_lab() -> None:
    code = "import sys, nodeproof.plugin; print(*sys.modules)"
    loaded = proc.run([sys.executable, "-c", code], timeout_s=120).stdout.split()
    assert "nodeproof.plugin" in loaded
    assert [name for name in loaded if name.startswith(("nodeproof.labs", "nodeproof.artifacts"))] == []


def run_pytest(folder: Path, code: str, workers: str) -> proc.Result:
    (folder / "test_it.py").write_text(code)
    argv = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", "test_it.py"]
    return proc.run(argv, timeout_s=240, cwd=folder, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_pytest_without_scenarios_is_not_disturbed(workers: str, tmp_path: Path) -> None:
    process = run_pytest(tmp_path, FOREIGN, workers)
    assert process.status == 0, process
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["test_it.py"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_scenario_begins_a_run_without_options(workers: str, tmp_path: Path) -> None:
    process = run_pytest(tmp_path, SCENARIO, workers)
    (run,) = (path for path in (tmp_path / "reports" / "out").glob("2*-fast-process-*"))
    assert (run / "verdicts.json").exists(), process
    assert f"run folder: {run}" in process.stdout
