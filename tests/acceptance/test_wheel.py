"""The wheel: catalogue, scenarios, recipes and plugin work outside a checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir
from tests.acceptance.command import TOP

BUILD_LIMIT_S = 120.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, ahead of the checkout on the path."""
    work = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    proc.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(work), str(TOP)],
        timeout_s=BUILD_LIMIT_S,
    )
    (wheel,) = work.glob("nodeproof-*.whl")
    proc.run(
        [*pip, "install", "--no-deps", "--target", str(work / "site"), str(wheel)], timeout_s=BUILD_LIMIT_S
    )
    return work / "site"


def _run(installed: Path, cwd: Path, *code: str) -> proc.Result:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    return proc.run([sys.executable, *code], timeout_s=BUILD_LIMIT_S, cwd=cwd, env=env, check=False)


def test_the_shipped_scenarios_are_collected(installed: Path, tmp_path: Path) -> None:
    done = _run(installed, tmp_path, "-m", "nodeproof.cli", "run", "--collect-only", "-q")
    assert done.status == 0, done.stdout
    assert "test_kubelet_renews_its_lease" in done.stdout
    assert not list(tmp_path.iterdir())


def test_recipes_are_found(installed: Path, tmp_path: Path) -> None:
    code = (
        "from nodeproof.artifacts.components import recipe_dir; from nodeproof import catalogue;"
        "print(recipe_dir()); print(catalogue.scenarios_dir()); print(len(catalogue.load()))"
    )
    done = _run(installed, tmp_path, "-c", code)
    recipe, scenarios, claims = done.stdout.split()
    assert Path(recipe).is_relative_to(installed)
    assert (Path(recipe) / "go.mod").exists()
    assert Path(scenarios).is_relative_to(installed)
    assert int(claims) >= 12


def test_the_csi_driver_starts(installed: Path, tmp_path: Path) -> None:
    found = _run(installed, tmp_path, "-c", "from nodeproof.artifacts import csi; print(csi.python_path())")
    path = Path(found.stdout.strip())
    assert path.is_relative_to(installed)
    asked = ["--endpoint=unix:///nowhere/sock", f"--hypervisor=table:{tmp_path / 'table'}"]
    done = _run(path, tmp_path, "-P", "-m", "infra.csi", *asked)
    assert "csi driver: cannot listen at unix:///nowhere/sock" in done.stderr, done.stderr


def test_a_run_outside_a_checkout_leaves_its_verdicts(installed: Path, tmp_path: Path) -> None:
    done = _run(
        installed, tmp_path, "-m", "nodeproof.cli", "run", "--no-site", "-k", "test_defaults or test_default"
    )
    assert done.status == 0, done.stdout + done.stderr
    rows = rundir.read_verdicts(tmp_path / "reports" / "out" / "latest")
    assert {row["code"] for row in rows} == {"scaled"}
