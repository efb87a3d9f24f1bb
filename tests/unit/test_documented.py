"""Commands of README and docs: those that read runs are run, those that start labs are collected."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir
from tests.documented import COLLECTING, EXAMPLE, READING, checkout, commands_of
from tests.examples import SCENARIOS, files
from tests.unit.synthetic_runs import CONFORMS, ScenarioVerdict, shard_run, tell

TIMEOUT_S = 300.0
ROWS: list[ScenarioVerdict] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
OTHER: list[ScenarioVerdict] = [("b.py::test_b", "cordon.taint", CONFORMS)]


def carried_out(command: str, top: Path) -> proc.Result:
    """Run a command in a folder like a clone, with `nodeproof` and `pytest` on its PATH."""
    path = f"{top / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return proc.run(
        ("bash", "-c", command), timeout_s=TIMEOUT_S, cwd=top, env={**os.environ, "PATH": path}, check=False
    )


# In one process: imports take most of a command's time.
COLLECTS = """
import shlex, sys
import pytest
from nodeproof import cli

for line in sys.stdin:
    program, *words = shlex.split(line)
    main = cli.main if program.endswith("nodeproof") else pytest.main
    status = int(main(words))
    print(f"{ended} {{status}}", flush=True)
"""
ENDED = "@@ ended with"


def collected(command_lines: Sequence[str], top: Path, named: str = "test_") -> list[tuple[str, bool]]:
    """Collect commands without starting anything; return whether each succeeded and named a scenario."""
    process = proc.run(
        (sys.executable, "-c", COLLECTS.format(ended=ENDED)),
        timeout_s=TIMEOUT_S,
        cwd=top,
        stdin="\n".join(command_lines),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    *parts, _rest = re.split(rf"{ENDED} (\d+)\n", process.stdout)
    results = zip(command_lines, parts[::2], parts[1::2], strict=True)
    return [(command, status == "0" and named in output) for command, output, status in results]


@pytest.mark.parametrize("command", commands_of(READING))
def test_commands_that_read_runs_work(tmp_path: Path, command: str) -> None:
    out = checkout(tmp_path, sys.executable)
    for run in ("v1.36", "v1.37", "before", "patch", "night", "today"):
        tell(out / run, ROWS)
    rundir.point_latest(out, out / "today")
    for number, rows in enumerate((ROWS, OTHER), 1):
        shard_run(out / f"shard-{number}", number, PARTS, rows)
    arguments = command.replace("RUN_A RUN_B", "reports/out/v1.36 reports/out/v1.37")
    runs = "reports/out/shard-*" if " merge " in arguments else "reports/out/v1.36 reports/out/v1.37"
    arguments = arguments.replace("RUN...", runs).replace(" DIR ", " reports/out/site ")
    if " merge " in arguments:
        # An existing run is never overwritten.
        arguments = arguments.replace("reports/out/night", "reports/out/tonight")
    if " merge " in arguments or " recheck " in arguments:
        # Allure needs Node.js.
        arguments += " --no-site"
    process = carried_out(arguments, tmp_path)
    assert process.status == 0, process.stderr
    written = {"page": "latest/site/page.html", "--html": "versions.html", "merge": "*/verdicts.json"}
    written |= {"publish": "*/*/published.json", "--openmetrics": "../../*.prom"}
    (pattern,) = {pattern for word, pattern in written.items() if word in arguments.split()} or {""}
    assert (
        list(out.glob(pattern))
        if pattern
        else re.search("conform|regressions: 0|<testsuites", process.stdout)
    )


def test_commands_that_start_labs_collect_scenarios(tmp_path: Path) -> None:
    checkout(tmp_path, sys.executable)
    command_lines = [
        command if " plan " in command or "--collect-only" in command else f"{command} --collect-only -q"
        for command in commands_of(COLLECTING)
    ]
    assert collected(command_lines, tmp_path) == [(command, True) for command in command_lines]


def test_documented_example_scenario_is_collected(tmp_path: Path) -> None:
    checkout(tmp_path, sys.executable)
    own = tmp_path / "own"
    example = files(SCENARIOS)
    assert list(example) == ["pytest.ini", "claims/team.yaml", "test_team.py"]
    for file, content in example.items():
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).write_text(content)
    command_lines = [EXAMPLE[0], *(f"{command} --collect-only -q" for command in EXAMPLE[1:])]
    assert collected(command_lines, own, "test_team.py::") == [(command, True) for command in command_lines]
