"""The nightly workflow: what it calls exists, and it merges, says and heals whatever happened."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeproof import cli, proc
from nodeproof.model import shard
from nodeproof.report import rundir
from tests.unit.told_runs import CONFORMS, DEVIATES, FACTS, Told, shard_run, tell

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


def carried_out(top: Path, line: str, number: int = 1) -> str:
    """What a line of the workflow writes onto the page of its run, in the run of that number."""
    page = top / f"page-{number}.md"
    argv = ("env", f"GITHUB_STEP_SUMMARY={page}", "bash", "-e", "-c", EXPRESSION.sub(str(number), line))
    proc.run(argv, timeout_s=60.0, cwd=top)
    return page.read_text() if page.exists() else ""


@pytest.mark.parametrize("job", [name for name in JOBS if name not in (*SAY_NOTHING, "conformance")])
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
    assert JOBS["conformance"]["if"] == of("conformance", "GITHUB_STEP_SUMMARY")["if"] == "always()"
    out = checkout(tmp_path)
    shard_run(out / "shards" / "shard-1", 1, PARTS, TOLD)
    with pytest.raises(proc.CommandFailed) as failed:
        carried_out(tmp_path, of("conformance", "nodeproof merge")["run"])
    assert failed.value.status == 3
    said = carried_out(tmp_path, of("conformance", "nodeproof summary")["run"])
    assert "unproven: gap: shard 2/2 is missing" in said


def night(top: Path, number: int, told: list[Told]) -> str:
    """Carry a night's conformance job out, all shards of which came; gives what it says on the page."""
    out, job = top / "reports" / "out", "conformance"
    began, ended = (f"2026-11-{number}T02:{minute}:00+00:00" for minute in (17, 26))
    facts = replace(FACTS, began=began, ended=ended)
    for shard_number, part in enumerate(PARTS, start=1):
        mine = [each for each in told if each[0] in part]
        shard_run(out / "shards" / f"shard-{shard_number}", shard_number, PARTS, mine, facts)
    with contextlib.suppress(proc.CommandFailed):
        carried_out(top, of(job, "nodeproof merge")["run"], number)
    shutil.rmtree(out / "shards")
    return carried_out(top, of(job, "nodeproof summary")["run"], number)


def forget_all_but(top: Path, kept: str) -> None:
    """What a runner's end does to what no cache has."""
    cached = {path for pattern in kept.split() for path in top.glob(pattern)}
    for path in top.glob("reports/**/*"):
        if path.is_file() and path not in cached:
            path.unlink()


def test_what_a_cache_keeps_of_a_night_tells_the_next_since_when_it_deviates(tmp_path: Path) -> None:
    steps = JOBS["conformance"]["steps"]
    (kept,) = (step["with"]["path"] for step in steps if "history" in step.get("with", {}).get("key", ""))
    checkout(tmp_path)
    well = [(scenario, "cordon.taint", CONFORMS) for part in PARTS for scenario in part]
    ill = [(scenario, "cordon.taint", DEVIATES) for part in PARTS for scenario in part]
    assert "Nothing deviates" in night(tmp_path, 21, well)
    forget_all_but(tmp_path, kept)
    assert "since this run: it conformed on 2026-11-21 02:17 UTC (run night-21)" in night(tmp_path, 22, ill)
    forget_all_but(tmp_path, kept)
    said = night(tmp_path, 23, ill)
    assert "since 2026-11-22 02:17 UTC (run night-22), in 2 runs one after the other" in said
