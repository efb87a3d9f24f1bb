"""The table of what falls on altered machines, over tests that are made up."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from nodeproof import proc

TOP = Path(__file__).resolve().parents[2]
LIMIT_S = 240.0
TESTS = """
import pytest

def a_machine_forgets(): ...

@pytest.fixture
def run(record_property):
    return lambda *claims: record_property("fell", sorted(claims))

@pytest.fixture
def claims(request):
    return frozenset(request.node.get_closest_marker("falls").args)

def test_all_conform(run): ...

@pytest.mark.parametrize(("claims", "alter"), [(("a.one", "a.two"), a_machine_forgets)])
def test_falls(run, claims, alter):
    run("a.one", "a.two")

@pytest.mark.falls("b.one")
def test_stands(run, claims):
    run()
    assert not claims

@pytest.fixture
def lab():
    raise RuntimeError("no lab")

@pytest.mark.falls("c.one")
def test_has_no_lab(lab, run, claims): ...
"""


def test_each_altered_machine_has_a_row_whatever_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_machines.py").write_text(TESTS)
    argv = [sys.executable, "-m", "tests.sensitivity.machines", "-c", os.devnull, "test_machines.py"]
    env = {**os.environ, "PYTHONPATH": str(TOP)}
    done = proc.run(argv, timeout_s=LIMIT_S, cwd=tmp_path, env=env, check=False)

    assert done.status == 1
    assert "1 of 3 alterations caught, 2 claims" in done.stdout
    rows = json.loads((tmp_path / "reports" / "out" / "sensitivity" / "machines.json").read_text())
    assert [(row["altered"], row["falls"], row["fell"], row["outcome"]) for row in rows] == [
        ("a_machine_forgets", ["a.one", "a.two"], ["a.one", "a.two"], "caught"),
        ("test_stands", ["b.one"], [], "failed in call"),
        ("test_has_no_lab", ["c.one"], [], "failed in setup"),
    ]
