"""The nightly workflow: what it calls exists, and it merges, says and heals whatever happened."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import cli, proc
from nodeproof.model import shard
from nodeproof.report import rundir
from tests.unit.told_runs import CONFORMS, Told, shard_run, tell

Json = Any
TOP = Path(__file__).resolve().parents[2]
FILE = TOP / "infra" / "ci" / "nightly.yml"
WORKFLOW: Json = yaml.safe_load(FILE.read_text())
JOBS: Json = WORKFLOW["jobs"]
LINES = [line for job in JOBS.values() for step in job["steps"] for line in step.get("run", "").splitlines()]
EXPRESSION = re.compile(r"\$\{\{[^}]*\}\}")
TARGETS = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
TOLD: list[Told] = [("a.py::test_a", "cordon.taint", CONFORMS)]
PARTS = ({"a.py::test_a": ("cordon.taint",)}, {"b.py::test_b": ("cordon.taint",)})
SAY_NOTHING = ("shard", "sensitivity", "false-alarms")
"""What a shard says is said of the merged run; the others' tables are in their logs."""
CHECKER = Path(sys.executable).with_name("check-jsonschema")


RUNS = {
    ".venv/bin/nodeproof merge": "below",
    ".venv/bin/nodeproof summary": "below",
    ".venv/bin/nodeproof heal": "tests/contract/test_safety.py, tests/acceptance/test_safety.py",
    "infra/setup.sh": "tests/acceptance/test_set_up.py",
    "make run": "tests/acceptance/test_conformance.py; its shards are in test_shards.py",
    "make documented": "what it calls is in .ci/run",
    "make test-vm": "what it calls is in .ci/run",
    "make night": "takes an hour and a half; its parts are in tests/unit/test_what_is_where.py",
    "make sensitivity": "takes an hour; .ci/run has ten of its rows",
    "make false-alarms": "takes three hours; its rounds are `make run`",
}
"""Which test runs a line, or why none does."""


def of(job: str, said: str) -> Json:
    """The one step of a job that calls this."""
    (step,) = (each for each in JOBS[job]["steps"] if said in each.get("run", ""))
    return step


@pytest.mark.parametrize("line", LINES)
def test_every_line_runs_in_a_test_or_says_why_not(line: str) -> None:
    assert [said for said in RUNS if line.startswith(said)], f"{line}: nobody knows whether it works"


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_make_knows_what_to_do_for_a_line(line: str) -> None:
    """As far as that can be seen without doing it: its commands, with the line's options in them."""
    # Beside another make, its jobs would be ours.
    argv = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "bash", "-c", f"{EXPRESSION.sub('1', line)} --dry-run")
    done = proc.run(argv, timeout_s=60.0, cwd=TOP)
    assert ".venv/bin/" in done.stdout
    asked = re.search(r'ARGS="([^"]*)"', EXPRESSION.sub("1", line))
    assert asked is None or asked[1] in done.stdout


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_calls_exists(line: str) -> None:
    command, *words = shlex.split(EXPRESSION.sub("1", line))
    if command == "make":
        targets = [word for word in words if "=" not in word]
        assert targets
        assert set(targets) <= TARGETS
    elif command == ".venv/bin/nodeproof":
        assert words[0] in {each.name for each in cli.COMMANDS}
    else:
        assert os.access(TOP / command, os.X_OK)


def checked(file: Path) -> proc.Result:
    """GitHub's own schema of workflows, as check-jsonschema brings it: without the internet."""
    argv = (str(CHECKER), "--builtin-schema", "vendor.github-workflows", str(file))
    return proc.run(argv, timeout_s=60.0, check=False)


def test_it_is_a_workflow(tmp_path: Path) -> None:
    assert checked(FILE).status == 0
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(FILE.read_text().replace("runs-on:", "runs-under:"))
    assert checked(wrong).status == 1


def test_all_shards_run_and_none_ends_another() -> None:
    (line,) = (each for each in LINES if "--shard" in each)
    strategy = JOBS["shard"]["strategy"]
    numbers = strategy["matrix"]["shard"]
    assert strategy["fail-fast"] is False
    found = re.search(r"--shard=([^ \"]+(?: [^ \"]+)*?/\d+)", line)
    assert found
    shards = [shard.parse(EXPRESSION.sub(str(number), found[1])) for number in numbers]
    assert shards == [(number, len(numbers)) for number in numbers]
    assert "${{ matrix.shard }}" in found[1]


@pytest.mark.parametrize("job", [name for name in JOBS if name != "conformance"])
def test_a_job_with_labs_heals_whatever_happened(job: str) -> None:
    step = of(job, "nodeproof heal")
    assert step["if"] == "always()"
    assert JOBS[job]["steps"].index(step) > max(
        number for number, each in enumerate(JOBS[job]["steps"]) if each.get("run", "").startswith("make ")
    )


def checkout(top: Path) -> Path:
    """A folder in which a line of the workflow finds nodeproof, without the site; gives where runs are."""
    program = top / ".venv" / "bin" / "nodeproof"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = merge ] && set -- "$@" --no-site\nexec {sys.executable} -m nodeproof.cli "$@"\n'
    )
    program.chmod(0o755)
    return top / "reports" / "out"


def carried_out(top: Path, line: str) -> str:
    """What a line of the workflow writes onto the page of its run."""
    page = top / "page.md"
    argv = ("env", f"GITHUB_STEP_SUMMARY={page}", "bash", "-e", "-c", line)
    proc.run(argv, timeout_s=60.0, cwd=top)
    return page.read_text() if page.exists() else ""


@pytest.mark.parametrize("job", [name for name in JOBS if name not in SAY_NOTHING])
def test_the_nightly_run_says_it_whatever_happened(tmp_path: Path, job: str) -> None:
    step = of(job, "GITHUB_STEP_SUMMARY")
    assert step["if"] == "always()"
    out = checkout(tmp_path)
    for name in ("20261120-141530-fast", "20261120-142530-documented"):
        tell(out / name, TOLD)
    rundir.point_latest(out, out / "20261120-142530-documented")
    said = carried_out(tmp_path, step["run"])
    assert said.count("\n## Kubernetes") + said.startswith("## Kubernetes") == 2


def test_a_shard_that_is_missing_fails_the_night_and_is_named(tmp_path: Path) -> None:
    assert JOBS["conformance"]["if"] == "always()"
    out = checkout(tmp_path)
    shard_run(out / "shards" / "shard-1", 1, PARTS, TOLD)
    with pytest.raises(proc.CommandFailed) as failed:
        carried_out(tmp_path, of("conformance", "nodeproof merge")["run"])
    assert failed.value.status == 3
    said = carried_out(tmp_path, of("conformance", "nodeproof summary")["run"])
    assert "unproven: gap: shard 2/2 is missing" in said
