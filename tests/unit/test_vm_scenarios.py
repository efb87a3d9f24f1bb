"""`make test-vm` runs a scenario of every fault there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness import faults, scenario

TOP = Path(__file__).resolve().parents[2]
CONSTRUCTORS = sorted(
    name
    for name in scenario.__all__
    if getattr(getattr(scenario, name), "__annotations__", {}).get("return") in faults.__all__
)


@pytest.fixture(scope="module")
def injected() -> set[str]:
    """The faults that the listed scenarios make, by the names of their constructors."""
    listed = re.search(r"^VM_SCENARIOS := ((?:.*\\\n)*.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None
    return {name for entry in listed[1].replace("\\\n", " ").split() for name in called(entry)}


def called(listed: str) -> set[str]:
    """The plain functions that a file, or `FILE::TEST` of it, calls."""
    file, _, test = listed.partition("::")
    module = ast.parse((TOP / file).read_text())
    parts = [part for part in module.body if not test or getattr(part, "name", "") == test]
    calls = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_a_scenario_of_the_fault_runs_on_virtual_machines(injected: set[str], constructor: str) -> None:
    assert constructor in injected
