"""Commands of README and docs: each runs in a test or says why not, and what needs no lab runs here."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.report import rundir
from tests.documented import (
    COLLECTED,
    EXAMPLE,
    ON_A_LAB,
    ON_RUNS,
    PAGES,
    REASONS,
    SETTINGS,
    TUTORIAL,
    checkout,
    commands,
    name,
)
from tests.examples import AROUND, SCENARIOS, files, fragments
from tests.unit.told_runs import CONFORMS, DEVIATES, Told, shard_run, tell

LIMIT_S = 300.0
TOLD: list[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]
FELL: list[Told] = [("a.py::test_a", "cordon.taint", DEVIATES)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
OTHER: list[Told] = [("b.py::test_b", "cordon.taint", CONFORMS)]
ALL = {command.text: name(page) for page in PAGES for command in commands(page)}
WHOLE = (TUTORIAL, SETTINGS)
"""Pages of which every command runs in one test, in order."""


def carried_out(command: str, top: Path) -> proc.Result:
    """A command in a folder that is like a clone; `nodeproof` and `pytest` are on its PATH."""
    path = f"{top / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return proc.run(
        ("bash", "-c", command), timeout_s=LIMIT_S, cwd=top, env={**os.environ, "PATH": path}, check=False
    )


# In one process: most of the time that a command takes is that of its imports.
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


def collected(asked: Sequence[str], top: Path, named: str = "test_") -> list[tuple[str, bool]]:
    """Commands that start nothing, and whether each ended well and named a scenario."""
    done = proc.run(
        (sys.executable, "-c", COLLECTS.format(ended=ENDED)),
        timeout_s=LIMIT_S,
        cwd=top,
        stdin="\n".join(asked),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    *parts, _rest = re.split(rf"{ENDED} (\d+)\n", done.stdout)
    said = zip(asked, parts[::2], parts[1::2], strict=True)
    return [(command, status == "0" and named in output) for command, output, status in said]


def test_every_command_runs_in_a_test_or_says_why_not() -> None:
    in_order = {command.text for page in WHOLE for command in commands(page)}
    known = {*ON_A_LAB, *ON_RUNS, *COLLECTED, *EXAMPLE, *REASONS}
    assert [f"{page}: {text}" for text, page in ALL.items() if text not in known | in_order] == []
    assert sorted(known - ALL.keys()) == [], "what no page shows any more"


def test_commands_are_found() -> None:
    assert len(ALL) > 60
    assert {"docs/tutorial.md", "README.md", "docs/running.md"} <= set(ALL.values())
    said = {command.text: command.status for command in commands(TUTORIAL)}
    assert said[".venv/bin/nodeproof compare reports/out/before reports/out/altered"] == 1


@pytest.mark.parametrize("command", ON_RUNS)
def test_what_reads_runs_does(tmp_path: Path, command: str) -> None:
    out = checkout(tmp_path, sys.executable)
    for run, told in (("v1.35", TOLD), ("v1.36", TOLD), ("night", TOLD), ("today", TOLD)):
        tell(out / run, told)
    rundir.point_latest(out, out / "today")
    for number, told in enumerate((TOLD, OTHER), 1):
        shard_run(out / f"shard-{number}", number, PARTS, told)
    said = command.replace("RUN_A RUN_B", "reports/out/v1.35 reports/out/v1.36")
    runs = "reports/out/shard-*" if " merge " in said else "reports/out/v1.35 reports/out/v1.36"
    said = said.replace("RUN...", runs).replace(" DIR ", " reports/out/site ")
    if " merge " in said:
        # A run that is there is written over by none.
        said = said.replace("reports/out/night", "reports/out/tonight")
    if " merge " in said or " recheck " in said:
        # Allure needs Node.js.
        said += " --no-site"
    done = carried_out(said, tmp_path)
    assert done.status == 0, done.stderr
    written = {"page": "latest/site/page.html", "--html": "versions.html", "merge": "*/verdicts.json"}
    written["publish"] = "*/*/published.json"
    (pattern,) = {pattern for word, pattern in written.items() if word in said.split()} or {""}
    assert (
        list(out.glob(pattern)) if pattern else re.search("conform|regressions: 0|<testsuites", done.stdout)
    )


def test_comparing_says_what_fell(tmp_path: Path) -> None:
    out = checkout(tmp_path, sys.executable)
    tell(out / "v1.35", TOLD)
    tell(out / "v1.36", FELL)
    done = carried_out(".venv/bin/nodeproof compare reports/out/v1.35 reports/out/v1.36", tmp_path)
    assert done.status == 1
    assert "cordon.taint: conforms -> deviates" in done.stdout


def test_what_starts_labs_would_run_something(tmp_path: Path) -> None:
    checkout(tmp_path, sys.executable)
    asked = [
        command if " plan " in command or "--collect-only" in command else f"{command} --collect-only -q"
        for command in COLLECTED
    ]
    assert collected(asked, tmp_path) == [(command, True) for command in asked]


def test_the_example_of_a_scenario_is_one(tmp_path: Path) -> None:
    checkout(tmp_path, sys.executable)
    own = tmp_path / "own"
    example = files(SCENARIOS)
    assert list(example) == ["pytest.ini", "claims/team.yaml", "test_team.py"]
    for file, content in example.items():
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).write_text(content)
    asked = [EXAMPLE[0], *(f"{command} --collect-only -q" for command in EXAMPLE[1:])]
    assert collected(asked, own, "test_team.py::") == [(command, True) for command in asked]


def test_every_piece_of_a_scenario_is_run_in_a_scenario() -> None:
    """By `tests/acceptance/test_documented.py`, and by tests/vm what needs a machine."""
    assert [fragment.partition("\n")[0] for fragment in fragments(SCENARIOS)] == list(AROUND)


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{name(page)}: {target}")
    assert broken == []
