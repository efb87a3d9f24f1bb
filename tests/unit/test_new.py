"""`nodeproof new`: each written example collects, lints, and passes its test as far as no lab is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nodeproof import new, proc
from nodeproof.cli import main
from nodeproof.model.problem import Problem
from tests.plugins import run_python
from tests.unit.in_process import Call

TOP = Path(__file__).resolve().parents[2]
NAME = "power-loss"
FORGETS = 'monkeypatch.setattr(power_loss.PowerLoss, "heal", lambda self, machine: None)'
FINDS_NOTHING = 'monkeypatch.setattr(power_loss.PowerLoss, "leftovers_on", classmethod(lambda *_: ()))'
LOCAL = """
from types import SimpleNamespace

import pytest

from nodeproof import proc, testing
import power_loss


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("folder"))

    def run(argv, timeout_s, stdin=""):
        placed = [argument.replace("/run", folder) for argument in argv]
        return proc.run(placed, timeout_s=timeout_s, stdin=stdin, check=False)

    return SimpleNamespace(name="node-1", run=run, boot_id=lambda: "1", is_powered=lambda: True)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(testing, "HEAL_TIMEOUT_S", 0.2)
    BUG
"""


def run_pytest(folder: Path, *arguments: str) -> proc.Result:
    return run_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


def test_written_claims_pass_their_test(tmp_path: Path) -> None:
    assert main(["new", "claims", NAME, "--folder", str(tmp_path)]) == 0
    process = run_pytest(tmp_path)
    assert "1 passed" in process.stdout, process


@pytest.mark.parametrize(
    ("bug", "outcome"),
    [("...", "5 passed"), (FORGETS, "3 failed"), (FINDS_NOTHING, "1 failed")],
    ids=["none", "forgets", "finds nothing"],
)
def test_written_fault_passes_the_contract_on_a_machine(tmp_path: Path, bug: str, outcome: str) -> None:
    """The machine is this one, with another folder in place of `/run`."""
    assert main(["new", "fault", NAME, "--folder", str(tmp_path)]) == 0
    folder = tmp_path / NAME
    tests = (folder / "test_power_loss.py").read_text()
    (folder / "test_power_loss.py").write_text(tests + LOCAL.replace("BUG", bug))
    process = run_pytest(folder)
    assert outcome in process.stdout, process
    assert ("where False = becomes" in process.stdout) == (bug == FORGETS), "pytest rewrites the assertions"


def test_written_package_is_installed_with_its_entry_point(tmp_path: Path) -> None:
    new.write("fault", NAME, tmp_path)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    argv = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "site")]
    proc.run([*argv, str(tmp_path / NAME)], timeout_s=240)
    code = "from nodeproof.faults import PLUGINS; print(*PLUGINS)"
    output = run_python(tmp_path / "site", "-c", code).stdout
    assert output == "plugin power-loss of power-loss 0.1.0: power-loss\n"


@pytest.mark.parametrize("kind", new.KINDS)
def test_written_files_pass_the_linter(kind: str, tmp_path: Path) -> None:
    folder = new.write(kind, NAME, tmp_path)[-1].parent
    ruff, config = str(Path(sys.executable).with_name("ruff")), ("--config", str(TOP / "pyproject.toml"))
    for command in (("check", "--extend-per-file-ignores", "test_*.py:S101"), ("format", "--check")):
        done = proc.run([ruff, *command, "--no-cache", *config, "."], timeout_s=60, cwd=folder, check=False)
        assert done.status == 0, done.stdout


def test_nothing_is_overwritten(tmp_path: Path, call: Call) -> None:
    claims = tmp_path / "claims" / f"{NAME}.yaml"
    claims.parent.mkdir()
    claims.write_text("mine\n")
    assert f"{claims} exists" in call("new", "scenario", NAME, "--folder", str(tmp_path)).refusal
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [claims]


def test_second_scenario_of_a_folder_shares_its_settings(tmp_path: Path) -> None:
    new.write("scenario", NAME, tmp_path)
    names = [path.name for path in new.write("scenario", "cable-cut", tmp_path)]
    assert names == ["cable-cut.yaml", "test_cable_cut.py"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\naddopts = -q\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q'\n"),
        (".pytest.ini", "[pytest]\naddopts = -q\n"),
        ("tox.ini", "[pytest]\naddopts = -q\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -q\n"),
    ],
)
def test_settings_of_pytest_are_not_hidden(name: str, text: str, tmp_path: Path, call: Call) -> None:
    settings = tmp_path / name
    settings.write_text(text)
    assert str(settings) in call("new", "scenario", NAME, "--folder", str(tmp_path)).refusal
    assert list(tmp_path.iterdir()) == [settings]

    settings.write_text(f"{text}nodeproof_claims = {'claims' if name.endswith('i') else ['claims']}\n")
    assert "pytest.ini" not in [path.name for path in new.write("scenario", NAME, tmp_path)]


def test_settings_that_pytest_reads_decide(tmp_path: Path, call: Call) -> None:
    """Pytest ignores the second of these files."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-q'\n")
    (tmp_path / "tox.ini").write_text("[pytest]\nnodeproof_claims = claims\n")
    assert "pyproject.toml" in call("new", "scenario", NAME, "--folder", str(tmp_path)).refusal


def test_unreadable_settings_are_reported(tmp_path: Path, call: Call) -> None:
    (tmp_path / "pytest.ini").write_bytes(b"\xff")
    refusal = call("new", "scenario", NAME, "--folder", str(tmp_path)).refusal
    assert "the example cannot be written" in refusal


@pytest.mark.parametrize("name", ["class", "lambda", "json", "pytest"])
def test_name_of_another_module_is_refused_for_a_fault(name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem, match=f"{name} is a keyword or module of Python"):
        new.write("fault", name, tmp_path)
    assert new.write("scenario", name, tmp_path)


@pytest.mark.parametrize("name", ["Power", "power_loss", "../x", "-x", "x-", ""])
def test_invalid_name_is_refused(name: str, tmp_path: Path, call: Call) -> None:
    refusal = call("new", "--folder", str(tmp_path), "scenario", "--", name).refusal
    assert f"{name!r} is not a name" in refusal
