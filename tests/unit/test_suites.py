"""Tests run by `make test`, CI and the nightly run: all of them, each once, and in CI every fault."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import MarkMatcher
from _pytest.mark.expression import Expression, ExpressionMatcher

from nodeproof import proc
from nodeproof.faults import FAULTS as REGISTERED
from nodeproof.labs.kinds import LIBVIRT, PROCESS, VAGRANT
from nodeproof.model.needs import COMPONENTS
from tests import markers
from tests.contract.kinds import FAULTS, KINDS

TOP = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300.0
BEFORE_A_PULL_REQUEST, NIGHT = ("test",), ("night",)
IN_AND_OUT = ("test_fault_is_idempotent", "test_control_plane_fault_is_idempotent")
"""The contract tests with one row per fault."""
_OF_THREE_PLANES = "it needs three control planes: tests/contract/test_control_planes.py"
OF_ANOTHER_LAB = {
    "upgrade": "it needs a second version of Kubernetes: tests/contract/test_upgrade.py",
    "peer-partition": _OF_THREE_PLANES,
    "election-refused": _OF_THREE_PLANES,
}
"""Faults that the contract tests' common labs cannot have, and why."""
ONLY_DOCUMENTED = re.compile(r'^@needs\([^@]*profile="documented"[^@]*?^def (test_\w+)', re.MULTILINE)
MARKED = {"tests/acceptance": ("",), "tests/contract": (PROCESS.name, LIBVIRT.name, VAGRANT.name)}
"""Folders that targets split by marker, and the kinds of lab of each."""
ALONE_AT_THE_END = re.compile(r"\b(?<!not )alone\b")
Test = tuple[str, str]
"""A test, or a folder run as a whole, and the kind of lab if there are several."""


def in_ci() -> tuple[str, ...]:
    """Return the targets of .ci/run, each of which follows its timeout (s)."""
    lines = (TOP / ".ci" / "run").read_text().splitlines()
    parts = [line for line in lines if line.startswith(("one ", "part "))]
    return tuple(target for part in parts for target in re.findall(r"\b\d+ ([a-z-]+)", part))


@cache
def commands(targets: tuple[str, ...], program: str) -> list[list[str]]:
    """Return the commands of a program that make would run."""
    # Below another make we would inherit its job server.
    argv = ["env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "make", "--dry-run", "--no-print-directory", *targets]
    lines = proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP).stdout.replace("\\\n", " ").splitlines()
    calls = [shlex.split(line) for line in lines if f"/{program} " in line]
    return [command[1:] for command in calls if command[0].endswith(f"/{program}")]


@pytest.fixture(scope="module")
def marks() -> Mapping[Test, frozenset[str]]:
    """Return every test of the split folders with its markers."""
    folders = [(kind, folder) for folder, kinds in MARKED.items() for kind in kinds]
    with ThreadPoolExecutor(2) as pool:
        return {
            test: names for part in pool.map(lambda one: collected(*one), folders) for test, names in part
        }


def collected(kind: str, folder: str) -> list[tuple[Test, frozenset[str]]]:
    options = ["--collect-only", "-q", "-p", "tests.markers", "-p", "no:cacheprovider"]
    lab = [f"--contract-lab={kind}"] if kind else []
    output = proc.run(
        [sys.executable, "-m", "pytest", *options, *lab, folder], timeout_s=TIMEOUT_S, cwd=TOP
    ).stdout
    lines = [line.split("\t")[1:] for line in output.splitlines() if line.startswith(markers.MARKED)]
    return [((kind, nodeid), frozenset(names)) for nodeid, *names in lines]


def selected(targets: tuple[str, ...], marks: Mapping[Test, frozenset[str]]) -> Counter[Test]:
    """Count what the commands of these targets run."""
    counts: Counter[Test] = Counter()
    for command in commands(targets, "pytest"):
        kind = next(
            (word.partition("=")[2] for word in command if word.startswith("--contract-lab=")), PROCESS.name
        )
        folders = [word for word in command if word.startswith("tests/")]
        if "-m" not in command:
            counts.update(("", folder) for folder in folders)
            continue
        chosen = Expression.compile(command[command.index("-m") + 1])
        own = {test: names for test, names in marks.items() if test[1].startswith(tuple(folders))}
        counts.update(
            test for test, names in own.items() if test[0] in ("", kind) and chosen.evaluate(_has(names))
        )
    return counts


def _has(names: frozenset[str]) -> ExpressionMatcher:
    """Return the value of a marker expression for a test with these markers."""
    return MarkMatcher.from_markers(pytest.Mark(name, (), {}, _ispytest=True) for name in names)


def test_every_test_runs_either_in_ci_or_at_night(marks: Mapping[Test, frozenset[str]]) -> None:
    run = selected(in_ci(), marks) + selected(NIGHT, marks)
    folders = {f"tests/{path.name}" for path in (TOP / "tests").iterdir() if any(path.glob("test_*.py"))}

    assert len(marks) > 400
    assert {test: times for test, times in run.items() if times != 1} == {}
    assert set(run) == set(marks) | {("", folder) for folder in folders - MARKED.keys()}


def faults_of_a_process_lab() -> list[str]:
    """Return the registered faults available in a process lab."""
    rows = [(row, make("node").name) for row, make in FAULTS.items()]
    can = {name for row, name in rows if row not in KINDS[PROCESS.name].lacks}
    cannot = {name for _row, name in rows} - can
    return [name for name in REGISTERED if name not in {*cannot, *OF_ANOTHER_LAB}]


@pytest.mark.parametrize("fault", faults_of_a_process_lab())
def test_make_test_has_every_fault_of_process_labs(marks: Mapping[Test, frozenset[str]], fault: str) -> None:
    rows = [
        row
        for _kind, test in selected(BEFORE_A_PULL_REQUEST, marks)
        for name, _bracket, row in [test.rpartition("::")[2].partition("[")]
        if name in IN_AND_OUT
    ]
    assert [row for row in rows if re.search(rf"(^|-){fault}(-|]$)", row)], rows


@pytest.mark.parametrize("component", [*COMPONENTS, "kubelet"])
def test_make_test_alters_each_component_once(marks: Mapping[Test, frozenset[str]], component: str) -> None:
    tests = [test for _kind, test in selected(BEFORE_A_PULL_REQUEST, marks)]
    assert any("test_component_mutations.py" in test and test.endswith(f"[{component}]") for test in tests)


def test_make_test_kills_a_run(marks: Mapping[Test, frozenset[str]]) -> None:
    tests = selected(BEFORE_A_PULL_REQUEST, marks)
    assert [test for _kind, test in tests if "test_killed_run_is_healed" in test]


def test_tests_of_the_whole_machine_run_alone() -> None:
    for command in commands((*in_ci(), *NIGHT), "pytest"):
        marks = command[command.index("-m") + 1] if "-m" in command else ""
        assert ("-n" in command) != bool(ALONE_AT_THE_END.search(marks)) or "-m" not in command, command


def test_each_scenario_runs_on_machines_either_in_ci_or_at_night() -> None:
    run = {
        when: [command for command in commands(targets, "nodeproof") if "--lab=libvirt" in command]
        for when, targets in (("ci", in_ci()), ("night", NIGHT))
    }
    (by_day,), (by_night,) = run["ci"], run["night"]
    listed = [word for word in by_day if word.startswith("scenarios/")]
    left_out = [word.partition("=")[2] for word in by_night if word.startswith("--deselect=")]
    assert listed == left_out
    assert [word for word in by_night if word.startswith("scenarios/")] == []
    assert all((TOP / path.partition("::")[0]).exists() for path in listed)


def test_documented_only_scenarios_run_in_ci_or_at_night() -> None:
    run = [words for words in commands((*in_ci(), *NIGHT), "nodeproof") if "--profile=documented" in words]
    files = (TOP / "scenarios").rglob("test_*.py")
    alone = {name for path in files for name in ONLY_DOCUMENTED.findall(path.read_text())}
    chosen = {name for command in run for name in scenarios_of(command)}
    assert len(alone) > 3
    assert alone <= chosen


def scenarios_of(command: Sequence[str]) -> set[str]:
    """Return the names of the scenarios that a nodeproof command runs."""
    folders = [word for word in command if word.startswith("scenarios/")] or ["scenarios"]
    named = command[command.index("-k") :][:2] if "-k" in command else []
    options = ["--collect-only", "-q", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *options, *named, *folders]
    output = proc.run(argv, timeout_s=TIMEOUT_S, cwd=TOP).stdout
    return set(re.findall(r"::(test_\w+)", output))


def test_run_in_a_checkout_loads_no_test_conftest() -> None:
    """Its hooks would retry a deviating scenario if another claim is `host-too-loaded`."""
    program = Path(sys.executable).with_name("nodeproof")
    options = ["run", "--collect-only", "--trace-config", "-p", "no:cacheprovider", "--claim=cordon.taint"]
    output = proc.run([str(program), *options], timeout_s=TIMEOUT_S, cwd=TOP).stdout
    assert "test_cordon.py" in output
    assert "conftest.py" not in output
